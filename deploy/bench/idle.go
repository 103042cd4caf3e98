//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// idleResult is what connections cost that wait after one request each.
type idleResult struct {
	Name           string   `json:"name"`
	Conns          int      `json:"conns"`
	BeforeBytes    int64    `json:"rss_before_bytes"`
	AfterBytes     int64    `json:"rss_after_bytes"`
	BytesPerConn   float64  `json:"rss_bytes_per_conn"`
	GoBytesPerConn *float64 `json:"go_bytes_per_conn,omitempty"` // heap and stacks in use, of gateways
}

// idlePause lets a server come to rest before its memory is read.
const idlePause = 3 * time.Second

// idle measures every door after a little load, so that what it fetches once is not counted as a connection's.
func (s *stage) idle(ctx context.Context, o options, res *results, stdout, stderr io.Writer) error {
	doors, err := s.doors(ctx, o, stderr)
	if err != nil {
		return err
	}
	load, err := startLoader(s)
	if err != nil {
		return err
	}
	c := &comparison{options: o, load: load, stderr: stderr, workload: newWorkload(o, o.Values[0], o.Data[0])}
	few := scenario{Op: opGet, Batch: 1, Conns: 32, Value: o.Values[0], Data: o.Data[0]}
	if err := seedAll(ctx, c.workload, doors, []scenario{few}); err != nil {
		return err
	}
	for _, d := range doors {
		if !d.offers(few) || d.kind == "raw" {
			continue // the raw door is the same process
		}
		fmt.Fprintf(stderr, "%s: %d idle connections\n", d.name, o.Idle)
		one, err := c.idleDoor(ctx, few, d)
		if err != nil {
			return err
		}
		res.Idle = append(res.Idle, one)
	}
	res.Valid = true
	fmt.Fprintf(stdout, "Memory of %d connections that are idle after one request each\n\n", o.Idle)
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tRSS MB before\tafter\tKB per connection\tof it heap and stacks in use\t")
	for _, r := range res.Idle {
		inUse := "–"
		if r.GoBytesPerConn != nil {
			inUse = fmt.Sprintf("%.1f", *r.GoBytesPerConn/1024)
		}
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.1f\t%s\t\n", r.Name, mega(r.BeforeBytes), mega(r.AfterBytes), r.BytesPerConn/1024, inUse)
	}
	return t.Flush()
}

func mega(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func (c *comparison) idleDoor(ctx context.Context, few scenario, d *door) (idleResult, error) {
	many := few
	many.Conns = c.Idle
	if err := c.open(ctx, few, d); err != nil {
		return idleResult{}, err
	}
	if err := c.load.close(ctx, d); err != nil {
		return idleResult{}, err
	}
	before, heapBefore, err := c.memory(ctx, d)
	if err != nil {
		return idleResult{}, err
	}
	if err := c.load.open(ctx, c.workload, c.options, many, d); err != nil {
		return idleResult{}, err
	}
	if err := c.once(ctx, d); err != nil {
		return idleResult{}, err
	}
	after, heapAfter, err := c.memory(ctx, d)
	if err != nil {
		return idleResult{}, err
	}
	if err := c.once(ctx, d); err != nil { // they were open all the time
		return idleResult{}, fmt.Errorf("after the pause: %w", err)
	}
	r := idleResult{
		Name: d.name, Conns: c.Idle, BeforeBytes: before, AfterBytes: after, BytesPerConn: float64(after-before) / float64(c.Idle),
	}
	if len(d.gateways) > 0 {
		grown := heapAfter.minus(heapBefore)
		perConn := (grown.inUse + grown.stacks) / float64(c.Idle)
		r.GoBytesPerConn = &perConn
	}
	return r, c.load.close(ctx, d)
}

// memory waits a little and reads a door's memory.
func (c *comparison) memory(ctx context.Context, d *door) (int64, heap, error) {
	select {
	case <-ctx.Done():
		return 0, heap{}, context.Cause(ctx)
	case <-time.After(idlePause):
	}
	h, err := heapOf(ctx, d.gateways)
	if err != nil {
		return 0, heap{}, err
	}
	resident, err := residentBytes(d.server())
	return resident, h, err
}

func (c *comparison) once(ctx context.Context, d *door) error {
	r, err := c.load.do(ctx, order{Do: "once", Row: d.name})
	if err == nil && r.Errors > 0 {
		err = fmt.Errorf("%s: %d of %d connections failed: %s", d.name, r.Errors, r.Requests, r.FirstError)
	}
	return err
}
