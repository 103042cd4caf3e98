package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redisacl "github.com/slotgate/slotgate/store/control"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
)

// startBehind runs a gateway that reaches the control store only through the network; the apps' data it reaches as any other does.
func startBehind(t *testing.T, vars []string, network *faultproxy.Network) *running {
	t.Helper()
	loaded := load(sources{Environ: vars})
	if err := loaded.check().orNil(); err != nil {
		t.Fatal(err)
	}
	g := &running{stderr: &lockedBuffer{}}
	log := slog.New(slog.NewJSONHandler(g.stderr, nil))
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: clustertest.Shared(t).Addrs(), Dialer: network.Dial, Protocol: 2, ContextTimeoutEnabled: true, DialerRetries: 1,
		DialTimeout: time.Second, ReadTimeout: time.Second, PoolSize: toolPool, DisableIdentity: true,
	})
	certs, err := newCertificates(loaded.Config, log, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := newGatewayOn(loaded.Config, log, certs, redisacl.New(redisacl.Config{Client: client, Log: log}), client.Close)
	if err != nil {
		t.Fatal(err)
	}
	api, admin, err := listen(loaded.Config)
	if err != nil {
		t.Fatal(err)
	}
	g.api, g.admin = fmt.Sprint("http://", api.Addr()), fmt.Sprint("http://", admin.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gateway.run(ctx, api, admin) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := gateway.close(); err != nil {
			t.Error(err)
		}
	})
	g.waitReady(t)
	return g
}

// exchange gets a token for a key.
func (g *running) exchange(t *testing.T, key, body string) string {
	t.Helper()
	got := call(t, "POST", g.api+"/v1/token", key, body)
	expect(t, got, 200)
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(got.body), &made); err != nil || made.Token == "" {
		t.Fatal(err, got.body)
	}
	return made.Token
}

// says is the status and code that a caller gets.
func (g *running) says(t *testing.T, credential string) string {
	t.Helper()
	got := call(t, "GET", g.api+"/v1/whoami", credential, "")
	var problem struct{ Code string }
	_ = json.Unmarshal([]byte(got.body), &problem)
	return strings.TrimSpace(fmt.Sprint(got.StatusCode, " ", problem.Code))
}

// everywhere waits until all gateways say this of all credentials, and logs how long that took after the change.
func everywhere(t *testing.T, what string, gateways []*running, want string, credentials ...string) {
	t.Helper()
	changed := time.Now()
	for i, g := range gateways {
		for _, c := range credentials {
			last := ""
			eventually(t, func() bool { last = g.says(t, c); return last == want })
		}
		t.Logf("%s: gateway %d follows %v after the change was acknowledged", what, i+1, time.Since(changed).Round(time.Millisecond))
	}
}

func TestTwoGateways(t *testing.T) {
	vars := clusterVars(t)
	key, other := newToken(t, vars, "shop"), newToken(t, vars, "depot")
	network := clustertest.Proxied(t, clustertest.Shared(t))
	first, second := startGateway(t, vars), startBehind(t, vars, network)
	first.waitReady(t)
	both := []*running{first, second}
	everywhere(t, "a new key", both, "200", key, other)
	byFirst, bySecond := first.exchange(t, key, ""), second.exchange(t, key, `{"permissions":["strings:read"]}`)

	t.Run("a token of one is accepted by the other", func(t *testing.T) {
		everywhere(t, "tokens", both, "200", byFirst, bySecond)
		for _, g := range both {
			expect(t, call(t, "PUT", g.api+"/v1/strings/a", byFirst, `{"value":"x"}`), 200)
			expect(t, call(t, "GET", g.api+"/v1/strings/a", bySecond, ""), 200, `"x"`)
			expect(t, call(t, "PUT", g.api+"/v1/strings/a", bySecond, `{"value":"y"}`), 403, "forbidden")
			expect(t, call(t, "POST", g.api+"/v1/token", byFirst, ""), 403, "a token is not exchanged for another")
			expect(t, call(t, "POST", g.api+"/v1/token", key, `{"permissions":["hashes:everything"]}`), 422)
			expect(t, call(t, "GET", g.api+"/v1/whoami", bySecond, ""), 200, `"permissions":["strings:read"]`, `"token":{"issuer":"slotgate","expires_at":"`)
		}
	})
	t.Run("and verified by anybody with the key set", func(t *testing.T) {
		a, b := call(t, "GET", first.api+"/.well-known/jwks.json", "", ""), call(t, "GET", second.api+"/.well-known/jwks.json", "", "")
		expect(t, a, 200, `"kty":"OKP"`, `"alg":"EdDSA"`)
		if a.body != b.body {
			t.Error("two gateways have two sets")
		}
	})
	t.Run("a change of limits", func(t *testing.T) {
		mustRun(t, vars, "app", "set", "shop", "--limit", "id=rps,limit=777,period_ms=1000")
		for _, g := range both {
			for _, c := range []string{key, byFirst} {
				eventually(t, func() bool {
					return strings.Contains(call(t, "GET", g.api+"/v1/whoami", c, "").Header.Get("RateLimit-Policy"), "q=777")
				})
			}
		}
	})
	t.Run("suspend and resume", func(t *testing.T) {
		mustRun(t, vars, "app", "suspend", "shop")
		everywhere(t, "suspend", both, "403 app_suspended", key, byFirst, bySecond)
		mustRun(t, vars, "app", "resume", "shop")
		everywhere(t, "resume", both, "200", key, byFirst, bySecond)
	})
	t.Run("rotate", func(t *testing.T) {
		id := strings.Split(key, "_")[1]
		next := tokenForm.FindString(mustRun(t, vars, "key", "rotate", id, "--overlap", "1h").stdout)
		everywhere(t, "rotate", both, "200", next, key, byFirst, bySecond)
		mustRun(t, vars, "key", "revoke", id)
		everywhere(t, "revoke", both, "401 unauthenticated", key, byFirst, bySecond)
		key = next
		everywhere(t, "the next key", both, "200", key)
	})
	for name, cut := range map[string]func(*faultproxy.Proxy){
		"a gateway that finds the control store closed": (*faultproxy.Proxy).Refuse,
		"a gateway whose packets are lost":              (*faultproxy.Proxy).BlackHole,
	} {
		t.Run(name, func(t *testing.T) { cutOff(t, vars, key, other, first, second, network, cut) })
	}
}

func cutOff(t *testing.T, vars []string, key, other string, first, second *running, network *faultproxy.Network, cut func(*faultproxy.Proxy)) {
	both := []*running{first, second}
	known := first.exchange(t, other, "")
	revoked := tokenForm.FindString(mustRun(t, vars, "key", "create", "shop").stdout)
	everywhere(t, "before", both, "200", key, other, known, revoked)
	ofRevoked := second.exchange(t, revoked, "")
	contact := func(want string) func() bool {
		return func() bool {
			return strings.Contains(call(t, "GET", second.admin+"/metrics", "", "").body, "\nslotgate_control_connected "+want+"\n")
		}
	}
	eventually(t, contact("1"))

	for _, addr := range clustertest.Shared(t).Addrs() {
		cut(network.Proxy(addr))
	}
	eventually(t, contact("0"))
	verbose := call(t, "GET", second.admin+"/readyz?verbose", "", "")
	expect(t, verbose, 200, "[+]apps-and-keys ok", "[-]control-store failed: last heard of at ", "readyz check passed")

	mustRun(t, vars, "key", "revoke", revoked)
	mustRun(t, vars, "app", "suspend", "depot")
	late := tokenForm.FindString(mustRun(t, vars, "key", "create", "shop").stdout)
	everywhere(t, "revoke", both[:1], "401 unauthenticated", revoked, ofRevoked)
	everywhere(t, "suspend", both[:1], "403 app_suspended", other, known)
	for _, c := range []string{key, other, known, revoked, ofRevoked, second.exchange(t, key, "")} {
		if got := second.says(t, c); got != "200" {
			t.Errorf("the gateway that is cut off says %s to one it knew", got)
		}
	}
	expect(t, call(t, "PUT", second.api+"/v1/strings/a", key, `{"value":"x"}`), http.StatusOK)
	if got := second.says(t, late); got != "503 cluster_down" {
		t.Errorf("%s to one that was made meanwhile", got)
	}
	if got := second.says(t, "sg_not_a_key"); got != "401 unauthenticated" {
		t.Errorf("%s to what is no key at all", got)
	}

	network.Pass()
	everywhere(t, "rejoin, revoke", both, "401 unauthenticated", revoked, ofRevoked)
	everywhere(t, "rejoin, suspend", both, "403 app_suspended", other, known)
	everywhere(t, "rejoin, a new key", both, "200", late)
	eventually(t, contact("1"))
	expect(t, call(t, "GET", second.admin+"/readyz?verbose", "", ""), 200, "[+]control-store ok")
	mustRun(t, vars, "app", "resume", "depot")
	everywhere(t, "resume", both, "200", other, known)
}
