// Package falcon pushes the figures of a prometheus registry to an Open-Falcon or Nightingale agent, once each step: for every app its
// rate, percentiles, errors and bytes, for every route its requests, and the state of the Redis nodes and of the process.
//
// It promises that a target which hangs, refuses or answers nonsense costs nothing but the items meant for it: one push runs at a time,
// each POST has two seconds, a push ends before the next step begins, nothing is queued and nothing is sent twice. What was not
// confirmed counts as dropped. It refuses to follow redirects, and to send what is not a number.
package falcon

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/store/metric"
)

// defaultTimeout bounds one POST, from dialling to the end of the answer. An agent on the same host answers in milliseconds.
const defaultTimeout = 2 * time.Second

// defaultChunk is what fits an agent's usual limit of 1 MiB a body several times: an item has about 200 bytes.
const defaultChunk = 500

// Config says what is pushed where. URL, Step and Endpoint are required.
type Config struct {
	URL      string        // of the agent, http or https
	Step     time.Duration // whole seconds; also what the items say
	Endpoint string        // who the figures are of, usually the host's name
	Chunk    int           // most items in one POST; 0 = 500
	Timeout  time.Duration // of one POST; 0 = 2 s

	Now   func() time.Time                     // nil = time.Now
	After func(time.Duration) <-chan time.Time // nil = time.After
}

// Pusher pushes while Run runs. It is not safe for concurrent use.
type Pusher struct {
	cfg      Config
	gatherer prometheus.Gatherer
	client   *http.Client
	log      *slog.Logger
	items    *prometheus.CounterVec
	failures *prometheus.CounterVec

	last   snapshot  // of the gathering before
	lastAt time.Time // of it
}

// New makes a Pusher of what gatherer gathers, and registers its own counters; like prometheus itself it panics when they are
// registered already. log may be nil.
func New(cfg Config, gatherer prometheus.Gatherer, registry prometheus.Registerer, log *slog.Logger) *Pusher {
	if cfg.Chunk <= 0 {
		cfg.Chunk = defaultChunk
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.After == nil {
		cfg.After = time.After
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &Pusher{
		cfg: cfg, gatherer: gatherer, client: newClient(), log: log,
		items: metric.PushItems.NewCounterVec(), failures: metric.PushFailures.NewCounterVec(),
	}
	for _, result := range []string{resultSent, resultDropped} { // an alert needs a series before the first failure
		p.items.WithLabelValues(result)
	}
	for _, reason := range reasons {
		p.failures.WithLabelValues(reason)
	}
	registry.MustRegister(p.items, p.failures)
	return p
}

// Run pushes at each multiple of the step, counted from the epoch, until ctx ends; it returns nil. The first push comes at the first
// multiple, over the time since Run began.
func (p *Pusher) Run(ctx context.Context) error {
	defer p.client.CloseIdleConnections()
	p.gather(p.cfg.Now())
	for at := p.stepAt(p.cfg.Now()).Add(p.cfg.Step); ; at = at.Add(p.cfg.Step) {
		select {
		case <-ctx.Done():
			return nil
		case <-p.cfg.After(at.Sub(p.cfg.Now())):
		}
		if now := p.cfg.Now(); now.Sub(at) >= p.cfg.Step { // the machine slept, or its clock was set; nothing is made up for
			at = p.stepAt(now)
		}
		p.step(ctx, at)
	}
}

// stepAt is the last multiple of the step that is not after t.
func (p *Pusher) stepAt(t time.Time) time.Time {
	return time.Unix(t.Unix()-t.Unix()%int64(p.cfg.Step/time.Second), 0)
}

// step gathers, and pushes what has become of the figures since the step before. It ends before the next step.
func (p *Pusher) step(ctx context.Context, at time.Time) {
	items := p.gather(p.cfg.Now())
	for i := range items {
		items[i].Endpoint, items[i].Timestamp, items[i].Step = p.cfg.Endpoint, at.Unix(), int64(p.cfg.Step/time.Second)
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Step-p.cfg.Now().Sub(at))
	defer cancel()
	p.push(ctx, items)
}

// gather makes the items of now, without what all have in common, and keeps the figures for the next gathering.
func (p *Pusher) gather(now time.Time) []Item {
	families, err := p.gatherer.Gather()
	if err != nil { // of one collector; the others' figures are there
		p.log.Warn("gathering metrics to push", "error", err)
	}
	current := newSnapshot(families)
	items := current.items(p.last, now.Sub(p.lastAt))
	p.last, p.lastAt = current, now
	return items
}
