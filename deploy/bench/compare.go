//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"
)

// measureAll starts what the options need, measures and prints.
func (s *stage) measureAll(ctx context.Context, o options, stdout, stderr io.Writer) (*results, error) {
	res := newResults(o)
	for _, note := range coreNotes(o.Variants, runtime.NumCPU()) {
		res.Notes = append(res.Notes, note)
		fmt.Fprintln(stderr, "note:", note)
	}
	var err error
	switch {
	case o.Origin:
		err = s.origin(ctx, o, res, stdout, stderr)
	case o.Idle > 0:
		err = s.idle(ctx, o, res, stdout, stderr)
	default:
		if err = s.compare(ctx, o, res, stderr); err == nil {
			res.summarize()
			res.print(stdout)
		}
	}
	return res, err
}

// compare measures one scenario after the other.
func (s *stage) compare(ctx context.Context, o options, res *results, stderr io.Writer) error {
	doors, err := s.doors(ctx, o, stderr)
	if err != nil {
		return err
	}
	load, err := startLoader(s)
	if err != nil {
		return err
	}
	c := &comparison{options: o, load: load, stderr: stderr}
	all := o.scenarios()
	for i, sc := range all {
		if i == 0 || sc.Value != all[i-1].Value || sc.Data != all[i-1].Data {
			c.workload = newWorkload(o, sc.Value, sc.Data)
			doors := usable(doors, sc)
			fmt.Fprintf(stderr, "writing %d values of %s\n", c.workload.keys, sc.values())
			if err := seedAll(ctx, c.workload, doors, all); err != nil {
				return err
			}
		}
		rows, err := c.measure(ctx, sc, usable(doors, sc))
		if err != nil {
			return err
		}
		res.Rows = append(res.Rows, rows...)
	}
	return nil
}

// usable leaves out Gin hello's doors for values of other sizes.
func usable(doors []*door, sc scenario) []*door {
	return slices.DeleteFunc(slices.Clone(doors), func(d *door) bool { return d.valueSize > 0 && d.valueSize != sc.Value })
}

// doors starts the servers and returns the ways in, webdis first.
func (s *stage) doors(ctx context.Context, o options, stderr io.Writer) ([]*door, error) {
	var doors []*door
	add := func(d *door) {
		wanted := len(o.Only) == 0 || d.name == baseDoor
		for _, text := range o.Only {
			wanted = wanted || strings.Contains(d.name, text)
		}
		if wanted {
			doors = append(doors, d)
		}
	}
	if err := s.othersDoors(ctx, o, add); err != nil {
		return nil, err
	}
	if len(o.Variants) == 0 {
		fmt.Fprintln(stderr, "no -gateway-bin: the gateway is not measured")
		return doors, nil
	}
	if err := s.startCluster(ctx, 3, 0); err != nil {
		return nil, err
	}
	for _, v := range o.Variants {
		both, err := s.startVariant(ctx, o, v)
		if err != nil {
			return nil, err
		}
		for _, d := range both {
			add(d)
		}
	}
	if !o.Ladder {
		return doors, nil
	}
	for _, step := range ladderSteps {
		d, err := s.startLadder(ctx, step)
		if err != nil {
			return nil, err
		}
		d.backend = s.clusterPIDs
		add(d)
	}
	return doors, nil
}

// othersDoors starts what is measured beside the gateway.
func (s *stage) othersDoors(ctx context.Context, o options, add func(*door)) error {
	if err := checkPackages(); err != nil {
		return err
	}
	if err := s.startSingle(ctx); err != nil {
		return err
	}
	p, addr, err := s.startWebdis(ctx)
	if err != nil {
		return err
	}
	d := webdisDoor(addr)
	d.server, d.backend = p.pids, s.single.pids
	add(d)
	if p, addr, err = s.startNginx(ctx); err != nil {
		return err
	}
	d = nginxDoor(addr)
	d.server, d.backend = p.pids, s.single.pids
	add(d)
	if p, addr, err = s.startHello(ctx, o); err != nil {
		return err
	}
	for _, size := range o.Values {
		d = helloDoor(addr, size)
		d.server, d.backend, d.h2c = p.pids, func() []int { return nil }, o.H2C
		add(d)
	}
	return nil
}

// comparison is what measuring needs.
type comparison struct {
	options
	workload *workload
	load     *loader
	stderr   io.Writer
}

// measure runs one scenario on all doors that offer it, in rounds of which each visits the doors in another order.
func (c *comparison) measure(ctx context.Context, s scenario, all []*door) ([]*rowResult, error) {
	var doors []*door
	var rows []*rowResult
	for _, d := range all {
		if !d.offers(s) {
			continue
		}
		if err := c.open(ctx, s, d); err != nil {
			return nil, err
		}
		doors = append(doors, d)
		rows = append(rows, &rowResult{scenario: s, Name: d.name, Build: d.build, Kind: d.kind})
	}
	shuffle := rand.New(rand.NewPCG(c.Seed, 4))
	for round := range c.Rounds {
		fmt.Fprintf(c.stderr, "%s: round %d of %d\n", s, round+1, c.Rounds)
		for _, i := range shuffle.Perm(len(doors)) {
			one, err := c.measureRound(ctx, doors[i])
			if err != nil {
				return nil, err
			}
			rows[i].Rounds = append(rows[i].Rounds, one)
		}
	}
	for _, d := range doors {
		if c.Profile != "" && len(d.gateways) > 0 {
			if err := c.profile(ctx, s, d); err != nil {
				return nil, err
			}
		}
		if err := c.load.close(ctx, d); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// open checks the door's answers, connects the callers and warms the door up.
func (c *comparison) open(ctx context.Context, s scenario, d *door) error {
	if err := c.workload.verify(ctx, d, s); err != nil {
		return err
	}
	if err := c.load.open(ctx, c.workload, c.options, s, d); err != nil {
		return err
	}
	if c.Warm == 0 {
		return nil
	}
	_, err := c.load.do(ctx, order{Do: "run", Row: d.name, Duration: c.Warm})
	return err
}

// measureRound asks for the metrics outside of the time whose CPU is counted. A scrape allocates too, as much as the one before it.
func (c *comparison) measureRound(ctx context.Context, d *door) (roundResult, error) {
	first, err1 := heapOf(ctx, d.gateways)
	second, err2 := heapOf(ctx, d.gateways)
	before, err3 := c.usage(d)
	if err := errors.Join(err1, err2, err3); err != nil {
		return roundResult{}, err
	}
	r, err := c.load.do(ctx, order{Do: "run", Row: d.name, Duration: c.Round})
	if err != nil {
		return roundResult{}, err
	}
	after, err1 := c.usage(d)
	third, err2 := heapOf(ctx, d.gateways)
	resident, err3 := residentBytes(d.server())
	if err := errors.Join(err1, err2, err3); err != nil {
		return roundResult{}, err
	}
	return newRound(r, before, after, third.minus(second).minus(second.minus(first)), resident), nil
}

// usage is the CPU time so far of server, Redis and load generator.
func (c *comparison) usage(d *door) ([]time.Duration, error) {
	return cpuTimes([][]int{d.server(), d.backend(), c.load.pids()})
}

func cpuTimes(groups [][]int) ([]time.Duration, error) {
	times := make([]time.Duration, len(groups))
	for i, pids := range groups {
		var err error
		if times[i], err = cpuTime(pids); err != nil {
			return nil, err
		}
	}
	return times, nil
}
