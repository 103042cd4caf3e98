package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store/metric"
)

// origin is where a running gateway's configuration came from and can be read again.
type origin struct {
	load    func() (Config, error)
	level   *slog.LevelVar   // of the gateway's log
	hangups <-chan os.Signal // each asks for a reload
}

// reload is what became of one reload. Nothing was applied unless OK.
type reload struct {
	OK bool `json:"ok"`
	// Changed are the paths of settings that have another value now. The contents of files, apps and certificates, have no path.
	Changed []string `json:"changed"`
	// NeedsRestart are the paths of settings that the gateway runs with another value of than the configuration has.
	NeedsRestart []string `json:"needs_restart"`
	Faults       faults   `json:"faults,omitempty"`
	Error        string   `json:"error,omitempty"` // what else stood in the way
}

// reloader applies the configuration anew to a running gateway: all of it that can change at run time, or nothing.
type reloader struct {
	gateway *gateway
	from    *origin // set before the gateway runs; nil = nothing can be read again
	live    middleware.Live

	mu      sync.Mutex // one reload at a time
	running Config

	failed atomic.Bool      // the last one
	loaded prometheus.Gauge // when the configuration in use was
}

func newReloader(g *gateway, registry prometheus.Registerer) *reloader {
	r := &reloader{gateway: g, running: g.cfg, loaded: metric.ConfigReloadSuccess.NewGauge()}
	r.loaded.SetToCurrentTime()
	registry.MustRegister(
		r.loaded,
		metric.ConfigLastReload.NewGaugeFunc(func() float64 {
			if r.failed.Load() || !g.certs.good() {
				return 0
			}
			return 1
		}),
	)
	return r
}

var errNothingToReload = errors.New("this gateway was not started from a configuration that could be read again")

// onHangup reloads at each SIGHUP until ctx ends. Signals that come while a reload runs are one.
func (r *reloader) onHangup(ctx context.Context) {
	if r.from == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.from.hangups:
			r.reload(ctx)
		}
	}
}

// reload reads the configuration and applies it. Whoever comes while another runs waits, and reads again what may have changed since.
func (r *reloader) reload(ctx context.Context) reload {
	r.mu.Lock()
	defer r.mu.Unlock()
	log := r.gateway.log
	if r.gateway.drain.Draining() {
		log.WarnContext(ctx, "the configuration was not reloaded", "error", errDraining)
		return reload{Error: errDraining.Error()}
	}
	result, err := r.try(ctx)
	r.failed.Store(err != nil)
	if err != nil {
		log.ErrorContext(ctx, "the configuration was not reloaded; all of the old one stays in use", "error", err)
		var found faults
		if errors.As(err, &found) {
			return reload{Faults: found}
		}
		return reload{Error: err.Error()}
	}
	r.loaded.SetToCurrentTime()
	level := slog.LevelInfo
	if len(result.NeedsRestart) > 0 {
		level = slog.LevelWarn
	}
	log.Log(ctx, level, "the configuration was reloaded", "changed", result.Changed, "needs_restart", result.NeedsRestart)
	return result
}

// try changes nothing when it fails: whatever can fail comes before whatever is applied.
func (r *reloader) try(ctx context.Context) (reload, error) {
	if r.from == nil {
		return reload{}, errNothingToReload
	}
	wanted, err := r.from.load()
	if err != nil {
		return reload{}, err
	}
	next := r.running.reloaded(wanted)
	// A setting that can change may not go with one that cannot, and so still has its old value.
	if err := next.faults().orNil(); err != nil {
		return reload{}, err
	}
	commit, found := r.gateway.certs.prepare(next)
	defer commit(false)
	if err := found.orNil(); err != nil {
		return reload{}, err
	}
	if next.Control.File != "" { // a cluster tells of each change by itself, and may be away
		if err := r.gateway.directory.Refresh(ctx); err != nil {
			return reload{}, err
		}
	}
	commit(true)
	r.apply(ctx, next)
	result := reload{OK: true, Changed: differing(r.running, next), NeedsRestart: differing(next, wanted)}
	r.running = next
	return result, nil
}

// apply cannot fail.
func (r *reloader) apply(ctx context.Context, cfg Config) {
	g := r.gateway
	r.from.level.Set(logLevel(cfg.Log))
	r.live.Set(liveSettings(cfg))
	g.alerts.set(cfg.Alerts)
	g.bytes.SetLimit(cfg.Limits.BytesInFlight)
	g.overload.Switch(cfg.Overload.Enabled)
	g.store.ProtectNodes(cfg.Overload.Enabled)
	g.limiter.LimitRecords(int64(cfg.Limits.IdempotencyRecordsPerS))
	g.limiter.Set(limiterSettings(cfg, g.allowances))
	g.store.KeepRecords(recordTTL(cfg.Limits))
	g.directory.SetDefaults(ctx, directoryDefaults(cfg))
}

// reloaded is c with those settings of wanted that can change while the gateway runs.
func (c Config) reloaded(wanted Config) Config {
	c.Limits, c.CompressMinBytes, c.Log, c.Alerts = wanted.Limits, wanted.CompressMinBytes, wanted.Log, wanted.Alerts
	c.Overload.Enabled = wanted.Overload.Enabled
	c.Ceilings = wanted.Ceilings
	if c.TLS.CertFile != "" && wanted.TLS.CertFile != "" { // on stays on
		c.TLS = wanted.TLS
	}
	if c.AdminTLS.CertFile != "" && wanted.AdminTLS.CertFile != "" {
		c.AdminTLS = wanted.AdminTLS
	}
	c.Clusters = maps.Clone(c.Clusters)
	for name, cluster := range c.Clusters {
		if cluster.TLS.Enabled && wanted.Clusters[name].TLS.Enabled {
			cluster.TLS = wanted.Clusters[name].TLS
			c.Clusters[name] = cluster
		}
	}
	return c
}

// differing lists the paths of settings that are not the same in both, sorted; never nil, for JSON.
func differing(a, b Config) []string {
	values := map[string]any{}
	for _, s := range a.settings() {
		values[s.Path] = s.Value.Interface()
	}
	paths := []string{}
	for _, s := range b.settings() {
		if was, ok := values[s.Path]; !ok || !reflect.DeepEqual(was, s.Value.Interface()) {
			paths = append(paths, s.Path)
		}
		delete(values, s.Path)
	}
	paths = slices.AppendSeq(paths, maps.Keys(values))
	slices.Sort(paths)
	return paths
}
