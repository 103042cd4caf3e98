package faults

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// outcome is what a client knows of its write.
type outcome int

const (
	acked      outcome = iota // 2xx
	applied                   // a 5xx that says applied: done, but not as durably as was asked for
	notApplied                // refused, or a 5xx that says not_applied
	unknown                   // a 5xx that says unknown, or no answer
	outcomes
)

func (o outcome) String() string { return [...]string{"acked", "applied", "not_applied", "unknown"}[o] }

// ledger holds what clients were told of their writes, to be compared with what is stored. Safe for concurrent use.
type ledger struct {
	mu       sync.Mutex
	counters map[string]*tally
	lists    map[string][]entry            // appended to a key, each client's in its order
	values   map[string]map[string]outcome // set, by key: each value once; what was said of it
	newest   map[string]string             // the last value set by the key's one writer of which it was told that it is there
	told     [outcomes]int
	silent   []string // 5xx answers to a write that say no outcome
	crossed  []string // a reply that is not the key's
}

type tally [outcomes]int

// entry is one element that was appended: its text is "client-number;" and unique.
type entry struct {
	client, number int
	told           outcome
}

func (e entry) text() string { return fmt.Sprintf("%d-%d;", e.client, e.number) }

func newLedger() *ledger {
	return &ledger{counters: map[string]*tally{}, lists: map[string][]entry{}, values: map[string]map[string]outcome{}, newest: map[string]string{}}
}

// added notes a +1 on a counter.
func (l *ledger) added(key string, o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counters[key]
	if c == nil {
		c = &tally{}
		l.counters[key] = c
	}
	c[o]++
	l.told[o]++
}

// appended notes an element of a list.
func (l *ledger) appended(key string, client, number int, o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists[key] = append(l.lists[key], entry{client, number, o})
	l.told[o]++
}

// set notes a value of a key that has one writer, who waits for each answer.
func (l *ledger) set(key, value string, o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.values[key] == nil {
		l.values[key] = map[string]outcome{}
	}
	l.values[key][value] = o
	if o == acked {
		l.newest[key] = value
	}
	l.told[o]++
}

// silence notes a 5xx to a write without an outcome.
func (l *ledger) silence(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = append(l.silent, what)
}

// cross notes a reply with the value of another key.
func (l *ledger) cross(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crossed = append(l.crossed, what)
}

// verdict is what the comparison has found. Lost are acked writes that are not there; double is more than was asked for; wrong is a write
// that is there though its client was told not_applied; disorder is an element behind a later one of the same client, both acked.
type verdict struct {
	acked, applied, notApplied, unknown int
	lost, double, wrong, disorder       int
	silent, crossed                     int
	unknownApplied                      int      // of the unknown ones, how many are there
	keys                                int      // compared
	examples                            []string // of what should not be
}

// maxExamples is enough to see what went wrong; the counts say how often.
const maxExamples = 20

func (v *verdict) note(n *int, by int, format string, args ...any) {
	*n += by
	if len(v.examples) < maxExamples {
		v.examples = append(v.examples, fmt.Sprintf(format, args...))
	}
}

// reader returns the stored value of a caller's key; "" for one that does not exist.
type reader func(key string) (string, error)

// stored reads from Redis itself what the gateway's app has stored.
func stored(ctx context.Context, c *redis.ClusterClient) reader {
	return func(key string) (string, error) {
		v, err := c.Get(ctx, namespace+":"+key).Result()
		if err == redis.Nil {
			return "", nil
		}
		return v, err
	}
}

// compare reads every key once and counts. Call it when no write is under way any more.
func (l *ledger) compare(read reader) (verdict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := verdict{acked: l.told[acked], applied: l.told[applied], notApplied: l.told[notApplied], unknown: l.told[unknown], silent: len(l.silent), crossed: len(l.crossed)}
	v.examples = append(v.examples, l.silent[:min(3, len(l.silent))]...)
	v.examples = append(v.examples, l.crossed[:min(3, len(l.crossed))]...)
	for key, c := range l.counters {
		text, err := read(key)
		if err != nil {
			return v, err
		}
		v.counter(key, *c, text)
	}
	for key, entries := range l.lists {
		text, err := read(key)
		if err != nil {
			return v, err
		}
		v.list(key, entries, text)
	}
	for key, said := range l.values {
		text, err := read(key)
		if err != nil {
			return v, err
		}
		v.value(key, said, l.newest[key], text)
	}
	return v, nil
}

// counter wants acked ≤ value ≤ acked + applied + unknown: one that was applied only may be lost in a failover. Beyond that a double cannot
// be told from a wrong label; there must be neither.
func (v *verdict) counter(key string, c tally, text string) {
	v.keys++
	value := 0
	if text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			v.note(&v.crossed, 1, "counter %s holds %q", key, text)
			return
		}
		value = n
	}
	most := c[acked] + c[applied] + c[unknown]
	switch {
	case value < c[acked]:
		v.note(&v.lost, c[acked]-value, "counter %s is %d after %d acked", key, value, c[acked])
	case value > most:
		v.note(&v.double, value-most, "counter %s is %d after %d acked, %d applied and %d unknown", key, value, c[acked], c[applied], c[unknown])
	default:
		v.unknownApplied += max(0, value-c[acked]-c[applied])
	}
}

// list wants every acked element exactly once, an unknown one at most once, and none of the others.
func (v *verdict) list(key string, entries []entry, text string) {
	v.keys++
	count, place := map[string]int{}, map[string]int{}
	for i, element := range strings.SplitAfter(text, ";") {
		if element != "" {
			count[element]++
			place[element] = i
		}
	}
	last := map[int]entry{} // by client, the last acked one that is there
	for _, e := range entries {
		n := count[e.text()]
		delete(count, e.text())
		if n > 1 {
			v.note(&v.double, n-1, "%s has %s %d times (%s)", key, e.text(), n, e.told)
		}
		switch {
		case e.told == acked && n == 0:
			v.note(&v.lost, 1, "%s lacks %s", key, e.text())
		case e.told == notApplied && n > 0:
			v.note(&v.wrong, 1, "%s has %s, not_applied", key, e.text())
		case e.told == unknown && n > 0:
			v.unknownApplied++
		case e.told == acked:
			if before, ok := last[e.client]; ok && place[before.text()] > place[e.text()] {
				v.note(&v.disorder, 1, "%s has %s before %s", key, e.text(), before.text())
			}
			last[e.client] = e
		}
	}
	for element := range count {
		v.note(&v.crossed, 1, "%s has %q, which nobody appended", key, element)
	}
}

// value wants the newest acked value, or one of unknown outcome: such a one may arrive late, after newer ones, when the network held it.
func (v *verdict) value(key string, said map[string]outcome, newest, text string) {
	v.keys++
	switch told, ours := said[text]; {
	case text == newest:
	case text == "":
		v.note(&v.lost, 1, "%s is gone, %s was acked", key, newest)
	case !ours:
		v.note(&v.crossed, 1, "%s holds %q, which nobody set", key, text)
	case told == notApplied:
		v.note(&v.wrong, 1, "%s holds %s, not_applied", key, text)
	case told == acked:
		v.note(&v.lost, 1, "%s holds %s, %s was acked later", key, text, newest)
	default:
		v.unknownApplied++
	}
}

// counted is the verdict as the table has it.
func (v verdict) counted() string {
	s := fmt.Sprintf("%d acked, %d not applied, %d unknown: **%d lost, %d double, %d wrong labels**", v.acked, v.notApplied, v.unknown, v.lost, v.double, v.wrong+v.silent)
	if v.applied > 0 {
		s += fmt.Sprintf("; %d applied only", v.applied)
	}
	if v.disorder > 0 {
		s += fmt.Sprintf(", %d out of order", v.disorder)
	}
	if v.crossed > 0 {
		s += fmt.Sprintf(", %d crossed", v.crossed)
	}
	return s
}
