package middleware

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/adaptive"
)

const headerPriority = "X-Request-Priority"

// OverloadConfig is how the gateway protects itself.
type OverloadConfig struct {
	Off       bool  // until Switch says otherwise
	Initial   int   // places for requests at first; 0 = 1024
	Min, Max  int   // between which the gateway sets them; 0 = 64 and 16384
	MemoryMax int64 // bytes; 0 = no ceiling
	Clock     Clock // nil = time.Now
}

// cpuWaitTolerated is the mean wait of goroutines for a processor above which the gateway takes away places. A request waits some thirty
// times as long in all, so that is 30 ms of its second. Less is no reason: refusing a GET costs three quarters of what serving it does, so
// a busy gateway had better serve it, and up to here throughput falls by a third at the most (cmd/slotgate, pressure).
const cpuWaitTolerated = time.Millisecond

// standing is for how many readings a wait must stand to count. A pause of the process, by a garbage collection or by the machine, is no overload.
const standing = 3

// A request that is there for longer than patience, and for longer than patienceByWait times as goroutines wait for a processor, does not wait for the
// gateway: that makes some thirty times the wait of a request. It waits for a slow shard, for a body or for a client, and leaves its place to others. Without that
// those who waited for one shard filled the few places of a busy gateway, and the requests of healthy shards were refused.
const (
	patience       = 100 * time.Millisecond
	patienceByWait = 100
)

// Overload keeps the gateway useful when more comes than it can do: what it has no place for is refused at once, what is less important
// first, so that the rest is served well. Its places grow fewer while the gateway itself is slow (Feel); how fast Redis is does not matter
// to them: who waits for long has none, and its nodes have limits of their own in store. It is safe for concurrent use.
type Overload struct {
	clock  Clock
	places *adaptive.Limiter
	off    atomic.Bool

	memoryMax int64
	shortage  atomic.Int32 // of memory
	memory    atomic.Int64 // as of the last reading, for the metrics
	cpuWait   atomic.Int64
	waits     [standing]time.Duration // of the last readings, for Feel alone
	readings  int
}

// NewOverload makes the guard's state. Without calls of Feel its number of places stays.
func NewOverload(cfg OverloadConfig) *Overload {
	o := &Overload{clock: cfg.Clock.orReal(), memoryMax: cfg.MemoryMax}
	or := func(n *int, def int) {
		if *n == 0 {
			*n = def
		}
	}
	or(&cfg.Initial, 1024)
	or(&cfg.Min, 64)
	or(&cfg.Max, 16384)
	o.places = adaptive.New(adaptive.Settings{
		Initial: cfg.Initial, Min: cfg.Min, Max: cfg.Max, Slow: cpuWaitTolerated, Clock: o.clock,
	})
	o.Switch(!cfg.Off)
	return o
}

// Switch turns the guard on or off, for requests that begin from now on.
func (o *Overload) Switch(on bool) { o.off.Store(!on) }

// Pressure is how the process has fared since the last reading.
type Pressure struct {
	CPUWait time.Duration // for which goroutines that could run waited for a processor, on average
	Memory  int64         // bytes that no garbage collection would give back
}

// leastAnswers is for how many answers a reading counts at the least: it is a mean of many waits, and so enough by itself.
const leastAnswers = 100

// Feel takes a reading of the process and sets the number of places; call it some ten times a second, from one goroutine. It is true when
// memory is so short that requests are refused.
func (o *Overload) Feel(p Pressure) (short bool) {
	o.memory.Store(p.Memory)
	o.cpuWait.Store(int64(p.CPUWait))
	level := shortageOf(p.Memory, o.memoryMax)
	o.shortage.Store(level)
	o.waits[o.readings%standing] = p.CPUWait
	o.readings++
	now := o.clock()
	came := o.places.Age(now, max(patience, patienceByWait*slices.Max(o.waits[:])))
	// With as many as there were, the limiter knows how long one request keeps the gateway busy.
	o.places.Observe(slices.Min(o.waits[:]), max(came, leastAnswers))
	o.places.Tick(now)
	return level > memoryEnough && !o.off.Load()
}

// Levels of shortage of memory.
const (
	memoryEnough   int32 = iota
	memoryNoBulk         // from 80 % of the ceiling
	memoryNoBodies       // from 90 %: nothing of class normal that brings a body, too
	memoryCritical       // from 95 %: critical alone
)

func shortageOf(used, most int64) int32 {
	switch share := float64(used) / float64(most); {
	case most <= 0 || share < .8:
		return memoryEnough
	case share < .9:
		return memoryNoBulk
	case share < .95:
		return memoryNoBodies
	}
	return memoryCritical
}

// shedReason says why a request was refused.
type shedReason uint8

const (
	shedFull shedReason = iota
	shedDeadline
	shedMemory
	shedReasons
)

// String is the name for metrics.
func (r shedReason) String() string {
	return [shedReasons]string{"full", "deadline", "memory"}[r]
}

// shedErrors are made once: a refusal must cost as little as it can.
var shedErrors = [shedReasons]error{
	shedFull:     shedError("the gateway has more to do than it can do well, and serves what is more important, or others, first"),
	shedDeadline: shedError("the gateway has so much to do that it could not answer within the request's deadline"),
	shedMemory:   shedError("the gateway is short of memory"),
}

func shedError(detail string) error {
	e := store.NewError(store.CodeOverloaded, detail)
	e.RetryAfter = time.Second // the renderer spreads it over 1 to 3 s
	return e
}

// Shed refuses with 503 overloaded, before the body is read, what the gateway has no place, no time or no memory for. It must stand behind
// Authenticate: the app says how important its requests are, and X-Request-Priority may only lower that. The places of a request are given
// back when its event is handed over (Events), so on every way out. refused counts.
func Shed(o *Overload, live *Live, refused func(shedReason, adaptive.Class)) gin.HandlerFunc {
	s := &shedder{Overload: o, refused: refused}
	return func(c *gin.Context) {
		r := of(c)
		class, err := classOf(r.event.Identity.App.Priority, c.Request.Header[headerPriority])
		if err != nil {
			refuse(c, err)
			return
		}
		r.class, r.classed = class, true
		if o.off.Load() {
			return
		}
		limit, err := deadlineOf(c.Request.Header[headerDeadline], live.current.Load().Deadline.Default)
		if err != nil {
			return // Deadline says what is wrong with it
		}
		if err := s.admit(r, c.Request.ContentLength != 0, limit); err != nil {
			refuse(c, err)
		}
	}
}

// classOf is the app's class, or a lower one that the request asks for. A higher one is no mistake: an operator who lowers an app must not
// break its requests.
func classOf(p acl.Priority, asked []string) (adaptive.Class, error) {
	class := adaptive.ClassOf(p)
	if len(asked) == 0 {
		return class, nil
	}
	lower, ok := adaptive.ParseClass(asked[0])
	if !ok || len(asked) > 1 {
		return class, store.Unparsable("header:"+headerPriority, "must be one of critical, normal and bulk")
	}
	return class.Lower(lower), nil
}

// shedder is an Overload that counts whom it refuses.
type shedder struct {
	*Overload
	refused func(shedReason, adaptive.Class)
}

// admit takes a place for the request, or says why there is none.
func (s *shedder) admit(r *request, hasBody bool, limit time.Duration) error {
	if level := s.shortage.Load(); level > memoryEnough && starved(level, r.class, hasBody) {
		return s.refuse(shedMemory, r.class)
	}
	place, err := s.acquire(r, 1, r.started(s.clock).Add(limit))
	if err == nil {
		r.places = places{shedder: s, first: place}
	}
	return err
}

func (s *shedder) acquire(r *request, weight int, deadline time.Time) (adaptive.Place, error) {
	place, reason := s.places.Acquire(adaptive.Request{App: r.event.Identity.App.ID, Class: r.class, Weight: weight, Deadline: deadline})
	switch reason {
	case adaptive.Full:
		return place, s.refuse(shedFull, r.class)
	case adaptive.Hopeless:
		return place, s.refuse(shedDeadline, r.class)
	}
	return place, nil
}

func (s *shedder) refuse(why shedReason, class adaptive.Class) error {
	s.refused(why, class)
	return shedErrors[why]
}

// starved says whether a request of the class is refused at this shortage of memory. What is critical never is: limits.bytes_in_flight
// holds for it, too.
func starved(level int32, class adaptive.Class, hasBody bool) bool {
	switch class {
	case adaptive.Critical:
		return false
	case adaptive.Bulk:
		return true
	}
	return level == memoryCritical || level == memoryNoBodies && hasBody
}

// places are those that a request holds.
type places struct {
	shedder *shedder // nil: none
	first   adaptive.Place
	more    *morePlaces // of a batch; most requests are none, and carry the field
}

type morePlaces struct {
	adaptive.Place
	next *morePlaces
}

// grow takes the places of the n items that a batch has beyond the first. How many they are is known when the body was read, but most of
// their work is still to come.
func (p *places) grow(r *request, n int64) error {
	if p.shedder == nil {
		return nil
	}
	if weight := adaptive.WeightOf(int(n)+1) - 1; weight > 0 {
		more, err := p.shedder.acquire(r, weight, r.timing.end)
		if err != nil {
			r.refused = true // the handler has sent nothing yet
			return err
		}
		p.more = &morePlaces{more, p.more}
	}
	return nil
}

// leave gives all of them back.
func (p *places) leave() {
	if p.shedder == nil {
		return
	}
	p.first.Release(false)
	for more := p.more; more != nil; more = more.next {
		more.Release(false)
	}
	*p = places{}
}

// charges is the request as a store.Charger: the items of a batch cost places of the gateway, and of the app's quota.
type charges request

// Charge implements store.Charger.
func (c *charges) Charge(n int64) error {
	if err := c.places.grow((*request)(c), n); err != nil {
		return err
	}
	if c.quota.view == nil {
		return nil
	}
	return c.quota.Charge(n)
}
