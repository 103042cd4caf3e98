package deploy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// A proxy is one of the samples of a reverse proxy. start runs it before two gateways and returns where it listens; admin addresses
// answer /readyz.
type proxy struct {
	name    string
	program string
	pkg     string // that brings it
	must    bool   // a machine without it fails the test
	start   func(t *testing.T, program string, api, admin [2]string) string
	refuses map[string]int // raw paths of keys that it refuses itself, with the status
	blind   bool           // it does not ask /readyz
	repeats map[string]int // how often it sends a request that broke off, by method, where that is not once
}

var proxies = []proxy{
	{
		name: "nginx", program: "nginx", pkg: "nginx-core", must: true, start: startNginx,
		refuses: map[string]int{"a%00b": 400, "..%2F..%2F..%2Fup": 400},
		blind:   true,
		repeats: map[string]int{"GET": 2},
	},
	{name: "HAProxy", program: "haproxy", pkg: "haproxy", must: true, start: startHAProxy},
	{name: "Envoy", program: "envoy", pkg: "envoy", start: startEnvoy},
}

func (p proxy) run(t *testing.T, api, admin [2]string) string {
	t.Helper()
	if _, err := exec.LookPath(p.program); err != nil && !p.must {
		t.Skipf("%v: Debian has none; its sample was tried by hand, with Envoy 1.40", err)
	}
	addr := p.start(t, installed(t, p.program, p.pkg), api, admin)
	eventually(t, p.name+" passes requests", func() bool {
		s := status("http://" + addr + "/openapi.json")
		return s != 0 && s < 502
	})
	return addr
}

func startNginx(t *testing.T, program string, api, _ [2]string) string {
	addr, dir := freeAddr(t), t.TempDir()
	site := write(t, filepath.Join(dir, "slotgate.conf"), replaced(t, read(t, "nginx/slotgate.conf"),
		"listen 80;", "listen "+addr+";", "10.0.0.21:8080", api[0], "10.0.0.22:8080", api[1]))
	// What Debian's nginx.conf is around a site, in one process and with all files here.
	conf := write(t, filepath.Join(dir, "nginx.conf"), fmt.Sprintf(`daemon off; master_process off; error_log stderr; pid %[1]s/pid;
events { worker_connections 256; }
http {
  access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  include %[2]s;
}`, dir, site))
	if out, err := exec.Command(program, "-t", "-q", "-p", dir, "-c", conf).CombinedOutput(); err != nil {
		t.Fatalf("nginx -t: %v\n%s", err, out)
	}
	begin(t, exec.Command(program, "-p", dir, "-c", conf))
	return addr
}

func startHAProxy(t *testing.T, program string, api, admin [2]string) string {
	addr := freeAddr(t)
	text := replaced(t, read(t, "haproxy/haproxy.cfg"), "bind :80", "bind "+addr, "check port 8081 ", "check ")
	for i, server := range []string{"10.0.0.21:8080", "10.0.0.22:8080"} {
		text = replaced(t, text, server, api[i]+" addr 127.0.0.1 port "+portOf(admin[i]))
	}
	conf := write(t, filepath.Join(t.TempDir(), "haproxy.cfg"), text)
	if out, err := exec.Command(program, "-c", "-f", conf).CombinedOutput(); err != nil || strings.Contains(string(out), "WARNING") {
		t.Fatalf("haproxy -c: %v\n%s", err, out)
	}
	begin(t, exec.Command(program, "-db", "-f", conf))
	return addr
}

func startEnvoy(t *testing.T, program string, api, admin [2]string) string {
	addr := freeAddr(t)
	text := replaced(t, read(t, "envoy/envoy.yaml"), "address: 0.0.0.0, port_value: 80}", "address: 127.0.0.1, port_value: "+portOf(addr)+"}")
	for i, host := range []string{"10.0.0.21", "10.0.0.22"} {
		before, after, _ := strings.Cut(replaced(t, text, host+", port_value: 8080", "127.0.0.1, port_value: "+portOf(api[i])), "health_check_config: {port_value: 8081}")
		text = before + "health_check_config: {port_value: " + portOf(admin[i]) + "}" + after
	}
	conf := write(t, filepath.Join(t.TempDir(), "envoy.yaml"), text)
	if out, err := exec.Command(program, "--mode", "validate", "-c", conf).CombinedOutput(); err != nil {
		t.Fatalf("envoy --mode validate: %v\n%s", err, out)
	}
	begin(t, exec.Command(program, "-c", conf, "--concurrency", "1", "--disable-hot-restart", "-l", "warning"))
	return addr
}

// What is put through a proxy under this path is found at the gateway under the same path and nowhere else.
func TestProxiesPassKeysByteForByte(t *testing.T) {
	keys := []struct{ says, raw, key string }{
		{"a slash", "users%2F42", "users/42"},
		{"a slash in small letters", "users%2f43", "users/43"},
		{"a percent sign", "100%25", "100%"},
		{"what looks like an encoded slash", "a%252Fb", "a%2Fb"},
		{"two slashes", "a%2F%2Fb", "a//b"},
		{"a slash at both ends", "%2Fa%2F", "/a/"},
		{"two dots", "%2E%2E", ".."},
		{"a way up", "..%2Fup", "../up"},
		{"a way up and down", "a%2F..%2Fb%2F.%2Fc", "a/../b/./c"},
		{"a colon", "user:42", "user:42"},
		{"an encoded colon", "user%3A43", "user:43"},
		{"a plus and a space", "a+b%20c", "a+b c"},
		{"a question mark and a hash", "a%3Fb%23c", "a?b#c"},
		{"a semicolon", "a;b=c", "a;b=c"},
		{"an escape that was not needed", "%41", "A"},
		{"a line break", "a%0D%0Ab", "a\r\nb"},
		{"other letters", "%C3%A9%E6%97%A5", "é日"},
		{"a NUL byte", "a%00b", "a\x00b"},
		{"more ways up than the path is deep", "..%2F..%2F..%2Fup", "../../../up"},
	}
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			g := startGateway(t)
			addr := p.run(t, [2]string{g.api, g.api}, [2]string{g.admin, g.admin})
			for i, k := range keys {
				value := fmt.Sprint("value ", i)
				got, answer := g.call(t, "PUT", addr, "/v1/strings/"+k.raw, fmt.Sprintf(`{"value":%q}`, value))
				if want, ok := p.refuses[k.raw]; ok {
					if got != want {
						t.Errorf("%s: %d %s; it used to refuse that with %d: the sample's comment is out of date", k.says, got, answer, want)
					}
					continue
				}
				if got/100 != 2 {
					t.Errorf("%s: PUT %s through %s: %d %s", k.says, k.raw, p.name, got, answer)
					continue
				}
				var batch struct {
					Items []struct{ Key, Value string }
				}
				body, _ := json.Marshal(map[string]any{"keys": []string{k.key}})
				if _, answer = g.call(t, "POST", g.api, "/v1/mget", string(body)); json.Unmarshal([]byte(answer), &batch) != nil ||
					len(batch.Items) != 1 || batch.Items[0].Value != value {
					t.Errorf("%s: put as %s, the key %q holds %s", k.says, k.raw, k.key, answer)
				}
				if got, answer = g.call(t, "GET", addr, "/v1/strings/"+k.raw, ""); got != 200 || !strings.Contains(answer, value) {
					t.Errorf("%s: GET %s: %d %s", k.says, k.raw, got, answer)
				}
			}
			if got, answer := g.call(t, "GET", addr, "/v1/strings/users/42", ""); got != 404 || strings.Contains(answer, "key_not_found") {
				t.Errorf("a slash that is not encoded is another path, got %d %s", got, answer)
			}
			large := `{"value":"` + strings.Repeat("x", 1<<20) + `"}`
			if got, answer := g.call(t, "PUT", addr, "/v1/strings/large", large); got/100 != 2 {
				t.Errorf("a value of 1 MiB: %d %.200s", got, answer)
			}
		})
	}
}

// A gateway that breaks off has perhaps executed the request. Which proxy sends it again?
func TestProxiesSendAWriteOnce(t *testing.T) {
	for _, p := range proxies {
		for _, method := range []string{"GET", "PUT", "DELETE", "POST"} {
			t.Run(p.name+" "+method, func(t *testing.T) {
				var seen atomic.Int64
				broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !strings.HasPrefix(r.URL.Path, "/v1/") {
						return // healthy, as far as anybody can see
					}
					seen.Add(1)
					_, _ = io.Copy(io.Discard, r.Body)
					conn, _, _ := w.(http.Hijacker).Hijack()
					_ = conn.Close()
				}))
				t.Cleanup(broken.Close)
				there := strings.TrimPrefix(broken.URL, "http://")
				addr := p.run(t, [2]string{there, there}, [2]string{there, there})
				if got, answer := (gateway{}).call(t, method, addr, "/v1/strings/a", "{}"); got != 502 && got != 503 {
					t.Errorf("%d %s", got, answer)
				}
				if got, want := seen.Load(), max(1, p.repeats[method]); got != int64(want) {
					t.Errorf("it was sent %d times, not %d", got, want)
				}
			})
		}
	}
}

// Callers notice nothing of a gateway that is restarted, reading or writing, while its proxy asks /readyz.
func TestProxiesHideTheRestartOfAGateway(t *testing.T) {
	for _, p := range proxies {
		if p.blind {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			// With http.drain_delay_ms as it is by default: what is shorter than the sample needs to notice breaks connections that it
			// keeps, and a request on its way there is lost.
			g := startGateways(t, 2)
			addr := p.run(t, [2]string{g[0].api, g[1].api}, [2]string{g[0].admin, g[1].admin})
			stop, ended := make(chan struct{}), make(chan int)
			go func() {
				n := 0
				defer func() { ended <- n }()
				for {
					select {
					case <-stop:
						return
					default:
					}
					if got, answer := g[0].call(t, "PUT", addr, "/v1/strings/a", `{"value":"1"}`); got/100 != 2 {
						t.Errorf("PUT: %d %s", got, answer)
					}
					if got, answer := g[0].call(t, "GET", addr, "/v1/strings/a", ""); got != 200 {
						t.Errorf("GET: %d %s", got, answer)
					}
					n++
				}
			}()
			g[0].end()
			close(stop)
			if n := <-ended; n < 3 {
				t.Errorf("only %d pairs of requests were sent meanwhile", n)
			}
		})
	}
}

// A proxy that gives up before the gateway answers hides the outcome of a write; one that looks too seldom sends requests to a
// gateway that has stopped.
func TestProxiesWaitLongerThanTheGatewayAndLookOftenEnough(t *testing.T) {
	deadline, idle := setting(t, "limits.deadline_ms"), setting(t, "http.idle_timeout_ms")
	delay := setting(t, "http.drain_delay_ms")
	find := func(path, pattern string) time.Duration {
		t.Helper()
		m := regexp.MustCompile(pattern).FindStringSubmatch(read(t, path))
		if m == nil {
			t.Fatalf("%s has no %s", path, pattern)
		}
		d, err := time.ParseDuration(m[1])
		if err != nil {
			n, _ := strconv.Atoi(m[1])
			d = time.Duration(n) * time.Second
		}
		return d
	}
	for path, pattern := range map[string]string{
		"nginx/slotgate.conf": `proxy_read_timeout (\S+);`, "haproxy/haproxy.cfg": `timeout server (\S+)`, "envoy/envoy.yaml": `\n {28}timeout: (\S+)`,
	} {
		if wait := find(path, pattern); wait < 2*deadline {
			t.Errorf("%s waits %v, the gateway %v", path, wait, deadline)
		}
	}
	for path, pattern := range map[string]string{"nginx/slotgate.conf": `keepalive_timeout (\S+);`, "envoy/envoy.yaml": `idle_timeout: (\w+)`} {
		if kept := find(path, pattern); kept >= idle {
			t.Errorf("%s keeps idle connections for %v, the gateway for %v", path, kept, idle)
		}
	}
	for path, patterns := range map[string][3]string{ // between looks, how many, and what else it takes
		"haproxy/haproxy.cfg":  {`inter (\S+)`, `fall (\d+)`, `timeout connect (\S+)`},
		"envoy/envoy.yaml":     {`interval: (\S+)`, `unhealthy_threshold: (\d+)`, `- timeout: (\S+)`},
		"keepalived/lvs.conf":  {`delay_loop (\d+)`, `retry (\d+)`, `connect_timeout (\d+)`},
		"keepalived/pair.conf": {`interval (\d+)`, `fall (\d+)`, `timeout (\d+)`},
	} {
		if notices := find(path, patterns[0])*(find(path, patterns[1])/time.Second) + find(path, patterns[2]); notices >= delay {
			t.Errorf("%s notices a gateway that ends after %v, which ends after %v", path, notices, delay)
		}
	}
}

func setting(t *testing.T, path string) time.Duration {
	t.Helper()
	ms, err := strconv.Atoi(defaults(t)[path])
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return time.Duration(ms) * time.Millisecond
}

// For machines without Envoy: what must stand in its sample.
func TestEnvoyLeavesThePathAlone(t *testing.T) {
	text := read(t, "envoy/envoy.yaml")
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(text), &parsed); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"normalize_path: false", "merge_slashes: false", "path_with_escaped_slashes_action: KEEP_UNCHANGED",
		`retry_on: "connect-failure,refused-stream"`,
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("envoy.yaml lacks %q", want)
		}
	}
}

func TestKeepalivedTakesItsSamples(t *testing.T) {
	program := installed(t, "keepalived", "keepalived")
	complaint := func(t *testing.T, text string) string {
		conf := write(t, filepath.Join(t.TempDir(), "keepalived.conf"), text)
		out, err := exec.Command(program, "--config-test", "--log-console", "-f", conf).CombinedOutput()
		var exit *exec.ExitError
		// Version 2.2 ends itself with SIGTERM, without a word, when the configuration is good and has a script.
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM {
			err = nil
		}
		if err != nil {
			return fmt.Sprintf("%v\n%s", err, out)
		}
		return string(out)
	}
	for _, path := range []string{"keepalived/lvs.conf", "keepalived/pair.conf"} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			// An interface of this machine, and a script that is where the sample says it has to be.
			text := replaced(t, read(t, path), "interface eth0", "interface "+anyInterface(t))
			text = strings.ReplaceAll(text, "/etc/keepalived/check-slotgate", "/bin/true")
			if says := complaint(t, text); says != "" {
				t.Error(says)
			}
			if complaint(t, replaced(t, text, "advert_int", "advert_ink")) == "" {
				t.Error("a mistake passes, so the check shows nothing")
			}
		})
	}
}

// anyInterface is one of this machine's that VRRP could use. The configuration is only read.
func anyInterface(t *testing.T) string {
	t.Helper()
	all, err := net.Interfaces()
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagMulticast != 0 {
			return i.Name
		}
	}
	t.Skipf("this machine has no interface that VRRP could use (%v)", err)
	return ""
}

func TestKeepalivedsCheckAsksReadyz(t *testing.T) {
	var ready atomic.Bool
	ready.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "http://")
	check := func() error { return exec.Command("keepalived/check-slotgate", addr).Run() }
	if err := check(); err != nil {
		t.Errorf("ready: %v", err)
	}
	ready.Store(false)
	if check() == nil {
		t.Error("not ready, and the check passes")
	}
	server.Close()
	if check() == nil {
		t.Error("nobody listens, and the check passes")
	}
}
