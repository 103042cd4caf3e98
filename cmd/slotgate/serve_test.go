package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// running is a gateway started as `slotgate serve`.
type running struct {
	api, admin string // base URLs
	stderr     *lockedBuffer
	stop       context.CancelFunc // the signal
	code       chan int
}

// startGateway runs `slotgate serve` until the test ends.
func startGateway(t *testing.T, vars []string, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	g := &running{stderr: &lockedBuffer{}, stop: cancel, code: make(chan int, 1)}
	go func() {
		g.code <- run(ctx, append([]string{"serve"}, args...), testEnv(vars, &lockedBuffer{}, g.stderr))
	}()
	t.Cleanup(func() {
		cancel()
		if code := g.wait(t); code != 0 {
			t.Errorf("serve ended with %d:\n%s", code, g.stderr)
		}
	})
	eventually(t, func() bool {
		line := g.logLine("serving")
		if line == nil && len(g.code) > 0 {
			t.Fatalf("serve ended:\n%s", g.stderr)
		}
		if line == nil {
			return false
		}
		scheme := func(place string) string {
			if places, _ := line["tls"].([]any); slices.Contains(places, any(place)) {
				return "https://"
			}
			return "http://"
		}
		g.api, g.admin = fmt.Sprint(scheme("api"), line["api"]), fmt.Sprint(scheme("admin"), line["admin"])
		return true
	})
	return g
}

func (g *running) wait(t *testing.T) int {
	t.Helper()
	select {
	case code := <-g.code:
		g.code <- code
		return code
	case <-time.After(30 * time.Second):
		t.Fatal("serve does not end")
		return -1
	}
}

// logLine finds the first log line with this message.
func (g *running) logLine(message string) map[string]any {
	lines := bufio.NewScanner(strings.NewReader(g.stderr.String()))
	for lines.Scan() {
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) == nil && line["msg"] == message {
			return line
		}
	}
	return nil
}

// answer is a response, read.
type answer struct {
	*http.Response
	body string
}

// call sends one request on a connection of its own.
func call(t *testing.T, method, url, token, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return do(t, http.DefaultClient, req)
}

func do(t *testing.T, client *http.Client, req *http.Request) answer {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return answer{Response: &http.Response{Header: http.Header{}}}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return answer{resp, string(data)}
}

func expect(t *testing.T, got answer, status int, parts ...string) {
	t.Helper()
	if got.StatusCode != status {
		t.Errorf("status %d, want %d: %s", got.StatusCode, status, got.body)
	}
	contains(t, "the answer", got.body, parts...)
}

// newToken makes an app that may do all, and a key of it.
func newToken(t *testing.T, vars []string, app string) string {
	t.Helper()
	mustRun(t, vars, "app", "create", app, "--permission", "*")
	return tokenForm.FindString(mustRun(t, vars, "key", "create", app).stdout)
}

func (g *running) waitReady(t *testing.T) {
	t.Helper()
	eventually(t, func() bool { return call(t, "GET", g.admin+"/readyz", "", "").StatusCode == 200 })
}

func TestServe(t *testing.T) {
	vars := append(clusterVars(t), "SLOTGATE_LOG_SAMPLE=1")
	token := newToken(t, vars, "shop")
	g := startGateway(t, vars)
	g.waitReady(t)

	t.Run("an app's request goes to Redis and back", func(t *testing.T) {
		expect(t, call(t, "PUT", g.api+"/v1/strings/a", token, `{"value":"hello"}`), 200, `"etag"`)
		expect(t, call(t, "GET", g.api+"/v1/strings/a", token, ""), 200, `"hello"`)
		if v := redisClient(t).Get(t.Context(), "shop:a").Val(); v != "hello" {
			t.Errorf("Redis holds %q", v)
		}
	})
	t.Run("nobody else is let in", func(t *testing.T) {
		expect(t, call(t, "GET", g.api+"/v1/strings/a", "", ""), 401, "unauthenticated")
	})
	t.Run("a path is taken as it was sent", func(t *testing.T) {
		expect(t, call(t, "PUT", g.api+"/v1/strings/a%2Fttl+b", token, `{"value":"slash"}`), 200)
		if v := redisClient(t).Get(t.Context(), "shop:a/ttl+b").Val(); v != "slash" {
			t.Errorf("Redis holds %q", v)
		}
		expect(t, call(t, "GET", g.api+"/v1/strings/", token, ""), 400, "invalid_key")
		expect(t, call(t, "GET", g.api+"/v1//strings", token, ""), 400, "invalid_request")
		expect(t, call(t, "GET", g.api+"/v1/nothing", token, ""), 404, "not_found")
		expect(t, call(t, "DELETE", g.api+"/v1/whoami", token, ""), 405, "method_not_allowed")
	})
	t.Run("the admin listener tells operators", func(t *testing.T) {
		expect(t, call(t, "GET", g.admin+"/livez", "", ""), 200, "ok")
		expect(t, call(t, "GET", g.admin+"/readyz", "", ""), 200, "ok\n")
		expect(t, call(t, "GET", g.admin+"/readyz?verbose", "", ""), 200,
			"[+]drain ok\n[+]apps-and-keys ok\n[+]control-store ok\n[+]cluster-default ok\nreadyz check passed\n")
		expect(t, call(t, "GET", g.admin+"/metrics", "", ""), 200, "slotgate_build_info{", "go_goroutines", "process_open_fds",
			`slotgate_http_requests_total{`, `slotgate_redis_command_duration_seconds`)
		expect(t, call(t, "GET", g.admin+"/debug/pprof/", "", ""), 404)
		expect(t, call(t, "GET", g.admin+"/v1/whoami", token, ""), 404)
	})
	t.Run("and which nodes answer reads, once replicas may", func(t *testing.T) {
		expect(t, call(t, "GET", g.admin+"/replicas", "", ""), 200, `{"nodes":[]}`)
		eventually(t, func() bool {
			_ = call(t, "GET", g.api+"/v1/keys/greeting?read=replica", token, "")
			list := call(t, "GET", g.admin+"/replicas", "", "").body
			return strings.Contains(list, `"role":"primary","state":"healthy"`) && strings.Contains(list, `"role":"replica","state":"healthy"`) && strings.Contains(list, `"staleness_ms":`)
		})
	})
	t.Run("and callers are not told", func(t *testing.T) {
		for _, path := range []string{"/livez", "/metrics", "/replicas", "/debug/pprof/", "/readyz"} {
			expect(t, call(t, "GET", g.api+path, token, ""), 404)
		}
	})
	t.Run("a revoked key is refused", func(t *testing.T) {
		second := tokenForm.FindString(mustRun(t, vars, "key", "create", "shop").stdout)
		eventually(t, func() bool { return call(t, "GET", g.api+"/v1/whoami", second, "").StatusCode == 200 })
		mustRun(t, vars, "key", "revoke", second)
		eventually(t, func() bool { return call(t, "GET", g.api+"/v1/whoami", second, "").StatusCode == 401 })
	})

	g.stop()
	if code := g.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
	lacks(t, "the log", g.stderr.String(), token, "hello", `"panic"`)
	contains(t, "the log", g.stderr.String(), `"route":"/v1/strings/:key"`, `"msg":"draining"`, `"msg":"stopped","error":null`)
	line := g.logLine("serving")
	for _, field := range []string{"version", "revision", "gomaxprocs", "gomemlimit", "control"} {
		if line[field] == nil {
			t.Errorf("the first line lacks %s: %v", field, line)
		}
	}
}

func TestRevokeReachesEveryGateway(t *testing.T) {
	vars := clusterVars(t)
	token := newToken(t, vars, "shop")
	gateways := []*running{startGateway(t, vars), startGateway(t, vars)}
	status := func(g *running) int { return call(t, "GET", g.api+"/v1/whoami", token, "").StatusCode }
	for _, g := range gateways {
		g.waitReady(t)
		eventually(t, func() bool { return status(g) == 200 })
	}
	mustRun(t, vars, "key", "revoke", token)
	revoked := time.Now()
	for i, g := range gateways {
		eventually(t, func() bool { return status(g) == 401 })
		t.Logf("gateway %d refuses the key %v after the revoke was acknowledged", i+1, time.Since(revoked))
	}
}

func TestServeSettings(t *testing.T) {
	vars := fileVars(t, "apps: []\n")
	g := startGateway(t, vars, "--set", "pprof=true", "--set", "readyz_on_api=true", "--set", "http.h2c=true", "--set", "http.max_header_bytes=4096")
	t.Run("pprof", func(t *testing.T) {
		expect(t, call(t, "GET", g.admin+"/debug/pprof/", "", ""), 200, "goroutine")
	})
	t.Run("without a cluster it lives and is not ready", func(t *testing.T) {
		expect(t, call(t, "GET", g.admin+"/livez", "", ""), 200)
		eventually(t, func() bool {
			return strings.Contains(call(t, "GET", g.admin+"/readyz", "", "").body, "[+]apps-and-keys ok")
		})
		got := call(t, "GET", g.admin+"/readyz", "", "")
		expect(t, got, 503, "[+]drain ok", "[-]cluster-default failed: ", "readyz check failed")
	})
	t.Run("readyz as JSON", func(t *testing.T) {
		req, _ := http.NewRequest("GET", g.admin+"/readyz", nil)
		req.Header.Set("Accept", "application/json")
		req.Close = true
		expect(t, do(t, http.DefaultClient, req), 503, `"ready":false`, `{"name":"apps-and-keys","ok":true}`)
	})
	t.Run("readyz on the API listener", func(t *testing.T) {
		got := call(t, "GET", g.api+"/readyz", "", "")
		expect(t, got, 503)
		lacks(t, "what everybody may see", got.body, "127.0.0.1", "refused")
	})
	t.Run("HTTP/2 without TLS", func(t *testing.T) {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: protocols}
		defer transport.CloseIdleConnections()
		req, _ := http.NewRequest("GET", g.api+"/v1/whoami", nil)
		if got := do(t, &http.Client{Transport: transport}, req); got.ProtoMajor != 2 || got.StatusCode != 401 {
			t.Errorf("%s, status %d", got.Proto, got.StatusCode)
		}
	})
	t.Run("large headers are 431", func(t *testing.T) {
		req, _ := http.NewRequest("GET", g.api+"/v1/whoami", nil)
		req.Header.Set("X-Large", strings.Repeat("x", 9000))
		req.Close = true
		expect(t, do(t, http.DefaultClient, req), 431)
	})
}

func TestServeFailures(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	vars := fileVars(t, "apps: []\n")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--listen", taken.Addr().String()}, 1, "address already in use"},
		{[]string{"--admin-listen", taken.Addr().String()}, 1, "listening on admin_listen"},
		{[]string{"--set", "redis.pool_size=0"}, 1, "redis.pool_size: 0 is out of range"},
		{[]string{"--set", "control.file=/nowhere"}, 1, "control.file: reading apps"},
		{[]string{"extra"}, 2, "unknown command"},
	} {
		got := slotgate(t, vars, append([]string{"serve"}, c.args...)...)
		if got.code != c.code {
			t.Errorf("serve %v: code %d, want %d", c.args, got.code, c.code)
		}
		contains(t, fmt.Sprint("serve ", c.args), got.stderr, c.want)
	}
}

func TestPasswordsOfClusters(t *testing.T) {
	file := t.TempDir() + "/password"
	if err := os.WriteFile(file, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cluster Cluster
		want    string
	}{
		{Cluster{}, ""},
		{Cluster{Password: "hunter2"}, "hunter2"},
		{Cluster{PasswordFile: file}, "hunter2"},
	} {
		if got, err := c.cluster.password(); err != nil || got != c.want {
			t.Errorf("%+v: %q, %v", c.cluster, got, err)
		}
	}
}
