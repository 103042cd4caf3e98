package adaptive_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/adaptive"
)

// fixed is a limiter whose limit stays.
func fixed(places int) *adaptive.Limiter {
	return adaptive.New(adaptive.Settings{Initial: places, Min: places, Max: places})
}

// fill takes places until the first refusal.
func fill(l *adaptive.Limiter, r adaptive.Request) (got []adaptive.Place) {
	for {
		p, reason := l.Acquire(r)
		if reason != adaptive.Admitted {
			return got
		}
		got = append(got, p)
	}
}

// window lets one pass in which everything was well.
func pass(l *adaptive.Limiter, now *time.Time) {
	for range 20 {
		l.Observe(time.Millisecond, 1)
	}
	*now = now.Add(50 * time.Millisecond)
	l.Tick(*now)
}

func TestEachClassFillsItsPart(t *testing.T) {
	l := fixed(100)
	for _, step := range []struct {
		class adaptive.Class
		gets  int
	}{
		{adaptive.Bulk, 60},
		{adaptive.Bulk, 0},
		{adaptive.Normal, 25},
		{adaptive.Normal, 0},
		{adaptive.Critical, 15},
		{adaptive.Critical, 0},
	} {
		if got := len(fill(l, adaptive.Request{App: "a", Class: step.class})); got != step.gets {
			t.Errorf("%v gets %d more places, not %d", step.class, got, step.gets)
		}
	}
	if l.InFlight() != 100 {
		t.Errorf("%d places are taken", l.InFlight())
	}
}

func TestOfFewPlacesSomeStayForWhatIsMoreImportant(t *testing.T) {
	for class, want := range map[adaptive.Class]int{adaptive.Critical: 8, adaptive.Normal: 5, adaptive.Bulk: 3} {
		if got := len(fill(fixed(8), adaptive.Request{App: "a", Class: class})); got != want {
			t.Errorf("%v gets %d of 8 places, not %d", class, got, want)
		}
	}
}

func TestPlacesComeBack(t *testing.T) {
	l := fixed(50)
	for _, p := range fill(l, adaptive.Request{App: "a", Class: adaptive.Critical, Weight: 3}) {
		p.Release(false)
	}
	adaptive.Place{}.Release(true) // nothing
	if l.InFlight() != 0 {
		t.Errorf("%d places are taken", l.InFlight())
	}
}

func TestAHeavyRequest(t *testing.T) {
	heavy := adaptive.Request{App: "a", Class: adaptive.Critical, Weight: 30}
	l := fixed(20)
	light := fill(l, adaptive.Request{App: "a", Class: adaptive.Critical})
	if _, reason := l.Acquire(heavy); reason != adaptive.Full {
		t.Errorf("with no place free: %v", reason)
	}
	for _, p := range light[:9] {
		p.Release(false)
	}
	if _, reason := l.Acquire(heavy); reason != adaptive.Full {
		t.Errorf("with nine of twenty free: %v", reason)
	}
	light[9].Release(false)
	p, reason := l.Acquire(heavy)
	if reason != adaptive.Admitted || l.InFlight() != 40 {
		t.Errorf("with half of the places free: %v, %d are taken", reason, l.InFlight())
	}
	p.Release(false)
	if l.InFlight() != 10 {
		t.Errorf("%d places are taken", l.InFlight())
	}
}

func TestTheWeightOfABatch(t *testing.T) {
	for commands, want := range map[int]int{0: 1, 1: 1, 10: 1, 19: 1, 20: 2, 100: 10, 5000: 500} {
		if got := adaptive.WeightOf(commands); got != want {
			t.Errorf("%d commands weigh %d, not %d", commands, got, want)
		}
	}
}

func TestWhoseDeadlineIsTooNearIsRefused(t *testing.T) {
	now := time.Unix(1000, 0)
	l := adaptive.New(adaptive.Settings{Initial: 100, Min: 100, Max: 100, Clock: func() time.Time { return now }})
	at := now
	l.Tick(at)
	for range 5 { // 50 answers in 50 ms, so a place is 1 ms
		for range 50 {
			p, _ := l.Acquire(adaptive.Request{App: "a", Class: adaptive.Critical})
			p.Release(false)
			l.Observe(50*time.Millisecond, 1)
		}
		at = at.Add(50 * time.Millisecond)
		l.Tick(at)
	}
	for range 60 {
		l.Acquire(adaptive.Request{App: "a", Class: adaptive.Critical})
	}
	for left, want := range map[time.Duration]adaptive.Reason{
		50 * time.Millisecond: adaptive.Hopeless,
		-time.Second:          adaptive.Hopeless,
		70 * time.Millisecond: adaptive.Admitted,
	} {
		p, reason := l.Acquire(adaptive.Request{App: "a", Class: adaptive.Critical, Deadline: now.Add(left)})
		if reason != want {
			t.Errorf("60 ms of work are under way, %v are left: %v, not %v", left, reason, want)
		}
		p.Release(false)
	}
	if _, reason := l.Acquire(adaptive.Request{App: "a", Class: adaptive.Critical}); reason != adaptive.Admitted {
		t.Errorf("without a deadline: %v", reason)
	}
}

// A node that is slow has few of its places taken when they are already too many.
func TestWhoseDeadlineIsTooNearIsRefusedAlsoWherePlacesAreFree(t *testing.T) {
	now := time.Unix(1000, 0)
	l := adaptive.New(adaptive.Settings{Initial: 1000, Min: 1000, Max: 1000, Clock: func() time.Time { return now }})
	l.Tick(now)
	for i := range 5 { // 20 answers in 200 ms, so a place is 10 ms
		l.Observe(50*time.Millisecond, 20)
		l.Tick(now.Add(time.Duration(i+1) * 200 * time.Millisecond))
	}
	for range 80 {
		l.Acquire(adaptive.Request{App: "a"})
	}
	for left, want := range map[time.Duration]adaptive.Reason{700 * time.Millisecond: adaptive.Hopeless, 900 * time.Millisecond: adaptive.Admitted} {
		p, reason := l.Acquire(adaptive.Request{App: "a", Deadline: now.Add(left)})
		if reason != want {
			t.Errorf("800 ms of work are under way, %v are left: %v, not %v", left, reason, want)
		}
		p.Release(false)
	}
}

func TestAFloodOfOneAppLeavesTheOthersTheirShare(t *testing.T) {
	l, now := fixed(100), time.Unix(1000, 0)
	flood := adaptive.Request{App: "flood"}
	fill(l, flood)
	l.Acquire(adaptive.Request{App: "quiet"}) // so that there are two
	pass(l, &now)
	if got := len(fill(l, adaptive.Request{App: "quiet"})); got < 40 {
		t.Errorf("the other one gets %d of 85 places", got)
	}
	if _, reason := l.Acquire(flood); reason != adaptive.Full {
		t.Errorf("more of the flood: %v", reason)
	}
}

func TestAFloodOfWhatIsLessImportantTakesNothingAway(t *testing.T) {
	l, now := fixed(100), time.Unix(1000, 0)
	for _, app := range []string{"a", "b", "a", "b"} {
		fill(l, adaptive.Request{App: app, Class: adaptive.Bulk})
		pass(l, &now)
	}
	if l.InFlight() <= 60 {
		t.Fatalf("%d places are taken; two apps that share fairly take more than their class has", l.InFlight())
	}
	if got := len(fill(l, adaptive.Request{App: "c", Class: adaptive.Normal})); got != 25 {
		t.Errorf("what is normal gets %d places, not the 25 between 60 and 85", got)
	}
	if got := len(fill(l, adaptive.Request{App: "c", Class: adaptive.Critical})); got != 15 {
		t.Errorf("what is critical gets %d places, not the 15 between 85 and 100", got)
	}
}

// The promise of package adaptive about apps, in any order of requests: with the same apps all the time, one that stays within its share
// of its class is never refused, and no class takes more than twice its places.
func TestFairSharingHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(8, 200).Draw(t, "limit")
		apps := rapid.IntRange(2, 12).Draw(t, "apps")
		class := rapid.SampledFrom(adaptive.Classes()).Draw(t, "class")
		l, now := fixed(limit), time.Unix(1000, 0)
		places := float64(len(fill(fixed(limit), adaptive.Request{App: "a", Class: class})) - 1) // a part of a place is one
		for range 2 {                                                                            // everybody is known before the first is counted
			var known []adaptive.Place
			for app := range apps {
				known = append(known, fill(l, adaptive.Request{App: fmt.Sprint(app), Class: class})...)
			}
			pass(l, &now)
			for _, p := range known {
				p.Release(false)
			}
		}
		held := make([][]adaptive.Place, apps)
		total := 0
		for range rapid.IntRange(1, 600).Draw(t, "steps") {
			app := rapid.IntRange(0, apps-1).Draw(t, "app")
			if rapid.IntRange(0, 2).Draw(t, "give back") == 0 && len(held[app]) > 0 {
				held[app][0].Release(false)
				held[app] = held[app][1:]
				total--
				continue
			}
			p, reason := l.Acquire(adaptive.Request{App: fmt.Sprint(app), Class: class})
			if reason == adaptive.Admitted {
				held[app] = append(held[app], p)
				total++
			} else if float64((len(held[app])+1)*apps) <= places {
				t.Fatalf("app %d holds %d of %.1f places, which %d apps share, and was refused", app, len(held[app]), places, apps)
			}
			if float64(total) > 2*places+2 {
				t.Fatalf("%d places are taken, of %.1f", total, places)
			}
		}
		for _, own := range held {
			for _, p := range own {
				p.Release(false)
			}
		}
		if l.InFlight() != 0 {
			t.Fatalf("%d places are taken in the end", l.InFlight())
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	l := adaptive.New(adaptive.Settings{Initial: 16, Min: 16, Max: 16})
	stop := make(chan struct{})
	var ticks, wg sync.WaitGroup
	ticks.Go(func() {
		for now := time.Unix(0, 0); ; now = now.Add(10 * time.Millisecond) {
			select {
			case <-stop:
				return
			default:
				l.Tick(now)
			}
		}
	})
	for w := range 32 {
		wg.Go(func() {
			r := adaptive.Request{App: fmt.Sprint(w % 5), Class: adaptive.Classes()[w%3], Weight: 1 + w%4}
			for range 5000 {
				if p, reason := l.Acquire(r); reason == adaptive.Admitted {
					l.Observe(time.Millisecond, 1)
					p.Release(w%7 == 0)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	ticks.Wait()
	if l.InFlight() != 0 {
		t.Errorf("%d places are taken", l.InFlight())
	}
}

func TestClasses(t *testing.T) {
	for priority, want := range map[acl.Priority]adaptive.Class{
		"": adaptive.Normal, acl.Normal: adaptive.Normal, acl.Critical: adaptive.Critical, acl.Bulk: adaptive.Bulk, "of tomorrow": adaptive.Normal,
	} {
		if got := adaptive.ClassOf(priority); got != want {
			t.Errorf("%q is %v", priority, got)
		}
	}
	for _, c := range adaptive.Classes() {
		if got, ok := adaptive.ParseClass(c.String()); !ok || got != c {
			t.Errorf("%v reads as %v", c, got)
		}
	}
	if _, ok := adaptive.ParseClass("Bulk"); ok {
		t.Error("Bulk is read")
	}
	if adaptive.Critical.Lower(adaptive.Bulk) != adaptive.Bulk || adaptive.Bulk.Lower(adaptive.Critical) != adaptive.Bulk {
		t.Error("a request may lower its class, not raise it")
	}
	if adaptive.Critical.Next() != adaptive.Normal || adaptive.Normal.Next() != adaptive.Bulk || adaptive.Bulk.Next() != adaptive.Bulk {
		t.Error("classes are one below the other")
	}
}
