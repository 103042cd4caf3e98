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

// shedOf counts what a gateway has refused by itself, by layer and reason: "redis full", "overload memory".
func shedOf(ctx context.Context, g *gateway) (map[string]int64, error) {
	resp, err := get(ctx, g.admin+"/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return parseShed(resp.Body)
}

func parseShed(in io.Reader) (map[string]int64, error) {
	all := map[string]int64{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, rest, ok := strings.Cut(lines.Text(), "_shed_total{")
		layer, ours := strings.CutPrefix(name, "slotgate_")
		_, reason, _ := strings.Cut(rest, `reason="`)
		reason, _, _ = strings.Cut(reason, `"`)
		if !ok || !ours {
			continue
		}
		n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", lines.Text(), err)
		}
		all[layer+" "+reason] += int64(n)
	}
	return all, lines.Err()
}
