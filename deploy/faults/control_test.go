package faults

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/control"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
)

// operator changes apps and keys as the command line does, by a way of its own to the control store.
type operator struct {
	t       *testing.T
	storage acl.Storage
	secret  acl.Secret
}

// apply makes a change.
func (o *operator) apply(c acl.Change) {
	o.t.Helper()
	c.At, c.By = time.Now(), "the fault suite"
	if err := o.storage.Apply(within(o.t), c); err != nil {
		o.t.Fatal(err)
	}
}

// newKey makes a key of the app and returns its token and id.
func (o *operator) newKey() (token, id string) {
	o.t.Helper()
	token, key, err := acl.NewKey(o.secret, namespace, time.Now(), nil, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	o.apply(acl.Change{Op: acl.OpCreateKey, Key: key})
	return token, key.ID
}

// revoke ends a key.
func (o *operator) revoke(id string) {
	o.t.Helper()
	key := *must(o.storage.Load(within(o.t)))(o.t).Keys[id]
	now := time.Now().UTC()
	key.RevokedAt = &now
	o.apply(acl.Change{Op: acl.OpUpdateKey, Key: &key})
}

// edit changes the app.
func (o *operator) edit(change func(*acl.App)) {
	o.t.Helper()
	app := *must(o.storage.Load(within(o.t)))(o.t).Apps[namespace]
	change(&app)
	o.apply(acl.Change{Op: acl.OpUpdateApp, App: &app})
}

// limit is the app's quota of requests a second.
func limit(n int64) []acl.Limit {
	return []acl.Limit{{ID: "rps", Per: "app", Of: "requests", Limit: n, PeriodMS: 1000}}
}

// TestF21ControlStoreOutage changes what apps and keys may do, first with the control store in reach of the gateway, then not.
func TestF21ControlStoreOutage(t *testing.T) {
	scenario(t)
	c := startCluster(t)
	network := clustertest.Proxied(t, c)
	log := slog.New(slog.DiscardHandler)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), Dialer: network.Dial, Protocol: 2, ContextTimeoutEnabled: true, DialerRetries: 1,
		DialTimeout: time.Second, ReadTimeout: time.Second, DisableIdentity: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	o := &operator{t, control.New(control.Config{Client: redisOf(t, c), Log: log}), testSecret(t)}
	app := acl.App{ID: namespace, Namespace: namespace, Cluster: "default", Permissions: []string{"*"}, Limits: limit(100_000)}.WithDefaults()
	o.apply(acl.Change{Op: acl.OpCreateApp, App: &app})
	token, _ := o.newKey()
	g := assemble(t, assembly{addrs: c.Addrs(), storage: control.New(control.Config{Client: client, Log: log})})
	known := g.callerWith(t, token)
	known.eventually(t, 200, "GET", "/v1/whoami", "")

	took := inReach(t, o, g, known)
	results.add(row{
		id: "F-21", done: "a key revoked, a quota, a permission and a state changed, the control store in reach",
		counted: took.String(), target: "≤ 1 s each", verdict: met(took.within(time.Second, time.Second)),
	})
	for _, out := range []struct {
		name string
		cut  func(*faultproxy.Proxy)
	}{{"closed", (*faultproxy.Proxy).Refuse}, {"silent", (*faultproxy.Proxy).BlackHole}} {
		t.Run(out.name, func(t *testing.T) {
			counted := outOfReach(t, o, g, known, network, c.Addrs(), out.cut)
			results.add(row{
				id: "F-21", done: "the same while the gateway finds the control store " + out.name, counted: counted,
				target: "known keys go on, keys made meanwhile 503, revoked ones stay 401; all is caught up with", verdict: met(!t.Failed()),
			})
		})
	}
}

// inReach makes each kind of change and returns how long the gateway took to follow, from when the control store had it.
func inReach(t *testing.T, o *operator, g *assembled, known *caller) durations {
	t.Helper()
	var took durations
	follow := func(what string, change func(), says func() bool) {
		t.Helper()
		change()
		start := time.Now()
		eventually(t, what, says)
		took = append(took, time.Since(start))
	}
	token, id := o.newKey()
	second := g.callerWith(t, token)
	second.eventually(t, 200, "GET", "/v1/whoami", "")
	follow("a revoked key", func() { o.revoke(id) }, func() bool { return second.call(t.Context(), "GET", "/v1/whoami", "").status == 401 })
	follow("a quota", func() { o.edit(func(a *acl.App) { a.Limits = limit(70_000) }) }, func() bool { return quota(t, known) == 70_000 })
	follow("a permission taken away", func() { o.edit(func(a *acl.App) { a.Permissions = []string{"strings:read"} }) }, func() bool {
		return known.call(t.Context(), "PUT", "/v1/strings/a", `{"value":"v"}`).status == 403
	})
	follow("and given back", func() { o.edit(func(a *acl.App) { a.Permissions = []string{"*"} }) }, func() bool {
		return known.call(t.Context(), "PUT", "/v1/strings/a", `{"value":"v"}`).status == 200
	})
	follow("a suspended app", func() { o.edit(func(a *acl.App) { a.State = acl.Suspended }) }, func() bool {
		return known.call(t.Context(), "GET", "/v1/whoami", "").status == 403
	})
	follow("and a resumed one", func() { o.edit(func(a *acl.App) { a.State = acl.Active }) }, func() bool {
		return known.call(t.Context(), "GET", "/v1/whoami", "").status == 200
	})
	return took
}

// quota is what the gateway says that the app's is.
func quota(t *testing.T, c *caller) (n int64) {
	t.Helper()
	_, q, _ := strings.Cut(c.call(t.Context(), "GET", "/v1/whoami", "").header.Get("RateLimit-Policy"), ";q=")
	_, _ = fmt.Sscanf(q, "%d", &n)
	return n
}

// outOfReach cuts the gateway off and makes changes.
func outOfReach(t *testing.T, o *operator, g *assembled, known *caller, network *faultproxy.Network, addrs []string, cut func(*faultproxy.Proxy)) string {
	t.Helper()
	revokedToken, revokedID := o.newKey()
	doomedToken, doomedID := o.newKey()
	revoked, doomed := g.callerWith(t, revokedToken), g.callerWith(t, doomedToken)
	revoked.eventually(t, 200, "GET", "/v1/whoami", "")
	doomed.eventually(t, 200, "GET", "/v1/whoami", "")
	o.revoke(revokedID)
	revoked.eventually(t, 401, "GET", "/v1/whoami", "")
	before := quota(t, known)
	for _, addr := range addrs {
		cut(network.Proxy(addr))
	}
	lateToken, _ := o.newKey()
	late := g.callerWith(t, lateToken)
	eventually(t, "the gateway notices", func() bool { // asked seldom: until then each answer counts as guessing
		pause(t, 100*time.Millisecond)
		return late.call(t.Context(), "GET", "/v1/whoami", "").status == 503
	})
	o.revoke(doomedID)
	o.edit(func(a *acl.App) { a.Limits = limit(before - 1) })

	says := map[string]tallied{"known": {}, "revoked before": {}, "revoked meanwhile": {}, "made meanwhile": {}}
	for began, i := time.Now(), 0; time.Since(began) < time.Duration(times(4, 60))*time.Second; i++ {
		says["known"].add(known.call(t.Context(), "PUT", "/v1/strings/a", `{"value":"v"}`))
		says["known"].add(known.call(t.Context(), "POST", "/v1/token", ""))
		if i%200 == 0 { // few, or the gateway takes it for guessing
			says["revoked before"].add(revoked.call(t.Context(), "GET", "/v1/whoami", ""))
		}
		says["revoked meanwhile"].add(doomed.call(t.Context(), "GET", "/v1/whoami", ""))
		says["made meanwhile"].add(late.call(t.Context(), "PUT", "/v1/strings/a", `{"value":"v"}`))
		pause(t, 10*time.Millisecond)
	}
	says["known"].only(t, "a key that is known", "200")
	says["revoked before"].only(t, "a key revoked before", "401 unauthenticated")
	says["revoked meanwhile"].only(t, "a key revoked out of sight", "200")
	says["made meanwhile"].only(t, "a key made out of sight", "503 cluster_down not_applied")
	if q := quota(t, known); q != before {
		t.Errorf("the quota is %d, it was %d", q, before)
	}

	network.Pass()
	start := time.Now()
	doomed.eventually(t, 401, "GET", "/v1/whoami", "")
	late.eventually(t, 200, "GET", "/v1/whoami", "")
	eventually(t, "the new quota", func() bool { return quota(t, known) == before-1 })
	return fmt.Sprintf("%v; caught up with after %v", says, ms(time.Since(start)))
}
