//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
)

// The operations, in the order in which they are measured.
const (
	opGet  = "get"
	opPut  = "put"
	opMix  = "mix" // nine get to one put
	opMGet = "mget"
	opMSet = "mset"
)

var allOps = []string{opGet, opPut, opMix, opMGet, opMSet}

func isBatch(op string) bool { return op == opMGet || op == opMSet }

// What values are made of.
const (
	dataRandom = "random" // letters and digits at random: Snappy saves nothing
	dataText   = "text"   // words that come again: Snappy saves more than half
)

// maxBatchBytes bounds a batch: it has to fit into a request of every door.
const maxBatchBytes = 4 << 20

// scenario is what is asked of every door in turn; rows of one scenario are compared with each other.
type scenario struct {
	Op    string `json:"op"`
	Batch int    `json:"batch"` // keys in a request
	Conns int    `json:"conns"`
	Value int    `json:"value_bytes"`
	Data  string `json:"data"`
}

// scenarios are all combinations of the lists among the options, those with the same values next to each other. Batches too large to be
// sent are left out.
func (o *options) scenarios() []scenario {
	var all []scenario
	for _, data := range o.Data {
		for _, value := range o.Values {
			for _, op := range o.Ops {
				batches, conns := []int{1}, o.Conns
				if isBatch(op) {
					batches, conns = o.Batches, o.BatchConns
				}
				for _, batch := range batches {
					for _, n := range conns {
						if batch == 1 || batch*value <= maxBatchBytes {
							all = append(all, scenario{op, batch, n, value, data})
						}
					}
				}
			}
		}
	}
	return all
}

// String names everything.
func (s scenario) String() string {
	return fmt.Sprintf("%s, %s, %s", s.operation(), s.connections(), s.values())
}

func (s scenario) operation() string {
	switch {
	case isBatch(s.Op):
		return fmt.Sprintf("%s %d", s.Op, s.Batch)
	case s.Op == opMix:
		return "9 GET : 1 PUT"
	}
	return strings.ToUpper(s.Op)
}

func (s scenario) connections() string {
	if s.Conns == 1 {
		return "1 connection"
	}
	return fmt.Sprintf("%d connections", s.Conns)
}

func (s scenario) values() string {
	size := fmt.Sprintf("%d B", s.Value)
	switch {
	case s.Value >= 1_000_000 && s.Value%100_000 == 0:
		size = fmt.Sprintf("%g MB", float64(s.Value)/1e6)
	case s.Value >= 1000 && s.Value%100 == 0:
		size = fmt.Sprintf("%g KB", float64(s.Value)/1e3)
	}
	return size + " " + s.Data
}

// title names what tells the scenario from the others of the run.
func (s scenario) title(all []scenario) string {
	text := s.operation()
	if slices.ContainsFunc(all, func(o scenario) bool { return isBatch(o.Op) == isBatch(s.Op) && o.Conns != s.Conns }) {
		text += ", " + s.connections()
	}
	if slices.ContainsFunc(all, func(o scenario) bool { return o.Value != s.Value || o.Data != s.Data }) {
		text += ", " + s.values()
	}
	return text
}
