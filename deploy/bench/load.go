//go:build linux

package main

import (
	"bytes"
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
	Do       string // "open": connect and keep the requests; "run": load for Duration; "close"
	Row      string // the row it is about
	Addr     string
	Conns    int
	Requests [][]byte // complete HTTP requests, sent in turn by every connection
	Expect   expectation
	Duration time.Duration
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
	Failed     string // the order itself could not be carried out
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
	case "close":
		c.close()
		delete(rows, o.Row)
		return nil
	}
	return fmt.Errorf("unknown order %q", o.Do)
}

// crowd is the callers of one row: each sends a request, waits for its answer, sends the next (a closed loop).
type crowd struct {
	addr     string
	requests [][]byte
	expect   expectation
	callers  []*caller
}

type caller struct {
	conn    net.Conn
	reader  *reader
	turn    int // index of the next request
	latency histogram
	count   int64
	errors  int64
	first   error
}

func openCrowd(o order) (*crowd, error) {
	c := &crowd{addr: o.Addr, requests: o.Requests, expect: o.Expect}
	for i := range o.Conns {
		// Callers start at different places, so that they do not ask for the same key at the same time.
		one := &caller{turn: i * len(o.Requests) / o.Conns}
		if err := one.dial(o.Addr); err != nil {
			c.close()
			return nil, err
		}
		c.callers = append(c.callers, one)
	}
	return c, nil
}

func (c *crowd) close() {
	for _, one := range c.callers {
		if one.conn != nil {
			one.conn.Close()
		}
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
	r := report{Elapsed: time.Since(start), Latency: histogram{}}
	for _, one := range c.callers {
		r.Requests += one.count
		r.Errors += one.errors
		r.Latency.add(one.latency)
		if one.first != nil && r.FirstError == "" {
			r.FirstError = one.first.Error()
		}
	}
	return r
}

func (one *caller) loop(c *crowd, end time.Time) {
	one.count, one.errors, one.first = 0, 0, nil
	one.latency = newHistogram()
	if one.conn == nil {
		one.fail(one.dial(c.addr))
	}
	if one.conn == nil {
		return
	}
	// One deadline per round, not per request: a server that hangs costs ten seconds and an error, a healthy one no timer.
	_ = one.conn.SetDeadline(end.Add(10 * time.Second))
	for now := time.Now(); now.Before(end); {
		err := one.ask(c)
		then := time.Now()
		one.latency.record(then.Sub(now))
		one.count++
		now = then
		if err != nil && !one.recover(c, err) {
			return
		}
	}
}

// ask sends the next request and checks its answer.
func (one *caller) ask(c *crowd) error {
	request := c.requests[one.turn]
	if one.turn++; one.turn == len(c.requests) {
		one.turn = 0
	}
	if _, err := one.conn.Write(request); err != nil {
		return &brokenError{err}
	}
	a, err := one.reader.next()
	if err != nil {
		return &brokenError{err}
	}
	if a.Status < 200 || a.Status > 299 {
		return fmt.Errorf("status %d: %s", a.Status, a.Head)
	}
	if a.Length < c.expect.MinLength && a.Status != 204 || !bytes.Contains(a.Head, []byte(c.expect.Contains)) && a.Status != 204 {
		return fmt.Errorf("unexpected answer: status %d, %d bytes, %.80q", a.Status, a.Length, a.Head)
	}
	if a.Close {
		return &brokenError{errors.New("the server closed a keep-alive connection")}
	}
	return nil
}

// brokenError says that the connection cannot be used again.
type brokenError struct{ error }

// recover counts the error and dials again after a broken connection; it reports whether the caller can go on.
func (one *caller) recover(c *crowd, err error) bool {
	one.fail(err)
	var broken *brokenError
	if !errors.As(err, &broken) {
		return true
	}
	one.conn.Close()
	one.conn = nil
	// A server that keeps breaking connections must not turn the loop into a dial storm.
	if one.errors > 3 {
		return false
	}
	if err := one.dial(c.addr); err != nil {
		return false
	}
	return true
}

func (one *caller) fail(err error) {
	if err == nil {
		return
	}
	one.errors++
	if one.first == nil {
		one.first = err
	}
}

func (one *caller) dial(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return err
	}
	one.conn, one.reader = conn, newReader(conn)
	return nil
}
