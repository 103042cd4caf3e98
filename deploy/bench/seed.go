//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// seeders write at once: a connection each.
const seeders = 8

// seedAll writes the keys of the scenarios once for every owner of data: doors that share a Redis and its apps share the values too.
func seedAll(ctx context.Context, w *workload, doors []*door, scenarios []scenario) error {
	done := map[string]bool{}
	for _, d := range doors {
		if d.value == nil && d.values == nil || done[d.data] {
			continue
		}
		if err := w.seedDoor(ctx, d, scenarios); err != nil {
			return fmt.Errorf("writing the first values through %s: %w", d.name, err)
		}
		done[d.data] = true
	}
	return nil
}

func (w *workload) seedDoor(ctx context.Context, d *door, scenarios []scenario) error {
	var todo []target
	if d.apps() == 1 {
		for from := 0; from < w.keys; from++ {
			todo = append(todo, target{0, []int{from}})
		}
	} else {
		for _, s := range scenarios {
			todo = append(todo, w.targets(s, d.apps())...)
		}
	}
	if d.mset != nil {
		todo = merge(todo, min(100, max(1, 1<<20/w.size)))
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range seeders {
		g.Go(func() error {
			s := session{addr: d.addrs[i%len(d.addrs)]}
			defer s.close()
			for _, t := range todo[len(todo)*i/seeders : len(todo)*(i+1)/seeders] {
				if err := w.seedOne(ctx, d, &s, t); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (w *workload) seedOne(ctx context.Context, d *door, s *session, t target) error {
	keys, values := w.pairs(t.keys)
	if d.mset != nil {
		return d.write(ctx, s, opMSet, d.mset(t.app, keys, values))
	}
	return d.write(ctx, s, opPut, d.put(t.app, keys[0], values[0]))
}

// merge joins neighbours of the same app, to batches of at most size keys.
func merge(todo []target, size int) []target {
	var all []target
	for _, t := range todo {
		for part := range slices.Chunk(t.keys, size) {
			if n := len(all) - 1; n >= 0 && all[n].app == t.app && len(all[n].keys)+len(part) <= size {
				all[n].keys = append(slices.Clip(all[n].keys), part...)
				continue
			}
			all = append(all, target{t.app, part})
		}
	}
	return all
}

// verify asks the door once for what will be measured and compares the values; writes are read back.
func (w *workload) verify(ctx context.Context, d *door, s scenario) error {
	if d.value == nil && d.values == nil {
		return nil
	}
	var err error
	for _, addr := range d.addrs {
		c := session{addr: addr}
		t := w.targets(s, d.apps())[0]
		keys, values := w.pairs(t.keys)
		if isBatch(s.Op) {
			err = w.verifyBatch(ctx, d, &c, s.Op, t.app, keys, values)
		} else {
			err = w.verifySingle(ctx, d, &c, s.Op, t.app, keys[0], values[0])
		}
		c.close()
		if err != nil {
			return fmt.Errorf("%s answers %s wrongly: %w", d.name, s.Op, err)
		}
	}
	return nil
}

func (w *workload) verifySingle(ctx context.Context, d *door, c *session, op string, app int, key, value string) error {
	expect := []string{value}
	if op != opGet {
		expect = []string{"probe-" + value[:len(value)/2], value} // another value first: the right one is there already
	}
	for _, v := range expect {
		if op != opGet {
			if err := d.write(ctx, c, opPut, d.put(app, key, v)); err != nil {
				return err
			}
		}
		body, err := c.exchange(ctx, d.get(app, key))
		if err != nil {
			return err
		}
		if got, err := d.value(body); err != nil || got != v {
			return fmt.Errorf("key %s holds %.100q, want %.100q (%v)", key, got, v, err)
		}
	}
	return nil
}

func (w *workload) verifyBatch(ctx context.Context, d *door, c *session, op string, app int, keys, values []string) error {
	expect := [][]string{values}
	if op == opMSet {
		other := slices.Clone(values)
		slices.Reverse(other)
		expect = [][]string{other, values}
	}
	for _, v := range expect {
		if op == opMSet {
			if err := d.write(ctx, c, opMSet, d.mset(app, keys, v)); err != nil {
				return err
			}
		}
		body, err := c.exchange(ctx, d.mget(app, keys))
		if err != nil {
			return err
		}
		if got, err := d.values(body); err != nil || !slices.Equal(got, v) {
			return fmt.Errorf("wrong values: %.300q (%v)", got, err)
		}
	}
	return nil
}

// write sends a write and checks its answer as the load generator does.
func (d *door) write(ctx context.Context, s *session, op string, req []byte) error {
	body, err := s.exchange(ctx, req)
	if err == nil && !bytes.Contains(body, []byte(d.written[op])) {
		err = fmt.Errorf("unexpected answer %.200q", body)
	}
	return err
}

// session is a keep-alive connection for requests outside of any measuring.
type session struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
}

func (s *session) close() {
	if s.conn != nil {
		s.conn.Close()
	}
}

// exchange sends one request and returns the body of a 2xx answer.
func (s *session) exchange(ctx context.Context, req []byte) ([]byte, error) {
	if s.conn == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.addr)
		if err != nil {
			return nil, err
		}
		s.conn, s.in = conn, bufio.NewReader(conn)
	}
	if err := s.conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := s.conn.Write(req); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(s.in, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("status %d: %.300s", resp.StatusCode, body)
	}
	if resp.Close {
		s.conn.Close()
		s.conn = nil
	}
	return body, err
}
