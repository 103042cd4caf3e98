//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// heap is what a gateway's /metrics tells of its memory.
type heap struct {
	mallocs, allocated float64 // objects and bytes so far
	inUse, stacks      float64 // bytes held now: heap, stacks
}

func (h heap) minus(other heap) heap {
	return heap{h.mallocs - other.mallocs, h.allocated - other.allocated, h.inUse - other.inUse, h.stacks - other.stacks}
}

func (h heap) plus(other heap) heap {
	return heap{h.mallocs + other.mallocs, h.allocated + other.allocated, h.inUse + other.inUse, h.stacks + other.stacks}
}

// heapOf sums up the gateways; zero for none.
func heapOf(ctx context.Context, gateways []*gateway) (heap, error) {
	var sum heap
	for _, g := range gateways {
		resp, err := get(ctx, g.admin+"/metrics")
		if err != nil {
			return heap{}, err
		}
		h, err := parseHeap(resp.Body)
		resp.Body.Close()
		if err != nil {
			return heap{}, fmt.Errorf("the metrics of %s: %w", g.name, err)
		}
		sum = sum.plus(h)
	}
	return sum, nil
}

func parseHeap(in io.Reader) (heap, error) {
	var h heap
	fields := map[string]*float64{
		"go_memstats_mallocs_total": &h.mallocs, "go_memstats_alloc_bytes_total": &h.allocated,
		"go_memstats_heap_inuse_bytes": &h.inUse, "go_memstats_stack_inuse_bytes": &h.stacks,
	}
	found := 0
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if field := fields[name]; field != nil {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				return h, fmt.Errorf("%s: %w", name, err)
			}
			*field = n
			found++
		}
	}
	if err := lines.Err(); err != nil {
		return h, err
	}
	if found != len(fields) {
		return h, fmt.Errorf("%d of %d figures are missing", len(fields)-found, len(fields))
	}
	return h, nil
}
