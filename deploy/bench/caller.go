//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"time"
)

// caller is one connection (or one of those that share an HTTP/2 connection) and what it has measured in the current round.
type caller struct {
	addr    string
	conn    net.Conn
	reader  *reader
	h2      *h2Conn
	turn    int           // index of the next request
	due     time.Duration // of an open loop: when the request under way should have been sent; guarded by its mutex
	latency histogram
	total   time.Duration
	count   int64
	errors  int64
	first   error
}

// roundGrace is how much longer than its round a request may take. One deadline per round, not per request: a server that hangs costs
// ten seconds and an error, a healthy one no timer.
const roundGrace = 10 * time.Second

func (one *caller) reset() {
	one.count, one.errors, one.total, one.first = 0, 0, 0, nil
	one.latency = newHistogram()
}

func (one *caller) took(d time.Duration) {
	one.latency.record(d)
	one.total += d
	one.count++
}

func (one *caller) loop(c *crowd, end time.Time) {
	one.reset()
	if one.h2 == nil {
		if one.conn == nil {
			one.fail(one.dial(c))
		}
		if one.conn == nil {
			return
		}
		_ = one.conn.SetDeadline(end.Add(roundGrace))
	}
	for now := time.Now(); now.Before(end); {
		err := one.ask(c)
		then := time.Now()
		one.took(then.Sub(now))
		now = then
		if err != nil && !one.recover(c, err) {
			return
		}
	}
}

// ask sends the next request and checks its answer.
func (one *caller) ask(c *crowd) error {
	turn := one.next(len(c.requests))
	if one.h2 != nil {
		a, err := one.h2.ask(c.parsed[turn])
		if err != nil {
			return err
		}
		return c.expect.check(a)
	}
	if one.conn == nil {
		return errors.New("not connected")
	}
	if _, err := one.conn.Write(c.requests[turn]); err != nil {
		return &brokenError{err}
	}
	return one.receive(c)
}

func (one *caller) next(requests int) int {
	turn := one.turn
	if one.turn++; one.turn == requests {
		one.turn = 0
	}
	return turn
}

// receive reads an answer and checks it.
func (one *caller) receive(c *crowd) error {
	a, err := one.reader.next()
	if err != nil {
		return &brokenError{err}
	}
	if err := c.expect.check(a); err != nil {
		return err
	}
	if a.Close {
		return &brokenError{errors.New("the server closed a keep-alive connection")}
	}
	return nil
}

func (e expectation) check(a answer) error {
	if a.Status < 200 || a.Status > 299 {
		return fmt.Errorf("status %d: %s", a.Status, a.Head)
	}
	if a.Status != 204 && (a.Length < e.MinLength || !bytes.Contains(a.Head, []byte(e.Contains))) {
		return fmt.Errorf("unexpected answer: status %d, %d bytes, %.80q", a.Status, a.Length, a.Head)
	}
	return nil
}

// brokenError says that the connection cannot be used again.
type brokenError struct{ error }

// recover counts the error and dials again after a broken connection; it reports whether the caller can go on.
func (one *caller) recover(c *crowd, err error) bool {
	one.fail(err)
	if one.h2 != nil {
		return one.errors <= maxBroken
	}
	var broken *brokenError
	if !errors.As(err, &broken) {
		return true
	}
	one.conn.Close()
	one.conn = nil
	return one.errors <= maxBroken && one.dial(c) == nil
}

// maxBroken: a server that keeps breaking connections must not turn the loop into a dial storm.
const maxBroken = 3

func (one *caller) fail(err error) {
	if err == nil {
		return
	}
	one.errors++
	if one.first == nil {
		one.first = err
	}
}

func (one *caller) dial(c *crowd) error {
	conn, err := net.DialTimeout("tcp", one.addr, 5*time.Second)
	if err != nil {
		return err
	}
	one.conn, one.reader = conn, c.newReader(conn)
	return conn.SetDeadline(time.Now().Add(time.Minute)) // each round sets its own
}
