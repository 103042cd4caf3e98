package pool

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/slotgate/slotgate/store/packed"
)

// Bounds of a schedule.
const (
	// mostTurns of one: 128 KB, written when members or their weights have changed.
	mostTurns = 1 << 16
	// mostLooks is how many members are looked at for one by smooth, some 5 ms: of 1,000 members for 4,194 turns. It need not be a whole
	// period, which may have a million: it ends, and the next one begins where it has ended.
	mostLooks = 1 << 22
	// leastTurns of one are for a pool that has just changed. One that lasts gets four times as many each time.
	leastTurns = 256
)

// mark is, less its place when the schedule was made, what stands for the credit of a member that has it in the schedule. A credit of a
// member's own is far from that.
const mark = -1 << 52

// turns is a pool's state of weighted round robin, as the scripts keep it; see keys and scripts/schedule.lua.
type turns struct {
	place, level int64 // of classic, when the schedule begins
	large        bool
	epoch        int64
	turn, length int64
	plan         int64
	weights      []int64
	credits      []int64 // or marks
	sch          string
}

func (t *turns) smooth() bool  { return t.plan == 1 || t.plan == 2 }
func (t *turns) classic() bool { return t.plan == 3 || t.plan == 4 }

// readTurns reads st, w and sch.
func readTurns(st, w, sch string) (t turns, err error) {
	q := packed.Reader{Rest: st}
	q.Bytes(16)
	t.place, t.level = q.Number(), q.Number()
	q.Bytes(40)
	t.large, t.epoch, t.turn, t.length, t.plan = q.Number() == 1, q.Number(), q.Number(), q.Number(), q.Number()
	for p := (packed.Reader{Rest: w}); p.Rest != ""; {
		w, c := p.Number(), p.Number()
		if p.Err != nil || w < 0 || w > MaxWeight {
			return t, badReply()
		}
		t.weights, t.credits = append(t.weights, w), append(t.credits, c)
	}
	if q.Err != nil || min(t.turn, t.place, t.level) < 0 || len(t.weights) > 2*MaxMembers {
		return t, badReply()
	}
	t.sch = sch
	return t, nil
}

// good says whether every allocation without exclusions can be served.
func (t *turns) good(v Variant) bool {
	again := map[Variant]int64{Smooth: 2, Classic: 4}[v]
	if t.length > 0 && int64(len(t.sch)) < 2*t.length {
		return false // Redis has lost it
	}
	return t.length != 0 && (t.plan == again || t.plan == again-1 && t.turn+MaxCount <= t.length)
}

// settle makes the state what it would be if scripts had chosen without a schedule.
func (t *turns) settle() {
	if t.smooth() {
		t.settleCredits()
	}
	if t.classic() && t.length > 0 {
		served, rest := t.past()
		lead := rest.Number()
		c := classic{weights: t.weights, place: t.place, level: t.level}
		for range max(int64(len(served)/2)-lead, 0) {
			c.next(nil)
		}
		t.place, t.level = c.place, c.level
	}
	t.plan, t.length, t.turn, t.sch = 0, 0, 0, ""
}

// past are the turns that were served, and what follows all turns. Of a text that is no schedule there are none.
func (t *turns) past() (served string, rest packed.Reader) {
	if len(t.sch) < 8 {
		return "", rest
	}
	end := packed.Reader{Rest: t.sch[len(t.sch)-8:]}
	size := 2 * end.Number()
	if size < 0 || size > int64(len(t.sch)-8) {
		return "", rest
	}
	return t.sch[:min(2*t.turn, size)], packed.Reader{Rest: t.sch[size : len(t.sch)-8]}
}

// settleCredits computes the credits of those that have them in the schedule: each turn gave to each its weight, and took the sum from one.
func (t *turns) settleCredits() {
	served, rest := t.past()
	var weights, credits []int64
	sum := int64(0)
	for rest.Rest != "" {
		weights, credits = append(weights, rest.Number()), append(credits, rest.Number())
		sum += weights[len(weights)-1]
	}
	counts := make([]int64, len(weights))
	for i := 0; i < len(served); i += 2 {
		if m := int(binary.LittleEndian.Uint16([]byte(served[i : i+2]))); m < len(counts) {
			counts[m]++
		}
	}
	for i, c := range t.credits {
		if c > mark/2 {
			continue
		}
		t.credits[i] = 0
		if m := mark - c; m >= 0 && m < int64(len(weights)) {
			t.credits[i] = credits[m] + int64(len(served)/2)*weights[m] - counts[m]*sum
		}
	}
}

// wanted is how many turns the next schedule is to have: as many as lasted for a while.
func (t *turns) wanted() int64 {
	n := 2 * t.turn
	if t.length > 0 && n > t.length {
		n = 4 * t.length
	}
	return min(max(n, leastTurns), t.most())
}

// most is how many turns it may have.
func (t *turns) most() int64 {
	return min(mostTurns, mostLooks/int64(max(len(t.weights), 1)))
}

// schedule computes the next turns. The first lead of them are of those that skip does not have.
func (t *turns) schedule(v Variant, skip map[int]bool, lead int) {
	wanted := t.wanted()
	t.settle()
	var period, divisor, heavy int64
	for _, w := range t.weights {
		period, divisor, heavy = period+w, gcd(divisor, w), max(heavy, w)
	}
	if heavy == 0 {
		t.length = -1
		t.plan = map[Variant]int64{Smooth: 2, Classic: 4}[v]
		if v == Smooth {
			t.mark()
		}
		return
	}
	if period /= divisor; lead == 0 && period > wanted && period <= min(4*wanted, t.most()) {
		wanted = period // it ends where it began, and is good as long as nothing changes
	}
	if v == Classic {
		t.scheduleClassic(skip, lead, wanted, period)
		return
	}
	t.scheduleSmooth(skip, lead, wanted, period)
}

func (t *turns) scheduleSmooth(skip map[int]bool, lead int, wanted, period int64) {
	s := newSmooth(t.weights, t.credits)
	start := slices.Clone(s.credits)
	b := make([]byte, 0, 2*wanted)
	t.plan = 1
	for n := int64(0); n < wanted; n++ {
		var one int
		if n < int64(lead) {
			one = s.next(skip)
		} else {
			one = s.next(nil)
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(one)) //nolint:gosec // places are below 2 * MaxMembers
		if n+1 == period && lead == 0 && slices.Equal(start, s.credits) {
			t.plan = 2
			break
		}
	}
	t.length = int64(len(b) / 2)
	for i := range t.weights {
		b = packed.Append(b, t.weights[i], t.credits[i])
	}
	t.sch = string(packed.Append(b, t.length))
	t.mark()
}

// mark says in the place of credits that they are in the schedule.
func (t *turns) mark() {
	if t.sch == "" { // of a pool in which nobody has a weight it says nothing else
		var b []byte
		for i := range t.weights {
			b = packed.Append(b, t.weights[i], t.credits[i])
		}
		t.sch = string(packed.Append(b, 0))
	}
	for i := range t.credits {
		t.credits[i] = mark - int64(i)
	}
}

func (t *turns) scheduleClassic(skip map[int]bool, lead int, wanted, period int64) {
	c := classic{weights: t.weights, place: t.place, level: t.level}
	b := make([]byte, 0, 2*wanted)
	t.plan = 3
	for n := int64(0); n < wanted; n++ {
		if n < int64(lead) {
			b = binary.LittleEndian.AppendUint16(b, uint16(c.next(skip))) //nolint:gosec // as above
			t.place, t.level = c.place, c.level
			continue
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(c.next(nil))) //nolint:gosec // as above
		if n+1 == period && lead == 0 {
			t.plan = 4
			break
		}
	}
	t.length = int64(len(b) / 2)
	t.sch = string(packed.Append(b, int64(lead), t.length))
}

// packed is w.
func (t *turns) packed() []byte {
	b := make([]byte, 0, 16*len(t.weights))
	for i := range t.weights {
		b = packed.Append(b, t.weights[i], t.credits[i])
	}
	return b
}

// smooth is what smooth.lua does, for those that have a weight.
type smooth struct {
	places           []int
	weights, credits []int64
	sum              int64
}

func newSmooth(weights, credits []int64) *smooth {
	s := &smooth{}
	for i, w := range weights {
		if w > 0 {
			s.places, s.weights, s.credits, s.sum = append(s.places, i), append(s.weights, w), append(s.credits, credits[i]), s.sum+w
		}
	}
	return s
}

// next is the place of who is next of those that are not skipped. Of a turn in which some are, all get their weight: they stay next.
func (s *smooth) next(skip map[int]bool) int {
	best, top := 0, int64(math.MinInt64)
	if skip == nil {
		weights := s.weights[:len(s.credits)]
		for i := range s.credits {
			c := s.credits[i] + weights[i]
			s.credits[i] = c
			if c > top {
				best, top = i, c
			}
		}
	} else {
		for i := range s.credits {
			s.credits[i] += s.weights[i]
			if c := s.credits[i]; c > top && !skip[s.places[i]] {
				best, top = i, c
			}
		}
	}
	s.credits[best] -= s.sum
	return s.places[best]
}

// classic is what classic.lua does.
type classic struct {
	weights       []int64
	place, level  int64
	step, highest int64 // of all, 0 = not computed
}

// next is the place of who is next of those that are not skipped, one at least of which has a weight.
func (c *classic) next(skip map[int]bool) int {
	step, highest := c.step, c.highest
	if skip != nil || highest == 0 {
		step, highest = 0, 0
		for i, w := range c.weights {
			if !skip[i] {
				step, highest = gcd(step, w), max(highest, w)
			}
		}
		if skip == nil {
			c.step, c.highest = step, highest
		}
	}
	c.level = min(c.level, highest)
	for {
		if c.place = c.place%int64(len(c.weights)) + 1; c.place == 1 {
			if c.level -= step; c.level <= 0 {
				c.level = highest
			}
		}
		if i := int(c.place - 1); c.weights[i] >= c.level && !skip[i] {
			return i
		}
	}
}

func gcd(a, b int64) int64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
