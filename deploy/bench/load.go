//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// order is one line of the load generator's standard input; report is the line it answers with.
type order struct {
	Do       string // "open": connect and keep the requests; "run": closed loop for Duration; "once": each caller once; "pace": open loop; "flows": several; "close"
	Row      string // the row it is about
	Addrs    []string
	Conns    int
	Streams  int      // callers on one HTTP/2 connection; 0 speaks HTTP/1.1
	Requests [][]byte // complete HTTP/1.1 requests, sent in turn by every connection
	Expect   expectation
	Duration time.Duration
	Rate     float64 // of "pace", requests per second

	Keep  int           // of "open": bytes of an answer's body that "flows" looks at; 0: those of a short answer
	Flows []flow        // of "flows"
	Lead  time.Duration // of "flows": what is due before is counted apart

	Patience time.Duration // of "flows": longest wait for a free connection, and longest time in which a success is one
}

// expectation is what makes an answer right; anything else is counted as an error. The full check of values is done once, before.
type expectation struct {
	MinLength int    // the shortest good body
	Contains  string // in the first bytes of the body; empty asks nothing
}

type report struct {
	Requests   int64
	Errors     int64
	FirstError string
	Elapsed    time.Duration
	Latency    histogram
	Total      time.Duration // of all latencies
	Late       histogram     // of an open loop: how late the generator itself was
	LateTotal  time.Duration
	Flows      []*tally // of "flows", in their order
	Failed     string   // the order itself could not be carried out
}

// serveLoad carries out orders until its input ends. Connections stay open between the rounds of a row: a measured second holds no
// handshake.
func serveLoad(in io.Reader, out io.Writer) error {
	rows := map[string]*crowd{}
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o order
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading an order: %w", err)
		}
		var r report
		if err := carryOut(o, rows, &r); err != nil {
			r.Failed = err.Error()
		}
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("writing a report: %w", err)
		}
	}
}

func carryOut(o order, rows map[string]*crowd, r *report) error {
	c := rows[o.Row]
	if o.Do == "flows" {
		var err error
		*r, err = runFlows(o, rows)
		return err
	}
	if c == nil && o.Do != "open" {
		return fmt.Errorf("row %q is not open", o.Row)
	}
	switch o.Do {
	case "open":
		c, err := openCrowd(o)
		rows[o.Row] = c
		return err
	case "run":
		*r = c.run(o.Duration)
		return nil
	case "once":
		*r = c.once()
		return nil
	case "pace":
		if o.Rate <= 0 || c.parsed != nil {
			return errors.New("an open loop needs a rate, and HTTP/1.1")
		}
		*r = c.pace(o.Rate, o.Duration)
		return nil
	case "close":
		c.close()
		delete(rows, o.Row)
		return nil
	}
	return fmt.Errorf("unknown order %q", o.Do)
}

// crowd is the callers of one row. In a closed loop each sends a request, waits for its answer, sends the next.
type crowd struct {
	addrs    []string
	requests [][]byte
	parsed   []*h2Request // instead of requests, for HTTP/2
	expect   expectation
	buffer   int
	keep     int
	callers  []*caller
	h2       []*h2Conn
}

// callerBuffer holds a large answer in few reads; a crowd too large for that gets by with a header's worth.
const (
	callerBuffer      = 64 << 10
	smallCallerBuffer = 4 << 10
	largeCrowd        = 2000
)

func openCrowd(o order) (*crowd, error) {
	c := &crowd{addrs: o.Addrs, requests: o.Requests, expect: o.Expect, buffer: callerBuffer, keep: max(o.Keep, headSize)}
	if o.Conns > largeCrowd {
		c.buffer = smallCallerBuffer
	}
	if o.Streams > 0 {
		if err := c.parse(); err != nil {
			return nil, err
		}
	}
	for i := range o.Conns {
		// Callers start at different places, so that they do not ask for the same key at the same time.
		one := &caller{addr: o.Addrs[i%len(o.Addrs)], turn: i * len(o.Requests) / o.Conns}
		c.callers = append(c.callers, one)
		if o.Streams > 0 {
			one.h2 = c.h2For(i, o)
			continue
		}
		if err := one.dial(c); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *crowd) newReader(conn net.Conn) *reader {
	r := newReader(conn, c.buffer)
	r.head = make([]byte, c.keep)
	return r
}

func (c *crowd) close() {
	for _, one := range c.callers {
		if one.conn != nil {
			one.conn.Close()
		}
	}
	for _, conn := range c.h2 {
		conn.close()
	}
}

func (c *crowd) run(d time.Duration) report {
	var all sync.WaitGroup
	start := time.Now()
	end := start.Add(d)
	for _, one := range c.callers {
		all.Go(func() { one.loop(c, end) })
	}
	all.Wait()
	return c.report(time.Since(start))
}

// onceAtATime bounds how many callers of a large crowd ask at the same moment.
const onceAtATime = 64

// once lets every caller ask once.
func (c *crowd) once() report {
	var all sync.WaitGroup
	start := time.Now()
	places := make(chan struct{}, onceAtATime)
	for _, one := range c.callers {
		one.reset()
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if one.conn != nil {
				_ = one.conn.SetDeadline(time.Now().Add(roundGrace))
			}
			before := time.Now()
			one.fail(one.ask(c))
			one.took(time.Since(before))
		})
	}
	all.Wait()
	return c.report(time.Since(start))
}

func (c *crowd) report(elapsed time.Duration) report {
	r := report{Elapsed: elapsed, Latency: histogram{}}
	for _, one := range c.callers {
		r.Requests += one.count
		r.Errors += one.errors
		r.Total += one.total
		r.Latency.add(one.latency)
		if one.first != nil && r.FirstError == "" {
			r.FirstError = one.first.Error()
		}
	}
	return r
}
