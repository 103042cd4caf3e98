//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// A flow is one of the streams of requests of a "flows" order, which run side by side: an open loop on an open row, with arrivals by chance
// (exponential gaps), since a server that is asked at even intervals is never asked twice at once. Equal seeds give equal arrivals, so that
// what differs between two runs is not the load.
type flow struct {
	Row    string
	Rate   float64 // requests per second
	Seed   uint64
	Ledger bool // tell of every request what became of it; its row has a request for each arrival
}

// tally is what became of a flow's requests: those that were due in the lead-in, and the others.
type tally struct {
	Row        string
	Lead, Rest map[string]*fate // by what the client saw: "2xx", "503 overloaded not_applied", or one of the words below
	Late       histogram        // how late the generator itself was
	Redials    int              // connections that had to be made anew
	First      string           // the beginning of the first answer that was neither 2xx, 429 nor 503
	Acked      []int            // of a ledger: the numbers of requests that were answered with 2xx
	NotApplied []int            // and of those that were refused as not applied
}

// What a client may see, or miss.
const (
	done    = "2xx"
	unsent  = "unsent"  // all connections were busy for too long
	noReply = "noreply" // the connection broke or nothing came
	late    = "late"    // it was done, but after longer than the patience
)

// fate is the requests that had the same answer; latency counts from when each was due.
type fate struct {
	Count   int64
	Items   int64 // of batches: items that were done
	Latency histogram
}

// The generator waits so long after the last arrival: five times the gateway's own deadline.
const flowGrace = 5 * time.Second

// keptBody is how much of an answer is kept in rows of flows: all of a batch of 1,000.
const keptBody = 512 << 10

func runFlows(o order, rows map[string]*crowd) (report, error) {
	var pacers []*pacer
	for _, f := range o.Flows {
		c := rows[f.Row]
		if c == nil || f.Rate <= 0 || c.parsed != nil {
			return report{}, fmt.Errorf("flow %q needs an open row, a rate, and HTTP/1.1", f.Row)
		}
		pacers = append(pacers, &pacer{crowd: c, late: newHistogram(), lead: o.Lead, patience: o.Patience, ledger: f.Ledger,
			tally: &tally{Row: f.Row, Lead: map[string]*fate{}, Rest: map[string]*fate{}}})
	}
	start := time.Now()
	var all sync.WaitGroup
	for i, p := range pacers {
		all.Go(func() { p.flow(start, poisson(o.Flows[i].Rate, o.Flows[i].Seed), o.Duration) })
	}
	all.Wait()
	r := report{Elapsed: time.Since(start)}
	for _, p := range pacers {
		p.tally.Late = p.late
		r.Flows = append(r.Flows, p.tally)
	}
	return r, nil
}

// poisson returns the times of arrivals by chance, one after the other.
func poisson(rate float64, seed uint64) func() time.Duration {
	r := rand.New(rand.NewPCG(seed, 11))
	at := time.Duration(0)
	return func() time.Duration {
		at += time.Duration(r.ExpFloat64() / rate * float64(time.Second))
		return at
	}
}

// flow runs for d. A request that has waited for a connection longer than the patience is given up, and one that takes longer in all is late.
func (p *pacer) flow(start time.Time, arrivals func() time.Duration, d time.Duration) {
	p.start = start
	end := start.Add(d + flowGrace)
	all := p.join(end, func(one *caller) { p.receiveFlow(one, end) })
	p.send(arrivals, d)
	p.finish()
	all.Wait()
	p.giveUp(0)
}

// giveUp forgets the requests that have waited for longer; p.mu is held, or nobody else is there any more.
func (p *pacer) giveUp(longer time.Duration) {
	now := time.Since(p.start)
	for len(p.backlog) > 0 && now-p.backlog[0] >= longer {
		p.tally.count(unsent, p.backlog[0] < p.lead, now-p.backlog[0], 0)
		p.backlog = p.backlog[1:]
	}
}

// note counts an answer, or the lack of one; p.mu is held.
func (p *pacer) note(number int, due, took time.Duration, a answer, err error) {
	kind, items := noReply, int64(0)
	if err == nil {
		kind, items = kindOf(a), itemsDone(a)
	}
	if kind == done && took > p.patience {
		kind = late
	}
	if p.tally.First == "" && (err != nil || a.Status/100 != 2 && a.Status != 429 && a.Status != 503) {
		p.tally.First = fmt.Sprintf("%v %.300s", err, a.Head)
	}
	p.tally.count(kind, due < p.lead, took, items)
	switch {
	case !p.ledger:
	case err == nil && a.Status/100 == 2:
		p.tally.Acked = append(p.tally.Acked, number)
	case err == nil && bytes.Contains(a.Head, []byte(`"outcome":"not_applied"`)):
		p.tally.NotApplied = append(p.tally.NotApplied, number)
	}
}

func (t *tally) count(kind string, lead bool, took time.Duration, items int64) {
	fates := t.Rest
	if lead {
		fates = t.Lead
	}
	f := fates[kind]
	if f == nil {
		f = &fate{Latency: newHistogram()}
		fates[kind] = f
	}
	f.Count++
	f.Items += items
	f.Latency.record(took)
}

// kindOf names an answer: its status and, of a problem, its code and outcome. A problem that could be tried again must say when.
func kindOf(a answer) string {
	if a.Status/100 == 2 {
		return done
	}
	kind := fmt.Sprintf("%d %s %s", a.Status, member(a.Head, "code"), member(a.Head, "outcome"))
	if (a.Status == 429 || a.Status == 503) && !a.RetryAfter {
		kind += " without Retry-After"
	}
	return kind
}

// member is a text of a JSON object, without decoding the object; "-" if it has none of that name.
func member(body []byte, name string) string {
	_, rest, ok := bytes.Cut(body, []byte(`"`+name+`":"`))
	value, _, ok2 := bytes.Cut(rest, []byte(`"`))
	if !ok || !ok2 {
		return "-"
	}
	return string(value)
}

// itemsDone counts the items of a batch that were done: values of an mget, writes of an mset. Of other answers it is 0.
func itemsDone(a answer) int64 {
	if text, rest, ok := bytes.Cut(a.Head, []byte(`"written":`)); ok && len(text) < 10 {
		n, err := decimal(bytes.TrimRight(rest, "} \n"))
		if err == nil {
			return int64(n)
		}
	}
	count := func(text string) int64 { return int64(bytes.Count(a.Head, []byte(text))) }
	return max(count(`"found":`)-count(`"problem":`), 0) + count(`"outcome":"applied"`) // an item with a problem says found as well
}

// receiveFlow reads a caller's answers until the loop is over. A connection that breaks is made anew, as a client would.
func (p *pacer) receiveFlow(one *caller, end time.Time) {
	for {
		a, err := one.reader.next()
		now := time.Since(p.start)
		p.mu.Lock()
		due := one.due
		if due == pacerIdle {
			p.idle = slices.DeleteFunc(p.idle, func(c *caller) bool { return c == one })
		} else if due >= 0 {
			p.note(one.turn, due, now-due, a, err)
		}
		p.mu.Unlock()
		if due == pacerDone || (err != nil || a.Close) && !p.redial(one, end) || !p.rejoin(one) {
			return
		}
	}
}

// redial gives a caller another connection; false says that it has none and needs none.
func (p *pacer) redial(one *caller, end time.Time) bool {
	p.mu.Lock()
	_ = one.conn.Close()
	one.conn = nil
	over := p.over && len(p.backlog) == 0
	p.mu.Unlock()
	if over {
		return false
	}
	conn, err := net.DialTimeout("tcp", one.addr, 5*time.Second)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tally.Redials++
	one.conn, one.reader = conn, p.crowd.newReader(conn)
	return conn.SetDeadline(end) == nil
}
