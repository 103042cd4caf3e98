package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/handlers"
	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store/limits"
	"github.com/slotgate/slotgate/store/prepaid"
)

// The values of limits.mode.
const (
	limitsShared = "shared"
	limitsLocal  = "local"
	limitsOff    = "off"
)

// limit is the ceiling as limits are validated and enforced.
func (c Ceiling) limit(name string) acl.Limit {
	return acl.Limit{
		ID: name, Per: acl.PerApp, Of: cmp.Or(c.Of, acl.OfRequests), Class: c.Class, Route: c.Route,
		Limit: c.Limit, PeriodMS: cmp.Or(c.PeriodMS, 1000), Burst: c.Burst, Algorithm: c.Algorithm, Mode: c.Mode, OnError: c.OnError,
	}
}

func (v *validation) ceilings(c Config) {
	if modes := []string{limitsShared, limitsLocal, limitsOff}; !slices.Contains(modes, c.Limits.Mode) {
		v.fault("limits.mode", "%q is none; write %s", c.Limits.Mode, strings.Join(modes, ", "))
	}
	if len(c.Ceilings) > middleware.MaxCeilings {
		v.fault("ceilings", "there are %d; each costs every request, write at most %d", len(c.Ceilings), middleware.MaxCeilings)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Ceilings)) {
		ceiling, path := c.Ceilings[name], "ceilings."+name
		if ceiling.Of == acl.OfConcurrency {
			v.fault(path+".of", "%q is no ceiling; write requests or bytes, and see http.max_connections", ceiling.Of)
			continue
		}
		for _, err := range unjoin(ceiling.limit(name).Validate()) {
			if f, ok := errors.AsType[*acl.Fault](err); ok {
				v.fault(path+"."+f.Field, "%s", f.Detail)
			}
		}
		if ceiling.Cluster != "" && !clusterName.MatchString(ceiling.Cluster) {
			v.fault(path+".cluster", "%q is not the name of a cluster; write one such as default, or leave it out", ceiling.Cluster)
		}
		if ceiling.Route != "" && !knownRoute(ceiling.Route) {
			v.fault(path+".route", "%q is no route; write its template, such as /v1/mget or /v1/strings/:key", ceiling.Route)
		}
	}
}

// unjoin lists the errors that errors.Join has made one of.
func unjoin(err error) []error {
	if list, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // what Join returns itself
		return list.Unwrap()
	}
	return nil
}

// knownRoute says whether the API has a route of this template.
func knownRoute(template string) bool {
	engine := newEngine()
	handlers.New(handlers.Config{Limits: limits.New(limits.Config{})}).Register(engine, engine.Group("/v1"))
	return template == "/v1/token" || slices.ContainsFunc(engine.Routes(), func(r gin.RouteInfo) bool { return r.Path == template })
}

// commonCluster is where gateways share what all clusters have in common: where apps and keys are. Where these are in a file it is default, or the
// first by name if there is no such cluster.
func (c Config) commonCluster() string {
	name := cmp.Or(c.controlCluster(), defaultCluster)
	if _, ok := c.Clusters[name]; !ok && len(c.Clusters) > 0 {
		return slices.Min(slices.Collect(maps.Keys(c.Clusters)))
	}
	return name
}

// limiterSettings are the settings of the limiter.
func limiterSettings(cfg Config, pool *prepaid.Pool) middleware.LimiterSettings {
	var s middleware.LimiterSettings
	switch cfg.Limits.Mode {
	case limitsOff:
		return middleware.LimiterSettings{Off: true}
	case limitsShared:
		s.Shared = pool
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Ceilings)) {
		c := cfg.Ceilings[name]
		s.Ceilings = append(s.Ceilings, middleware.Ceiling{
			Limit: c.limit(name), Cluster: c.Cluster, Kept: cmp.Or(c.Cluster, cfg.commonCluster()),
		})
	}
	return s
}

// forgetEvery is how long what was used of a deleted app or a revoked key stays in memory.
const forgetEvery = 10 * time.Second

// forgetLimits drops what the limiter knows of apps and keys that are no more, until ctx ends.
func (g *gateway) forgetLimits(ctx context.Context) error {
	tick := time.NewTicker(forgetEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			g.limiter.Keep(g.directory.Lives)
		}
	}
}
