package handlers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/acl"
)

// vectorStart is where the clock of the vectors begins, in us: a multiple of a minute.
const vectorStart = 1_800_000_000_000_000

// play is one vector through HTTP, on a clock of its own.
type play struct {
	*app
	t *testing.T
}

func (p play) at(seconds float64) { p.clock.Store(vectorStart + int64(seconds*1e6)) }

func (p play) define(rules ...string) {
	p.t.Helper()
	p.call(p.t, "PUT", limitPath, `{"rules":[`+strings.Join(rules, ",")+`]}`).want(p.t, 200)
}

// take takes for u with these members, and gives the answer in short: allowed, granted, then what the names ask for.
func (p play) take(members string, names ...string) string {
	p.t.Helper()
	return p.send("take", `"subject":"u"`+members, names...)
}

func (p play) send(what, members string, names ...string) string {
	p.t.Helper()
	m := p.call(p.t, "POST", limitPath+"/"+what, "{"+members+"}").want(p.t, 200)
	out := []string{fmt.Sprint(m["allowed"])}
	for _, name := range names {
		if rule, member, ok := strings.Cut(name, "."); ok {
			for _, r := range m["rules"].([]any) {
				if r := r.(map[string]any); r["id"] == rule {
					out = append(out, fmt.Sprint(r[member]))
				}
			}
		} else {
			out = append(out, fmt.Sprint(m[name]))
		}
	}
	return strings.Join(out, " ")
}

func (p play) wants(got, want string) {
	p.t.Helper()
	if got != want {
		p.t.Errorf("%q, want %q", got, want)
	}
}

// allowed counts how many of n takes pass.
func (p play) allowed(n int) (count int) {
	p.t.Helper()
	for range n {
		if strings.HasPrefix(p.take(""), "true") {
			count++
		}
	}
	return count
}

func bucket(id string, limit, periodMS, burst int64) string {
	return fmt.Sprintf(`{"id":%q,"algorithm":"token_bucket","limit":%d,"period_ms":%d,"burst":%d}`, id, limit, periodMS, burst)
}

const (
	minuteMS = 60_000
	dayMS    = 86_400_000
)

// The vectors of the design, through HTTP.
func TestVectorsThroughHTTP(t *testing.T) {
	g := start(t)
	for _, v := range []struct {
		name string
		play func(play)
	}{
		{"V1 a bucket of 60 gives 60, then one a second", func(p play) {
			p.define(bucket("m", 60, minuteMS, 60))
			if n := p.allowed(60); n != 60 {
				p.t.Errorf("%d allowed", n)
			}
			p.wants(p.take("", "retry_after_ms", "m.remaining", "m.reset_ms"), "false 1000 0 60000")
			p.at(0.5)
			p.wants(p.take(""), "false")
			p.at(1)
			p.wants(p.take(""), "true")
			p.wants(p.take(""), "false")
		}},
		{"V2 a refused take costs no other rule", func(p play) {
			p.define(bucket("m", 60, minuteMS, 60), bucket("d", 10000, dayMS, 10000))
			if n := p.allowed(70); n != 60 {
				p.t.Errorf("%d allowed", n)
			}
			p.wants(p.take("", "d.remaining", "d.reset_ms"), "false 9940 518400")
		}},
		{"V3 the day refuses, and the minute keeps its tokens", func(p play) {
			p.define(bucket("m", 60, minuteMS, 60), bucket("d", 3, dayMS, 3))
			if n := p.allowed(4); n != 3 {
				p.t.Errorf("%d allowed", n)
			}
			p.wants(p.take("", "limited_by", "retry_after_ms", "m.remaining"), "false d 28800000 57")
		}},
		{"V4 the total is of all subjects", func(p play) {
			p.define(bucket("m", 60, minuteMS, 60), `{"id":"t","scope":"limit","algorithm":"fixed_window","limit":5,"period_ms":60000}`)
			for i := range 8 {
				p.wants(p.send("take", fmt.Sprintf(`"subject":"%c"`, "uv"[i%2])), fmt.Sprint(i < 5))
			}
			p.at(10)
			p.wants(p.take("", "limited_by", "retry_after_ms"), "false t 50000")
			p.at(60)
			p.wants(p.take(""), "true")
		}},
		{"V5 a shaper tells when the turn is", func(p play) {
			p.define(`{"id":"s","algorithm":"leaky_bucket","mode":"shaper","limit":10,"period_ms":1000,"burst":5}`)
			for i := range 5 {
				p.wants(p.take("", "wait_ms"), fmt.Sprint("true ", i*100))
			}
			p.wants(p.take("", "retry_after_ms"), "false 100")
			p.at(0.1)
			p.wants(p.take("", "wait_ms"), "true 400")
		}},
		{"V6 a bucket may be taken from in advance", func(p play) {
			p.define(bucket("b", 10, 1000, 2))
			for _, want := range []string{"true 0 0", "true 0 0", "true 100 0", "true 200 0", "false 0 100"} {
				p.wants(p.take(`,"max_wait_ms":200`, "wait_ms", "retry_after_ms"), want)
			}
		}},
		{"V7 the window before counts in proportion", func(p play) {
			p.define(`{"id":"w","algorithm":"sliding_window","limit":10,"period_ms":60000}`)
			p.take(`,"cost":4`)
			p.at(60)
			p.take(`,"cost":5`)
			p.at(75)
			p.wants(p.take("", "w.remaining"), "true 1")
			p.wants(p.take("", "w.remaining"), "true 0")
			p.wants(p.take("", "retry_after_ms"), "false 15000")
		}},
		{"V8 costs, parts and refunds", func(p play) {
			p.define(bucket("b", 10, dayMS, 10))
			p.wants(p.take(`,"cost":8`, "b.remaining"), "true 2")
			p.wants(p.take(`,"cost":5`, "b.remaining"), "false 2")
			p.wants(p.take(``, "b.remaining"), "true 1")
			p.wants(p.take(`,"cost":5,"min_grant":1`, "granted"), "true 1")
			p.wants(p.send("refund", `"subject":"u","cost":3`, "b.remaining"), "true 3")
			p.call(p.t, "POST", takePath, `{"subject":"u","cost":11}`).refused(p.t, 422, "cost_exceeds_limit", "/cost")
		}},
		{"V9 an edit keeps what was used", func(p play) {
			p.define(bucket("b", 60, minuteMS, 60))
			p.take(`,"cost":30`)
			p.define(bucket("b", 10, 1000, 60))
			p.wants(p.send("peek", `"subject":"u"`, "b.remaining", "b.reset_ms"), "true 30 3000")
			p.define(bucket("b", 60, minuteMS, 20))
			p.wants(p.send("peek", `"subject":"u"`, "b.remaining", "b.reset_ms"), "false 0 30000")
		}},
		{"V10 a clock that goes back gives nothing, and far back is believed", func(p play) {
			p.at(100)
			p.define(bucket("b", 10, 1000, 10))
			p.take(`,"cost":10`)
			p.at(98)
			p.wants(p.take(""), "false")
			p.at(40)
			p.wants(p.take(""), "false")
			p.at(41)
			p.wants(p.take(""), "true")
		}},
		{"V11 a repetition has the first answer and is not charged", func(p play) {
			p.define(bucket("b", 10, dayMS, 10))
			first := p.call(p.t, "POST", takePath, `{"subject":"u","cost":3}`, "Idempotency-Key: k")
			p.at(5)
			again := p.call(p.t, "POST", takePath, `{"subject":"u","cost":3}`, "Idempotency-Key: k")
			if again.want(p.t, 200); again.body != first.body {
				p.t.Errorf("%s after %s", again.body, first.body)
			}
			p.wants(p.take("", "b.remaining"), "true 6")
		}},
		{"V12 over time the rate is exact", func(p play) {
			p.define(bucket("b", 7, 1000, 7))
			n := 0
			for i := range 300 {
				p.at(float64(i) / 10)
				n += p.allowed(2)
			}
			if want := 7 + 7*299/10; n != want {
				p.t.Errorf("%d allowed, want %d", n, want)
			}
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			p := play{g.app(t, func(app *acl.App) { app.Permissions = []string{"ratelimits:*"} }), t}
			p.at(0)
			v.play(p)
		})
	}
}
