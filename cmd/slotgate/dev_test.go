package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// devRun is a running `slotgate dev`.
type devRun struct {
	gateway, key, config string
	stdout, stderr       *lockedBuffer
	stop                 func() int // waits for the end and returns the exit code
}

func startDev(t *testing.T, args ...string) devRun {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	d := devRun{stdout: &lockedBuffer{}, stderr: &lockedBuffer{}}
	code, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		args := append([]string{"dev", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)
		// A real cluster's address in the environment must not be believed.
		code = run(ctx, args, testEnv([]string{"SLOTGATE_CLUSTERS_DEFAULT_ADDRS=127.0.0.1:1"}, d.stdout, d.stderr))
	}()
	d.stop = func() int {
		cancel()
		<-ended
		return code
	}
	t.Cleanup(func() { d.stop() })
	d.awaitWelcome(t, ended)
	return d
}

func (d *devRun) awaitWelcome(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	for deadline := time.Now().Add(devStart); !strings.Contains(d.stderr.String(), "Ready after"); {
		select {
		case <-ended:
			t.Fatalf("dev ended: %s", d.stderr)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("dev is not ready:\n%s%s", d.stdout, d.stderr)
		}
	}
	text := d.stdout.String()
	for name, value := range map[string]*string{"GW": &d.gateway, "KEY": &d.key, "SLOTGATE_CONFIG": &d.config} {
		found := regexp.MustCompile(`(?m)^export ` + name + `=(\S+)$`).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("no export of %s:\n%s", name, text)
		}
		*value = found[1]
	}
}

// call makes a request with the key that dev has printed.
func (d *devRun) call(t *testing.T, method, path, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.gateway+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+d.key)
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s, %v", method, path, res.Status, got, err)
	}
	return string(got)
}

// tempFiles lists what is below the temporary folder of this test.
func tempFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(os.TempDir(), func(path string, _ os.DirEntry, err error) error {
		if path != os.TempDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestDevWithoutRedisServer(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	d := startDev(t)
	contains(t, "stderr", d.stderr.String(), "redis-server is not on PATH", "apt-get install redis-server")
	playWithDev(t, &d)
	if code := d.stop(); code != 0 {
		t.Errorf("code %d: %s", code, d.stderr)
	}
	if left := tempFiles(t); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	got := slotgate(t, nil, "dev", "--keep", t.TempDir(), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	if got.code != 1 {
		t.Errorf("--keep without redis-server: code %d", got.code)
	}
	contains(t, "--keep without redis-server", got.stderr, "--keep needs redis-server", "apt-get install redis-server")
}

// playWithDev does what the printed lines invite to.
func playWithDev(t *testing.T, d *devRun) {
	t.Helper()
	contains(t, "whoami", d.call(t, "GET", "/v1/whoami", ""), `"id":"demo"`, `"*"`)
	for _, key := range []string{"a", "b", "c", "d"} { // all nodes
		d.call(t, "PUT", "/v1/strings/"+key, `{"value":"hello `+key+`","ttl_ms":600000}`)
		contains(t, "GET "+key, d.call(t, "GET", "/v1/strings/"+key, ""), `"value":"hello `+key+`"`)
	}
	contains(t, "mget", d.call(t, "POST", "/v1/mget", `{"keys":["a","b","c","d"]}`), `"errors":false`, "hello c")
	contains(t, "add", d.call(t, "POST", "/v1/counters/n/add", `{"delta":2}`), `"value":2`)
	contains(t, "keys", d.call(t, "GET", "/v1/keys", ""), `"key":"a"`, `"key":"d"`)

	beside := []string{"SLOTGATE_CONFIG=" + d.config}
	list := slotgate(t, beside, "app", "list")
	if list.code != 0 {
		t.Errorf("app list: code %d: %s", list.code, list.stderr)
	}
	contains(t, "app list", list.stdout, "demo")
	if info, err := os.Stat(d.config); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the configuration: %v, %v", info.Mode(), err)
	}
}

func needRedisServer(t *testing.T) {
	t.Helper()
	if redisServer() != "" {
		return
	}
	if os.Getenv("SLOTGATE_TEST_ALLOW_SKIP") != "" {
		t.Skip("NOTHING IS TESTED HERE: redis-server is not installed")
	}
	t.Fatal("redis-server is not installed; apt-get install redis-server")
}

func TestDevKeepsData(t *testing.T) {
	needRedisServer(t)
	t.Setenv("TMPDIR", t.TempDir())
	dir := filepath.Join(t.TempDir(), "kept")
	d := startDev(t, "--keep", dir)
	playWithDev(t, &d)
	second := slotgate(t, nil, "dev", "--keep", dir, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	if second.code == 0 {
		t.Error("two runs share a folder")
	}
	contains(t, "a second run", second.stderr, "in use by process")
	first := d.key
	if code := d.stop(); code != 0 {
		t.Errorf("code %d: %s", code, d.stderr)
	}

	d = startDev(t, "--keep", dir)
	if d.key != first {
		t.Error("the key is another one")
	}
	contains(t, "GET a", d.call(t, "GET", "/v1/strings/a", ""), `"hello a"`)
	revoked := slotgate(t, []string{"SLOTGATE_CONFIG=" + d.config}, "key", "revoke", strings.Split(first, "_")[1])
	if revoked.code != 0 {
		t.Fatalf("revoking: %s", revoked.stderr)
	}
	d.stop()

	d = startDev(t, "--keep", dir)
	if d.key == first {
		t.Error("a revoked key is offered")
	}
	contains(t, "GET a", d.call(t, "GET", "/v1/strings/a", ""), `"hello a"`)
	if code := d.stop(); code != 0 {
		t.Errorf("code %d: %s", code, d.stderr)
	}
	if left := tempFiles(t); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestDevAfterAKill(t *testing.T) {
	needRedisServer(t)
	t.Setenv("TMPDIR", t.TempDir())
	killed, _ := process(t, nil, "Ready after", "dev", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	_ = killed.Process.Kill()
	_ = killed.Wait()
	if left := tempFiles(t); len(left) == 0 {
		t.Fatal("it had no files, so nothing is tested")
	}

	d := startDev(t, "--embedded")
	d.stop()
	if left := tempFiles(t); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestDevRefuses(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, row := range []struct {
		args, want string
		code       int
	}{
		{"--listen " + busy.Addr().String() + " --admin-listen 127.0.0.1:0", "is in use; give another address with --listen", 1},
		{"--listen 127.0.0.1:0 --admin-listen " + busy.Addr().String(), "is in use; give another address with --admin-listen", 1},
		{"--listen nonsense", "--listen nonsense: ", 2},
		{"--keep x --embedded", "leave out --embedded or --keep", 2},
		{"extra", `unknown command "extra"`, 2},
	} {
		got := slotgate(t, nil, append([]string{"dev"}, strings.Fields(row.args)...)...)
		if got.code != row.code {
			t.Errorf("dev %s: code %d, want %d", row.args, got.code, row.code)
		}
		contains(t, "dev "+row.args, got.stderr, row.want)
	}
}

func TestShellQuote(t *testing.T) {
	for path, want := range map[string]string{
		"/tmp/a-b_c.d/e": "/tmp/a-b_c.d/e",
		"/tmp/a b":       "'/tmp/a b'",
		"/tmp/it's":      `'/tmp/it'\''s'`,
		"/tmp/$HOME":     "'/tmp/$HOME'",
	} {
		if got := shellQuote(path); got != want {
			t.Errorf("shellQuote(%q) = %s, want %s", path, got, want)
		}
	}
}
