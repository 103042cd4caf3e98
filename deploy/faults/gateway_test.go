package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/localcluster"
)

// namespace is that of the app all scenarios call as.
const namespace = "faults"

// program is the gateway's, built once for all scenarios unless -gateway names another; "make clean" removes it.
var program = sync.OnceValues(func() (string, error) {
	if *built != "" {
		return filepath.Abs(*built)
	}
	path, err := filepath.Abs("../../bin/faults/slotgate")
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/slotgate").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// installation is what the gateways of a scenario have in common: a secret, a file with one app and one key, a cluster. The control store
// is a file, so that faults of the cluster are those of data alone.
type installation struct {
	cluster *localcluster.Cluster
	token   string
	env     []string
	// descriptors is how many a gateway may have open; 0: as many as these tests.
	descriptors int
}

// install makes an installation whose gateways know the cluster by these addresses: its own if none are given.
func install(t *testing.T, c *localcluster.Cluster, seeds ...string) *installation {
	t.Helper()
	if len(seeds) == 0 {
		seeds = c.Addrs()
	}
	dir := t.TempDir()
	apps := filepath.Join(dir, "apps.yaml")
	write(t, apps, "apps: []\nkeys: []\n")
	write(t, filepath.Join(dir, "secret"), strings.Repeat("secret", 8))
	in := &installation{cluster: c, env: append(os.Environ(),
		"SLOTGATE_SECRET_FILE="+filepath.Join(dir, "secret"), "SLOTGATE_CONTROL_FILE="+apps,
		"SLOTGATE_CLUSTERS_DEFAULT_ADDRS="+strings.Join(seeds, ","),
	)}
	app, _ := in.run(t, "app", "create", namespace, "--permission", "*")
	write(t, apps, app)
	key, shown := in.run(t, "key", "create", namespace)
	write(t, apps, app+"\n"+key)
	in.token = regexp.MustCompile(`sg_\w+`).FindString(shown)
	return in
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (in *installation) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	if in.descriptors > 0 {
		cmd = exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, in.descriptors), path}, args...)...)
	}
	cmd.Env = in.env
	return cmd
}

func (in *installation) run(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := in.command(t, args...)
	var told strings.Builder
	cmd.Stderr = &told
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("slotgate %v: %v\n%s", args, err, told.String())
	}
	return string(out), told.String()
}

// redis returns a new client of the cluster that knows nothing of gateways, with go-redis' defaults. Read results with one that was made after
// the fault: another may look for dead nodes for a minute.
func (in *installation) redis(t *testing.T) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: in.cluster.Addrs()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// gateway is one running "slotgate serve".
type gateway struct {
	api, admin string // host:port
	cmd        *exec.Cmd
	log        *logFile
	done       chan struct{}
}

// logFile counts what a gateway writes.
type logFile struct{ path string }

// lines returns the lines so far.
func (l *logFile) lines() []string {
	f, err := os.Open(l.path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var all []string
	for s := bufio.NewScanner(f); s.Scan(); {
		all = append(all, s.Text())
	}
	return all
}

// serve starts a gateway with these settings ("http.drain_delay_ms=0") and waits until it is ready. It ends with the test.
func (in *installation) serve(t *testing.T, settings ...string) *gateway {
	t.Helper()
	return in.serveOn(t, freeAddr(t), settings...)
}

// serveOn is serve on an address, such as that of a gateway that has ended.
func (in *installation) serveOn(t *testing.T, api string, settings ...string) *gateway {
	t.Helper()
	g := &gateway{api: api, admin: freeAddr(t), done: make(chan struct{}), log: &logFile{filepath.Join(t.TempDir(), "log")}}
	args := []string{"serve", "--listen", g.api, "--admin-listen", g.admin}
	// Without a balancer there is nobody to wait for; the log tells of errors alone. A scenario's own settings come later and win.
	for _, s := range append([]string{"http.drain_delay_ms=0", "log.sample=0", "pprof=true"}, settings...) {
		args = append(args, "--set", s)
	}
	g.cmd = in.command(t, args...)
	out, err := os.Create(g.log.path)
	if err != nil {
		t.Fatal(err)
	}
	g.cmd.Stdout, g.cmd.Stderr = out, out
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(g.done)
		defer out.Close()
		_ = g.cmd.Wait() // its end is what matters; the log says why
	}()
	t.Cleanup(func() {
		g.stop()
		if t.Failed() {
			lines := g.log.lines()
			t.Logf("the last words of %s:\n%s", g.api, strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
	})
	eventually(t, "the gateway is ready", func() bool { return status("http://"+g.admin+"/readyz") == 200 })
	return g
}

// stop ends the gateway by SIGTERM, after 30 s by SIGKILL, and waits.
func (g *gateway) stop() {
	g.signal(syscall.SIGTERM)
	select {
	case <-g.done:
	case <-time.After(30 * time.Second):
		g.kill()
	}
}

// kill ends the gateway as a crash would, and waits.
func (g *gateway) kill() {
	g.signal(syscall.SIGKILL)
	<-g.done
}

func (g *gateway) signal(s syscall.Signal) { _ = g.cmd.Process.Signal(s) } // an error says that it has ended

// freeAddr is an address on loopback that nobody listens on now.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// status asks once, on a connection of its own; 0 is no answer.
func status(url string) int {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// metric sums the samples of a metric whose line contains every one of the parts ("cluster=\"default\"").
func (g *gateway) metric(t *testing.T, name string, parts ...string) float64 {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + g.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sum := 0.0
lines:
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		rest, ok := strings.CutPrefix(s.Text(), name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		for _, p := range parts {
			if !strings.Contains(rest, p) {
				continue lines
			}
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += v
	}
	return sum
}

// size is what a gateway holds.
type size struct{ residentMB, liveMB, goroutines, descriptors int }

func (s size) String() string {
	return fmt.Sprintf("%d MB (%d MB live), %d goroutines, %d descriptors", s.residentMB, s.liveMB, s.goroutines, s.descriptors)
}

// size asks the kernel and the gateway.
func (g *gateway) size(t *testing.T) size {
	t.Helper()
	pid := g.cmd.Process.Pid
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	if err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return size{pages * os.Getpagesize() >> 20, g.live(t), int(g.metric(t, "go_goroutines")), len(fds)}
}

// live is what a collection leaves of the gateway's heap, in MB.
func (g *gateway) live(t *testing.T) int {
	t.Helper()
	r, err := http.Get("http://" + g.admin + "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	profile, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(profile), "# HeapAlloc = ")
	figure, _, _ := strings.Cut(rest, "\n")
	bytes, err := strconv.Atoi(figure)
	if !found || err != nil {
		t.Fatalf("no heap in the profile: %v", err)
	}
	return bytes >> 20
}

const (
	// slack is how many goroutines may come and go on their own: scrapes, polls of the nodes, a connection that is replaced.
	slack = 24
	// pooled is how many connections to Redis a gateway keeps at most when a fault has passed: redis.pool_size and
	// redis.pipeline_pool_size of each of the six nodes. Retries use them, and idle ones stay for the next fault.
	pooled = 6 * (32 + 8)
	// buffered is what may be live in the end and was not before, in MB: the buffers of those connections are 12 MB, those of pools of
	// items and answers some more.
	buffered = 32
)

// flat waits until the gateway holds no more goroutines than before a fault, no more descriptors than then and its pools, and no more memory
// than then and their buffers, and returns both sizes in words. Call it when no client is connected any more, as before.
func (g *gateway) flat(t *testing.T, before size) string {
	t.Helper()
	var now size
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		now = g.size(t)
		if now.goroutines <= before.goroutines+slack && now.descriptors <= before.descriptors+pooled && now.liveMB <= before.liveMB+buffered {
			return fmt.Sprintf("%v, before %v", now, before)
		}
		if time.Now().After(deadline) {
			t.Errorf("the gateway still holds %v, before the fault %v", now, before)
			return now.String()
		}
	}
}

// problem is the body of an error.
type problem struct {
	Code    string
	Outcome string
	Status  int
	Items   []struct {
		Key     string
		Outcome string
	}
}

func parseProblem(body []byte) problem {
	var p problem
	_ = json.Unmarshal(body, &p) // no JSON is no outcome, which is what is counted
	return p
}
