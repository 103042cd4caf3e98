package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/localcluster/certtest"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// configured is a gateway that was started from a file.
type configured struct {
	*running
	file, apps string
}

const noApps = "apps: []\n"

// startConfigured starts a gateway from a file with these settings; apps are in a file too, and there is no cluster.
func startConfigured(t *testing.T, settings string, args ...string) *configured {
	t.Helper()
	dir := t.TempDir()
	c := &configured{file: filepath.Join(dir, "slotgate.yaml"), apps: filepath.Join(dir, "apps.yaml")}
	c.writeApps(t, noApps)
	c.write(t, settings)
	c.running = startGateway(t, nil, append([]string{"--config", c.file, "--set", "http.drain_delay_ms=0"}, args...)...)
	return c
}

func (c *configured) writeApps(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(c.apps, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (c *configured) write(t *testing.T, settings string) {
	t.Helper()
	text := fmt.Sprintf("listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\nsecret_file: testdata/secret\ncontrol: {file: %s}\nclusters: {default: {addrs: [127.0.0.1:1]}}\n%s\n",
		c.apps, settings)
	if err := os.WriteFile(c.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reload is `slotgate config reload` on this gateway.
func (c *configured) reload(t *testing.T, args ...string) result {
	t.Helper()
	_, addr, _ := strings.Cut(c.admin, "://")
	return slotgate(t, nil, append([]string{"config", "reload", "--config", c.file, "--admin-listen", addr}, args...)...)
}

func (c *configured) mustReload(t *testing.T) reload {
	t.Helper()
	got := c.reload(t, "-o", "json")
	var r reload
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != 0 || !r.OK {
		t.Fatalf("reload: code %d, %v: %s%s", got.code, err, got.stdout, got.stderr)
	}
	return r
}

func (c *configured) lastReload(t *testing.T, want int) {
	t.Helper()
	expect(t, call(t, "GET", c.admin+"/metrics", "", ""), 200, fmt.Sprint("slotgate_config_last_reload_successful ", want, "\n"),
		"slotgate_config_reload_success_timestamp_seconds 1.")
}

func TestReloadTellsWhatItDid(t *testing.T) {
	c := startConfigured(t, "")
	c.write(t, "limits: {value_max_bytes: 2048, deadline_ms: 500}\nlog: {level: debug, sample: 1}\nredis: {pool_size: 5}\nhttp: {idle_timeout_ms: 1}")
	got := c.reload(t)
	if got.code != 0 {
		t.Fatalf("code %d: %s", got.code, got.stderr)
	}
	const changes = "  changed: limits.deadline_ms\n  changed: limits.value_max_bytes\n  changed: log.level\n  changed: log.sample\n"
	const restarts = "  needs a restart: http.idle_timeout_ms\n  needs a restart: redis.pool_size\n"
	if got.stdout != "The configuration was reloaded.\n"+changes+restarts {
		t.Errorf("it says\n%s", got.stdout)
	}
	contains(t, "the log", c.stderr.String(), `"level":"WARN","msg":"the configuration was reloaded","changed":["limits.deadline_ms"`, `"needs_restart":["http.idle`)
	if r := c.mustReload(t); len(r.Changed) != 0 || len(r.NeedsRestart) != 2 {
		t.Errorf("the second time it did %+v", r)
	}
	call(t, "GET", c.api+"/v1/whoami", "", "")
	eventually(t, func() bool { return strings.Contains(c.stderr.String(), `"msg":"request"`) }) // of one in one
	c.lastReload(t, 1)
}

func TestReloadLooksAtTheAppsAtOnce(t *testing.T) {
	c := startConfigured(t, "")
	eventually(t, func() bool { return c.logLine("apps and keys loaded") != nil })
	c.writeApps(t, "apps:\n- {id: shop, name: Shop, namespace: shop, permissions: ['strings:*']}\n")
	c.mustReload(t)
	contains(t, "the log", c.stderr.String(), `"apps":1`)
}

func TestBadConfigurationsKeepTheOldOne(t *testing.T) {
	ca := certtest.New(t)
	pair, other := ca.Issue(t, certtest.Options{Name: "first"}), ca.Issue(t, certtest.Options{})
	withTLS := "tls: {cert_file: " + pair.CertFile + ", key_file: " + pair.KeyFile + "}\n"
	c := startConfigured(t, withTLS)
	for _, row := range []struct{ what, settings, apps, want string }{
		{"no YAML", "log: {level: debug", noApps, "did not find expected"},
		{"an unknown setting", "log: {level: debug, lvl: x}", noApps, "log.lvl: is no setting"},
		{"a value out of range", "log: {level: debug}\nlimits: {deadline_ms: 0}", noApps, "limits.deadline_ms: 0 is out of range; write 1 to 3600000 (slotgate.yaml:"},
		{"a level that is none", "log: {level: loud}", noApps, `log.level: "loud" is no level`},
		{"a broken apps file", "log: {level: debug}", "apps: [{id: '!'}]\n", "control.file: reading apps from "},
		{"apps that are no YAML", "log: {level: debug}", "apps: [", "control.file: reading apps from "},
		{"a key of another certificate", "log: {level: debug}\ntls: {cert_file: " + pair.CertFile + ", key_file: " + other.KeyFile + "}", noApps, "tls.key_file: "},
		{"an expired certificate", "log: {level: debug}\n" + expired(t, ca), noApps, "the certificate expired at"},
		{"a secret that is gone", "log: {level: debug}\nsecret_file: testdata/nowhere", noApps, "secret_file: "},
		{"a deadline that goes with nothing but a setting that needs a restart", "log: {level: debug}\nlimits: {deadline_ms: 20000}\nhttp: {write_timeout_ms: 70000}",
			noApps, "http.write_timeout_ms: 30000 cuts off requests"},
	} {
		settings := row.settings
		if !strings.Contains(settings, "tls:") {
			settings = withTLS + settings
		}
		c.write(t, settings)
		if strings.Contains(settings, "secret_file") {
			c.rewrite(t, "secret_file: testdata/secret\n", "")
		}
		c.writeApps(t, row.apps)
		got := c.reload(t)
		if got.code != exitCheck || got.stdout != "" {
			t.Errorf("%s: code %d, stdout %q", row.what, got.code, got.stdout)
		}
		contains(t, row.what, got.stderr, row.want, "goes on as before")
		c.lastReload(t, 0)
		call(t, "GET", c.admin+"/livez", "", "")
		lacks(t, row.what, c.stderr.String(), `"level":"DEBUG"`, "the configuration was reloaded")
	}
	contains(t, "the log", c.stderr.String(), `"level":"ERROR","msg":"the configuration was not reloaded; all of the old one stays in use"`)
	c.write(t, withTLS+"log: {level: debug}")
	c.writeApps(t, noApps)
	if r := c.mustReload(t); strings.Join(r.Changed, " ") != "log.level" {
		t.Errorf("afterwards %+v", r)
	}
	c.lastReload(t, 1)
}

func (c *configured) rewrite(t *testing.T, old, with string) {
	t.Helper()
	text := bytes.Replace(mustRead(t, c.file), []byte(old), []byte(with), 1)
	if err := os.WriteFile(c.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func expired(t *testing.T, ca *certtest.CA) string {
	p := ca.Issue(t, certtest.Options{NotAfter: certtest.Past})
	return "tls: {cert_file: " + p.CertFile + ", key_file: " + p.KeyFile + "}"
}

func TestReloadOfCertificatesUnderOpenConnections(t *testing.T) {
	ca := certtest.New(t)
	first, second := ca.Issue(t, certtest.Options{Name: "first"}), ca.Issue(t, certtest.Options{Name: "second"})
	settings := func(p certtest.Pair) string {
		return "tls: {cert_file: " + p.CertFile + ", key_file: " + p.KeyFile + "}"
	}
	c := startConfigured(t, settings(first))
	client := tlsClient(t, ca, nil)
	shown := func(client *http.Client) string {
		got := get(t, client, c.api+"/v1/whoami")
		if got.TLS == nil || got.StatusCode != 401 {
			t.Fatalf("got %+v", got)
		}
		return got.TLS.PeerCertificates[0].Subject.CommonName
	}
	if got := shown(client); got != "first" {
		t.Fatalf("got %q", got)
	}
	ca.Write(t, first, certtest.Options{Name: "renewed"})
	c.mustReload(t)
	if old, fresh := shown(client), shown(tlsClient(t, ca, nil)); old != "first" || fresh != "renewed" {
		t.Errorf("after a renewal an open connection has %q, a new one %q", old, fresh)
	}
	c.write(t, settings(second))
	if r := c.mustReload(t); strings.Join(r.Changed, " ") != "tls.cert_file tls.key_file" {
		t.Errorf("other files: %+v", r)
	}
	if old, fresh := shown(client), shown(tlsClient(t, ca, nil)); old != "first" || fresh != "second" {
		t.Errorf("with other files an open connection has %q, a new one %q", old, fresh)
	}
	c.write(t, "")
	if r := c.mustReload(t); strings.Join(r.NeedsRestart, " ") != "tls.cert_file tls.key_file" {
		t.Errorf("TLS was switched off: %+v", r)
	}
	if got := shown(tlsClient(t, ca, nil)); got != "second" {
		t.Errorf("got %q", got)
	}
}

// Requests run all the time while the limit goes up and down: each is answered, by one limit or the other.
func TestReloadUnderLoad(t *testing.T) {
	vars := clusterVars(t)
	token := newToken(t, vars, "shop")
	dir := t.TempDir()
	c := &configured{file: filepath.Join(dir, "slotgate.yaml")}
	write := func(limit int) {
		text := fmt.Sprintf("limits: {value_max_bytes: %d, deadline_ms: %d}\n", limit, 5000+limit)
		if err := os.WriteFile(c.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(1000)
	c.running = startGateway(t, vars, "--config", c.file, "--set", "clusters.default.addrs="+strings.Join(clustertest.Shared(t).Addrs(), ","))
	c.waitReady(t)
	large := `{"value":"` + strings.Repeat("x", 600) + `"}`
	var served, refused atomic.Int64
	stop := make(chan struct{})
	var load sync.WaitGroup
	defer func() {
		close(stop)
		load.Wait()
		t.Logf("%d were served, %d refused", served.Load(), refused.Load())
	}()
	for i := range 4 {
		load.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				req, _ := http.NewRequest("PUT", fmt.Sprint(c.api, "/v1/strings/k", i), strings.NewReader(large))
				req.Header.Set("Authorization", "Bearer "+token)
				req.Header.Set("Content-Type", "application/json")
				switch got := do(t, client, req); got.StatusCode {
				case 200:
					served.Add(1)
				case 413:
					refused.Add(1)
				default:
					t.Errorf("status %d: %s", got.StatusCode, got.body)
				}
			}
		})
	}
	for n := range 20 {
		limit, count := 500, &refused
		if n%2 == 1 {
			limit, count = 1000, &served
		}
		write(limit)
		post := func() answer { return call(t, "POST", c.admin+"/reload", "", "") }
		expect(t, post(), 200, `"limits.value_max_bytes"`)
		before := count.Load()
		eventually(t, func() bool { return count.Load() > before+4 })
	}
}

func TestReloadsAtTheSameTime(t *testing.T) {
	c := startConfigured(t, "log: {sample: 1}")
	var all sync.WaitGroup
	var changed atomic.Int64
	c.write(t, "log: {sample: 2}")
	for range 8 {
		all.Go(func() {
			got := call(t, "POST", c.admin+"/reload", "", "")
			expect(t, got, 200, `"ok": true`)
			if strings.Contains(got.body, "log.sample") {
				changed.Add(1)
			}
		})
		all.Go(func() { call(t, "GET", c.api+"/v1/whoami", "", "") })
	}
	all.Wait()
	if n := changed.Load(); n != 1 {
		t.Errorf("%d reloads say that they have changed it", n)
	}
}

func TestSIGHUP(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "slotgate.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("log: {sample: 1}\n")
	cmd, stderr := process(t, fileVars(t, noApps), `"msg":"serving"`, "serve", "--config", file, "--set", "http.drain_delay_ms=3600000")
	said := func(text string) {
		t.Helper()
		eventually(t, func() bool { return strings.Contains(stderr.String(), text) })
	}

	write("log: {sample: 2}\n")
	signalProcess(t, cmd, syscall.SIGHUP)
	said(`"msg":"the configuration was reloaded","changed":["log.sample"],"needs_restart":[]`)
	write("log: {sample: x}\n")
	signalProcess(t, cmd, syscall.SIGHUP)
	said(`"msg":"the configuration was not reloaded; all of the old one stays in use"`)

	signalProcess(t, cmd, syscall.SIGTERM)
	said(`"msg":"draining"`)
	signalProcess(t, cmd, syscall.SIGHUP)
	said(`"msg":"the configuration was not reloaded","error":"the gateway is shutting down"`)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if len(ended) > 0 {
		t.Error("SIGHUP ended the drain")
	}
	eventually(t, func() bool { _ = cmd.Process.Signal(syscall.SIGTERM); return len(ended) > 0 })
}

func TestWhoMayReload(t *testing.T) {
	c := startConfigured(t, "")
	for _, row := range []struct {
		what, method, header, value string
		status                      int
	}{
		{"this machine may", "POST", "", "", 200},
		{"a GET does nothing", "GET", "", "", 405},
		{"a proxy on this machine may not", "POST", "X-Forwarded-For", "192.0.2.1", 403},
		{"nor with the standard's header", "POST", "Forwarded", "for=192.0.2.1", 403},
		{"a page in a browser may not", "POST", "Origin", "https://evil.example", 403},
		{"nor one without an origin", "POST", "Sec-Fetch-Site", "cross-site", 403},
		{"nor one whose name points here", "POST", "Host", "evil.example", 403},
	} {
		req, _ := http.NewRequest(row.method, c.admin+"/reload", nil)
		req.Close = true
		if row.header == "Host" {
			req.Host = row.value
		} else if row.header != "" {
			req.Header.Set(row.header, row.value)
		}
		if got := do(t, http.DefaultClient, req); got.StatusCode != row.status {
			t.Errorf("%s: status %d: %s", row.what, got.StatusCode, got.body)
		}
	}
	expect(t, call(t, "POST", c.api+"/reload", "", ""), 404)
	for remote, want := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true, "127.8.8.8:1": true,
		"10.0.0.1:1": false, "[fe80::1%eth0]:1": false, "": false, "@": false,
	} {
		if got := fromThisMachine(&http.Request{RemoteAddr: remote, Host: "localhost:8081"}); got != want {
			t.Errorf("from %q: %v", remote, got)
		}
	}
}

func TestReloadWithClientCertificates(t *testing.T) {
	ca, clients := certtest.New(t), certtest.New(t)
	server, ops := ca.Issue(t, certtest.Options{Hosts: []string{"gateway.example"}}), clients.Issue(t, certtest.Options{Name: "ops"})
	c := startConfigured(t, fmt.Sprintf("admin_tls: {cert_file: %s, key_file: %s, client_ca_file: %s}", server.CertFile, server.KeyFile, clients.File))
	own := []string{"--cert-file", ops.CertFile, "--key-file", ops.KeyFile}
	for _, row := range []struct {
		what string
		args []string
		code int
		want string
	}{
		{"with a certificate", own, exitOK, ""},
		{"without one", nil, exitDenied, "a client certificate of an authority in admin_tls.client_ca_file is needed"},
		{"by its authority", append(own, "--ca-file", ca.File), exitOK, ""},
		{"by another authority", append(own, "--ca-file", clients.File), exitFailure, "or send SIGHUP"},
		{"with half a pair", own[:2], exitUsage, "--cert-file and --key-file go together"},
		{"with files that are no pair", []string{"--cert-file", ops.CertFile, "--key-file", ops.CertFile}, exitUsage, "reading the client certificate"},
	} {
		got := c.reload(t, row.args...)
		if got.code != row.code {
			t.Errorf("%s: code %d: %s", row.what, got.code, got.stderr)
		}
		contains(t, row.what, got.stderr, row.want)
	}
}

// The guard of the admin listener looks before, and what is asked for can change between the two.
func TestReloadLooksAtTheClientItself(t *testing.T) {
	ca, clients := certtest.New(t), certtest.New(t)
	pair := ca.Issue(t, certtest.Options{})
	cfg := defaultConfig()
	cfg.AdminTLS = AdminTLS{CertFile: pair.CertFile, KeyFile: pair.KeyFile, MinVersion: "1.2", ClientCAFile: clients.File}
	certs, err := newCertificates(cfg, discard(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	reloader := newReloader(&gateway{cfg: cfg, certs: certs, log: discard()}, prometheus.NewRegistry())
	shown, err := parseCertificates(mustRead(t, clients.Issue(t, certtest.Options{}).CertFile))
	if err != nil {
		t.Fatal(err)
	}
	for remote, row := range map[string]struct {
		chain []*x509.Certificate
		want  int
	}{"192.0.2.1:1": {nil, 403}, "127.0.0.1:1": {nil, 403}, "192.0.2.2:1": {shown, 422}} { // 422: there is nothing to reload here
		req := httptest.NewRequest("POST", "https://localhost/reload", nil)
		req.RemoteAddr, req.TLS = remote, &tls.ConnectionState{PeerCertificates: row.chain}
		answer := httptest.NewRecorder()
		reloader.handler().ServeHTTP(answer, req)
		if answer.Code != row.want {
			t.Errorf("%s: %d %s", remote, answer.Code, answer.Body)
		}
	}
}

func TestReloadWithoutAGateway(t *testing.T) {
	other := startConfigured(t, "")
	_, api, _ := strings.Cut(other.api, "://")
	for _, row := range []struct {
		what, addr string
		code       int
		want       string
	}{
		{"nobody listens", "127.0.0.1:1", exitUnreachable, "connection refused"},
		{"a port that only the gateway knows", "127.0.0.1:0", exitUsage, "or send it SIGHUP"},
		{"another server", api, exitFailure, "is " + api + " its admin listener?"},
	} {
		got := slotgate(t, fileVars(t, noApps), "config", "reload", "--admin-listen", row.addr)
		if got.code != row.code {
			t.Errorf("%s: code %d: %s", row.what, got.code, got.stderr)
		}
		contains(t, row.what, got.stderr, row.want)
	}
}

func TestReloadBoundsIdempotencyRecordsAnew(t *testing.T) {
	vars := clusterVars(t)
	token := newToken(t, vars, "records")
	c := &configured{file: filepath.Join(t.TempDir(), "slotgate.yaml")}
	limits := func(text string) {
		if err := os.WriteFile(c.file, []byte("limits: {"+text+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	limits("idempotency_records_per_s: 1")
	c.running = startGateway(t, vars, "--config", c.file)
	c.waitReady(t)
	sent := 0
	add := func() int {
		sent++
		req, err := http.NewRequest("POST", c.api+"/v1/counters/n/add", strings.NewReader(`{"delta":1}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", fmt.Sprint("k", sent))
		return do(t, http.DefaultClient, req).StatusCode
	}
	eventually(t, func() bool { return add() == 429 })
	limits("idempotency_records_per_s: 1000, idempotency_ttl_s: 77")
	c.mustReload(t)
	for range 50 {
		if got := add(); got != 200 {
			t.Fatalf("after the reload the answer is %d", got)
		}
	}
	var kept atomic.Int64 // records of the new length
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: clustertest.Shared(t).Addrs()})
	defer client.Close()
	err := client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		all := node.Scan(ctx, 0, "slotgate:i:*", 1000).Iterator()
		for all.Next(ctx) {
			if ttl := node.TTL(ctx, all.Val()).Val(); ttl > 0 && ttl <= 77*time.Second {
				kept.Add(1)
			}
		}
		return all.Err()
	})
	if err != nil || kept.Load() < 50 {
		t.Errorf("%d records are kept for 77 s, %v", kept.Load(), err)
	}
}
