package faults

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/slotgate/slotgate/acl"
)

// wallClock is a clock whose time of day can be set while its monotonic reading goes on, as NTP or an operator does to that of a machine.
type wallClock struct{ step atomic.Int64 } // seconds off

func (c *wallClock) now() time.Time {
	t := time.Now()
	// Time.Add moves both readings. The seconds of the time of day are bits 30 to 62 of the first word (package time, Time.wall);
	// TestTheWallClockStepsAlone holds that.
	*(*uint64)(unsafe.Pointer(&t)) += uint64(c.step.Load()) << 30
	return t
}

func (c *wallClock) set(off time.Duration) { c.step.Store(int64(off / time.Second)) }

func TestTheWallClockStepsAlone(t *testing.T) {
	var c wallClock
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		c.set(0)
		before := c.now()
		c.set(step)
		after := c.now()
		wall := after.Round(0).Sub(before.Round(0)) // without the monotonic readings
		if d := after.Sub(before); d < 0 || d > time.Minute || wall < step || wall > step+time.Minute {
			t.Errorf("%v: the monotonic reading went on by %v, the time of day by %v", step, d, wall)
		}
	}
}

const (
	clockBurst = 20
	clockRate  = 20 // a second
)

// TestF22AClockThatIsSet sets the gateway's clock by an hour, in both directions.
func TestF22AClockThatIsSet(t *testing.T) {
	scenario(t)
	c := startCluster(t)
	for name, step := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			var clock wallClock
			g := assemble(t, assembly{addrs: c.Addrs(), clock: clock.now, limits: []acl.Limit{
				{ID: "rps", Per: "app", Of: "requests", Limit: clockRate, Burst: clockBurst, PeriodMS: 1000},
			}})
			app := g.caller(t)
			app.must(t, 200, "PUT", "/v1/strings/kept"+name, `{"value":"v","ttl_ms":600000}`)
			token := app.token(t)
			once := app.addOnce(t, name)

			limits := stepLimits(t, app, func() { clock.set(step) })
			app.eventually(t, 200, "GET", "/v1/strings/kept"+name, "") // neither expired nor past its deadline
			app.eventually(t, 200, "GET", "/v1/whoami", "")
			fresh := app.token(t)
			g.callerWith(t, fresh).eventually(t, 200, "GET", "/v1/whoami", "")
			again := app.addOnce(t, name)
			clock.set(0)
			g.callerWith(t, token).eventually(t, 200, "GET", "/v1/whoami", "") // a clock put right again
			if string(again.body) != string(once.body) || again.header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("a write with the same Idempotency-Key was answered %s and %s", once.body, again.body)
			}
			results.add(row{"F-22", fmt.Sprintf("the gateway's clock is set %s by an hour", name),
				limits + "; app keys, new tokens, TTLs, deadlines and an idempotency key hold", "no unlimited or total lock-out", met(!t.Failed())})
		})
	}
}

// stepLimits uses the app's quota up, changes the clock and goes on asking for two seconds.
func stepLimits(t *testing.T, app *caller, change func()) string {
	t.Helper()
	start, passed, refused := time.Now(), 0, 0
	ask := func() bool {
		switch r := app.call(t.Context(), "GET", "/v1/whoami", ""); r.status {
		case 200:
			passed++
			return true
		case 429:
			refused++
		default:
			t.Fatalf("status %d: %s", r.status, r.body)
		}
		return false
	}
	for ask() {
	}
	change()
	after := passed
	for began := time.Now(); time.Since(began) < 2*time.Second; {
		ask()
	}
	// What was used before the start is part of the burst, so this is the most that can have passed.
	if most := clockBurst + int(time.Since(start).Seconds()*clockRate) + 1; passed > most {
		t.Errorf("%d requests passed, at most %d may", passed, most)
	}
	if passed == after {
		t.Errorf("nothing passed in two seconds after the step, %d were refused", refused)
	}
	return fmt.Sprintf("%d of %d requests passed in 2 s at %d/s", passed-after, passed-after+refused, clockRate)
}

// token exchanges the key for one.
func (c *caller) token(t *testing.T) string {
	t.Helper()
	r := c.eventually(t, 200, "POST", "/v1/token", "")
	var made struct{ Token string }
	if err := json.Unmarshal(r.body, &made); err != nil || made.Token == "" {
		t.Fatal(err, string(r.body))
	}
	return made.Token
}

// addOnce adds to a counter with an Idempotency-Key that is always the same.
func (c *caller) addOnce(t *testing.T, key string) reply {
	t.Helper()
	return c.eventually(t, 200, "POST", "/v1/counters/"+key+"/add", `{"delta":1}`, "Idempotency-Key: "+key)
}
