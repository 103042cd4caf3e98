//go:build linux

package main

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// workload is the keys and values in play, the same for every door: a value depends on its key, its size and the seed alone.
type workload struct {
	seed   uint64
	keys   int
	size   int
	values []string
}

// maxWorkBytes bounds the values held, and the requests of a row: the load generator has them all ready.
const maxWorkBytes = 64 << 20

func newWorkload(o options, size int, data string) *workload {
	w := &workload{seed: o.Seed, size: size, keys: min(o.Keys, max(maxWorkBytes/size, 16))}
	for _, batch := range o.Batches {
		if batch*size <= maxBatchBytes {
			w.keys = min(o.Keys, max(w.keys, batch))
		}
	}
	r := rand.New(rand.NewPCG(o.Seed, 1))
	draw := randomLetters
	if data == dataText {
		draw = randomText
	}
	for range w.keys {
		w.values = append(w.values, draw(r, size))
	}
	return w
}

// alphabet needs no escape in a path, in JSON or in nginx' lines, so that no door does extra work.
const alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func randomLetters(r *rand.Rand, size int) string {
	b := make([]byte, size)
	for j := range b {
		b[j] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

var words = strings.Fields("customer order delivery address invoice payment article quantity price warehouse status created updated pending")

func randomText(r *rand.Rand, size int) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(words[r.IntN(len(words))] + "-" + strconv.Itoa(r.IntN(100)) + "-")
	}
	return b.String()[:size]
}

// target is one request: an app and the keys, by index.
type target struct {
	app  int
	keys []int
}

// targets are the requests of a scenario, which callers send in turn: every key and every app at least once, as far as maxWorkBytes lets
// them; batches are 200 picks of different keys, or one for each app.
func (w *workload) targets(s scenario, apps int) []target {
	if !isBatch(s.Op) {
		order := rand.New(rand.NewPCG(w.seed, 3)).Perm(w.keys)
		all := make([]target, min(max(w.keys, apps), max(maxWorkBytes/(w.size+200), 16)))
		for i := range all {
			all[i] = target{i % apps, order[i%w.keys : i%w.keys+1]}
		}
		return all
	}
	r := rand.New(rand.NewPCG(w.seed, 2))
	all := make([]target, min(max(200, apps), max(maxWorkBytes/(s.Batch*(w.size+40)), 4)))
	for i := range all {
		all[i] = target{i % apps, pick(r, w.keys, s.Batch)}
	}
	return all
}

// pick returns n different numbers below max.
func pick(r *rand.Rand, max, n int) []int {
	if n*3 > max {
		return r.Perm(max)[:n]
	}
	seen, picks := make(map[int]bool, n), make([]int, 0, n)
	for len(picks) < n {
		if i := r.IntN(max); !seen[i] {
			seen[i] = true
			picks = append(picks, i)
		}
	}
	return picks
}

func (w *workload) pairs(indexes []int) (keys, values []string) {
	for _, i := range indexes {
		keys, values = append(keys, keyName(i)), append(values, w.values[i])
	}
	return keys, values
}

// requests are what the load generator sends to a door.
func (w *workload) requests(d *door, s scenario) [][]byte {
	targets := w.targets(s, d.apps())
	all := make([][]byte, len(targets))
	for i, t := range targets {
		keys, values := w.pairs(t.keys)
		op := s.Op
		if op == opMix {
			op = opGet
			if i%10 == 9 {
				op = opPut
			}
		}
		switch op {
		case opGet:
			all[i] = d.get(t.app, keys[0])
		case opPut:
			all[i] = d.put(t.app, keys[0], values[0])
		case opMGet:
			all[i] = d.mget(t.app, keys)
		default:
			all[i] = d.mset(t.app, keys, values)
		}
	}
	return all
}

func (w *workload) expect(d *door, s scenario) expectation {
	switch s.Op {
	case opGet:
		return expectation{MinLength: w.size}
	case opMGet:
		return expectation{MinLength: w.size * s.Batch}
	}
	return expectation{Contains: d.written[s.Op]}
}

func keyName(i int) string { return "bench:" + strconv.Itoa(1_000_000+i) }
