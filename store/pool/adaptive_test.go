package pool_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store/pool"
)

// newAdaptive is a pool whose usual latency is 100 ms, and whose ejections last exactly as long as they are set.
func newAdaptive(t testing.TB, members string) *bench {
	t.Helper()
	b := newBench(t, pool.Definition{Policy: pool.AdaptivePolicy, Adaptive: pool.Adaptive{BaselineMS: 100}}).with(members, weight)
	b.draw = 0.5
	return b
}

// at sets the time, in seconds after T0.
func (b *bench) at(seconds float64) { b.now = T0 + int64(math.Round(seconds*second)) }

func (b *bench) report(list ...pool.Report) []pool.Health {
	b.t.Helper()
	got, err := b.Report(testContext(b.t), b.id, b.pool, list)
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

func (b *bench) success(m string, latency float64) pool.Health {
	b.t.Helper()
	return b.report(pool.Report{Member: m, Outcome: pool.Success, LatencyMS: latency})[0]
}

func (b *bench) failure(m string) pool.Health {
	b.t.Helper()
	return b.report(pool.Report{Member: m, Outcome: pool.Failure})[0]
}

// letter is H, D or U.
func letter(h pool.Health) string { return strings.ToUpper(string(h.Condition)[:1]) }

// drawn is who is chosen when u is drawn; not by weight, the mode too.
func (b *bench) drawn(u float64, exclude ...string) string {
	b.t.Helper()
	old := b.draw
	defer func() { b.draw = old }()
	return b.play().Drawn(u, exclude...)
}

func TestHealthIsThatOfAllWhoAreThere(t *testing.T) {
	b := newAdaptive(t, "A B C D")
	b.failure("C")
	b.failure("C")
	b.available("B", false)
	all, err := b.Health(testContext(t), b.id, b.pool)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, h := range all {
		got += h.Member + letter(h)
	}
	b.want("conditions", got, "AHCDDH")
}

func TestEachEjectionIsTwiceAsLong(t *testing.T) {
	b := newAdaptive(t, "A B C")
	b.pool.Definition.Adaptive.EjectMaxMS = 12_000
	for range 5 {
		b.failure("A")
	}
	for _, seconds := range []float64{5, 10, 12, 12} {
		start := float64(b.now-T0) / second
		b.at(start + seconds - 0.001)
		b.want(fmt.Sprint("just before ", seconds, " s"), b.drawn(0), "B")
		b.at(start + seconds)
		b.want(fmt.Sprint("after ", seconds, " s"), b.drawn(0), "Atrial")
		b.failure("A")
	}
	b.draw = 0 // a tenth less
	b.at(1000)
	b.want("much later", b.drawn(0), "Atrial")
	b.failure("A")
	b.at(1010.8)
	b.want("a tenth earlier", b.drawn(0), "Atrial")
}

func TestWhatCountsBesideLatencyAndErrors(t *testing.T) {
	b := newAdaptive(t, "A B C")
	last := func(r pool.Report) (h pool.Health) {
		for range 10 {
			h = b.report(r)[0]
		}
		return h
	}
	if h := last(pool.Report{Member: "A", Outcome: pool.Success, LatencyMS: 100, Saturation: ptr(0.9)}); math.Abs(h.Factor-.5) > 1e-9 {
		t.Errorf("saturated: %+v", h)
	}
	if h := last(pool.Report{Member: "B", Outcome: pool.Success, LatencyMS: 100, Saturation: ptr(0.8)}); math.Abs(h.Factor-1) > 1e-9 {
		t.Errorf("busy: %+v", h)
	}
	if h := b.report(pool.Report{Member: "C", Outcome: pool.TimedOut, LatencyMS: 700})[0]; math.Abs(h.LatencyMS-200) > 1e-9 {
		t.Errorf("a timeout: %+v", h)
	}
	if h := b.report(pool.Report{Member: "C", Outcome: pool.Failure, LatencyMS: 0})[0]; math.Abs(h.LatencyMS-200) > 1e-9 {
		t.Errorf("a failure: %+v", h)
	}
	for _, outcome := range []pool.Experience{pool.Success, pool.TimedOut} {
		if h := b.report(pool.Report{Member: "C", Outcome: outcome})[0]; math.Abs(h.LatencyMS-200) > 1e-9 {
			t.Errorf("a %s that does not say how long: %+v", outcome, h)
		}
	}
	b.now += 300 * second
	if h := b.success("A", 100); h.Factor < .95 {
		t.Errorf("after a silence: %+v", h)
	}
}

func TestReportsOnMembersThatLeft(t *testing.T) {
	b := newAdaptive(t, "A B")
	for range 5 {
		b.failure("A")
	}
	if _, err := b.TakeAway(testContext(t), b.id, b.pool, "A", false); err != nil {
		t.Fatal(err)
	}
	b.available("B", false)
	got := b.report(pool.Report{Member: "A", Outcome: pool.Success}, pool.Report{Member: "B", Outcome: pool.Success}, pool.Report{Member: "never", Outcome: pool.Success})
	for _, h := range got {
		if h.Condition != pool.Unknown || h.Changed {
			t.Errorf("got %+v", h)
		}
	}
	b.put(pool.Member{Member: "A"})
	b.want("it begins anew", letter(b.success("A", 100)), "H")
}

func TestWeightsCountWithHealth(t *testing.T) {
	b := newAdaptive(t, "A3 B1 C0")
	b.want("by weight", b.drawn(0)+b.drawn(.74)+b.drawn(.76)+b.drawn(.999), "AABB")
	b.want("without A and B", b.drawn(0, "A", "B"), "no_weight")
	b.define(pool.Definition{Policy: pool.RoundRobin})
	for range 5 {
		b.failure("A")
	}
	b.want("another policy", b.picks(3), "A B C")
}

// What is made of the reports is used for 200 ms, and by choices with exclusions not at all.
func TestWeightsThatReportsChangeAreSeenSoon(t *testing.T) {
	b := newAdaptive(t, "A B")
	b.want("at first", b.drawn(.4)+b.drawn(.6), "AB")
	for range 5 {
		b.success("A", 200) // its factor is 0.5 then, and it is healthy
	}
	b.want("at once", b.drawn(.4)+b.drawn(.6), "AB")
	b.now += second/5 - 1
	b.want("a moment later", b.drawn(.4), "A")
	b.now++
	b.want("after 200 ms", b.drawn(.3)+b.drawn(.4), "AB")
	b.now += 1000 * second
	b.want("much later", b.drawn(.3)+b.drawn(.49), "AA")
	b.now -= 500 * second
	b.want("when the clock was set back", b.drawn(.49)+b.drawn(.51), "AB")
}

func TestManyAdaptiveMembers(t *testing.T) {
	b := newAdaptive(t, "")
	b.put(numbered("m", 700)...)
	for _, i := range []int{0, 1, 350, 698, 699} {
		want := fmt.Sprintf("m%04d", i)
		u := (float64(i) + .5) / 700
		b.want("drawn", b.drawn(u)+" "+b.drawn(u), want+" "+want)
	}
	b.define(pool.Definition{Policy: pool.WeightedRandom})
	for _, i := range []int{0, 1, 350, 698, 699} {
		b.want("weighted", b.drawn((float64(i)+.5)/700), fmt.Sprintf("m%04d", i))
	}
}

func TestTwoFailuresEjectWhereThereAreFewCalls(t *testing.T) {
	for _, row := range []struct {
		apart float64
		want  string
	}{{4.999, "D"}, {5, "U"}} {
		b := newAdaptive(t, "A B C")
		b.failure("A")
		b.at(row.apart)
		b.want(fmt.Sprint(row.apart, " s apart"), letter(b.failure("A")), row.want)
	}
}

func TestSuccessesWhileEjectedAreNoTrials(t *testing.T) {
	b := newAdaptive(t, "A B C")
	for range 5 {
		b.failure("A")
	}
	got := ""
	for _, s := range []float64{1, 2, 3, 5, 6, 7} {
		b.at(s)
		got += letter(b.success("A", 90))
	}
	b.want("states", got, "UUUUUD")
}

func TestASlowMemberMustBeWellBelowTheThresholdToRecover(t *testing.T) {
	b := newAdaptive(t, "A B C")
	second := 0.0
	reports := func(n int, latency float64) (states string) {
		for range n {
			b.at(second)
			states += letter(b.success("A", latency))
			second++
		}
		return states
	}
	if got := reports(30, 400); got[29] != 'D' {
		t.Fatalf("slow: %s", got)
	}
	if got := reports(150, 190); strings.Contains(got[100:], "H") {
		t.Errorf("still slow: %s", got)
	}
	if got := reports(60, 100); got[59] != 'H' {
		t.Errorf("fast again: %s", got)
	}
}

func TestWhoIsEjectedDoesNotSayWhatIsUsual(t *testing.T) {
	b := newAdaptive(t, "A B C")
	b.pool.Definition.Adaptive.BaselineMS = 0
	for _, m := range []string{"B", "C"} {
		for range 5 {
			b.success(m, 10)
		}
		for range 5 {
			b.failure(m)
		}
	}
	b.success("A", 300)
	if h := b.success("A", 300); h.Factor != 1 {
		t.Errorf("got %+v", h)
	}
}

// A member that passes its trials and fails again before it is healthy stays away longer, as one whose trial fails.
func TestWhoIsEjectedAgainStaysAwayLonger(t *testing.T) {
	b := newAdaptive(t, "A B C")
	for _, seconds := range []float64{5, 10, 20} {
		for range 5 {
			b.failure("A")
		}
		start := float64(b.now-T0) / second
		b.at(start + seconds - 0.001)
		b.want(fmt.Sprint("just before ", seconds, " s"), b.drawn(0), "B")
		b.at(start + seconds)
		b.want(fmt.Sprint("after ", seconds, " s"), b.drawn(0), "Atrial")
		for range 3 {
			b.success("A", 100)
		}
	}
	for range 31 {
		b.now += second
		b.success("A", 100)
	}
	for range 5 {
		b.failure("A")
	}
	b.now += 5 * second
	b.want("when it was healthy meanwhile", b.drawn(0), "Atrial")
}
