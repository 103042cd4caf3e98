//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"time"
)

// workload is the keys and values in play, the same for every door: a value depends on its key and the seed alone.
type workload struct {
	options
	values []string
}

// alphabet needs no escape in a path, in JSON or in nginx' lines, so that no door does extra work.
const alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func newWorkload(o options) *workload {
	w := &workload{options: o, values: make([]string, o.Keys)}
	r := rand.New(rand.NewPCG(o.Seed, 1))
	for i := range w.values {
		b := make([]byte, o.ValueSize)
		for j := range b {
			b[j] = alphabet[r.IntN(len(alphabet))]
		}
		w.values[i] = string(b)
	}
	return w
}

func (w *workload) pairs(indexes []int) (keys, values []string) {
	for _, i := range indexes {
		keys, values = append(keys, keyName(i)), append(values, w.values[i])
	}
	return keys, values
}

// picks returns n batches of different keys.
func (w *workload) picks(n int) [][]int {
	r := rand.New(rand.NewPCG(w.Seed, 2))
	picks := make([][]int, n)
	for i := range picks {
		picks[i] = r.Perm(w.Keys)[:w.Batch]
	}
	return picks
}

// requests are what the load generator sends to a door: each key once for single keys, 200 different batches otherwise.
func (w *workload) requests(d *door, op string) [][]byte {
	var all [][]byte
	switch op {
	case opGet, opPut:
		order := rand.New(rand.NewPCG(w.Seed, 3)).Perm(w.Keys)
		for _, i := range order {
			if op == opGet {
				all = append(all, d.get(keyName(i)))
			} else {
				all = append(all, d.put(keyName(i), w.values[i]))
			}
		}
	default:
		for _, pick := range w.picks(200) {
			keys, values := w.pairs(pick)
			if op == opMGet {
				all = append(all, d.mget(keys))
			} else {
				all = append(all, d.mset(keys, values))
			}
		}
	}
	return all
}

func (w *workload) expect(d *door, op string) expectation {
	switch op {
	case opGet:
		return expectation{MinLength: w.ValueSize}
	case opMGet:
		return expectation{MinLength: w.ValueSize * w.Batch}
	}
	return expectation{Contains: d.written[op]}
}

// seed writes every key through a door, in batches if it has them.
func (w *workload) seed(ctx context.Context, d *door) error {
	size := 1
	if d.mset != nil {
		size = 100
	}
	for from := 0; from < w.Keys; from += size {
		var err error
		if d.mset == nil {
			err = d.write(ctx, opPut, d.put(keyName(from), w.values[from]))
		} else {
			err = d.write(ctx, opMSet, d.mset(w.pairs(upTo(from, min(from+size, w.Keys)))))
		}
		if err != nil {
			return fmt.Errorf("writing the first values through %s: %w", d.name, err)
		}
	}
	return nil
}

func upTo(from, to int) []int {
	indexes := make([]int, 0, to-from)
	for i := from; i < to; i++ {
		indexes = append(indexes, i)
	}
	return indexes
}

// verify asks the door once for what will be measured and compares the values; writes are read back.
func (w *workload) verify(ctx context.Context, d *door, op string) error {
	if d.value == nil {
		return nil
	}
	var err error
	switch op {
	case opGet:
		err = w.verifyGet(ctx, d, keyName(0), w.values[0])
	case opPut:
		// Another value first: the right one is there already.
		for _, v := range []string{"probe-" + w.values[1], w.values[0]} {
			if err = d.write(ctx, opPut, d.put(keyName(0), v)); err == nil {
				err = w.verifyGet(ctx, d, keyName(0), v)
			}
			if err != nil {
				break
			}
		}
	case opMGet:
		keys, values := w.pairs(w.picks(1)[0])
		err = w.verifyMGet(ctx, d, keys, values)
	case opMSet:
		keys, values := w.pairs(w.picks(1)[0])
		other := slices.Clone(values)
		slices.Reverse(other)
		for _, v := range [][]string{other, values} {
			if err = d.write(ctx, opMSet, d.mset(keys, v)); err == nil {
				err = w.verifyMGet(ctx, d, keys, v)
			}
			if err != nil {
				break
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%s answers %s wrongly: %w", d.name, op, err)
	}
	return nil
}

func (w *workload) verifyGet(ctx context.Context, d *door, key, want string) error {
	body, err := exchange(ctx, d.addr, d.get(key))
	if err != nil {
		return err
	}
	got, err := d.value(body)
	if err == nil && got != want {
		err = fmt.Errorf("key %s holds %q, want %q", key, got, want)
	}
	return err
}

func (w *workload) verifyMGet(ctx context.Context, d *door, keys, want []string) error {
	body, err := exchange(ctx, d.addr, d.mget(keys))
	if err != nil {
		return err
	}
	got, err := d.values(body)
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("wrong values: %.300q", got)
	}
	return err
}

// write sends a write and checks its answer as the load generator does.
func (d *door) write(ctx context.Context, op string, req []byte) error {
	body, err := exchange(ctx, d.addr, req)
	if err == nil && !bytes.Contains(body, []byte(d.written[op])) {
		err = fmt.Errorf("unexpected answer %.200q", body)
	}
	return err
}

// exchange sends one request on a connection of its own and returns the body of a 2xx answer.
func exchange(ctx context.Context, addr string, req []byte) ([]byte, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(req); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("status %d: %.300s", resp.StatusCode, body)
	}
	return body, err
}
