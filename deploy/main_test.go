package deploy_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// program is the gateway's, built once for all tests, where "make build" has its own; "make clean" removes it.
var program = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs("../bin/deploy-test/slotgate")
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-o", path, "../cmd/slotgate").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func built(t *testing.T) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// installed returns the path of a program, or ends the test: with a failure, unless a machine without it is allowed.
func installed(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case os.Getenv("SLOTGATE_TEST_ALLOW_SKIP") != "":
		t.Skipf("NOTHING IS TESTED HERE: %v (skipped because SLOTGATE_TEST_ALLOW_SKIP is set)", err)
	}
	t.Fatalf("%v: install it (apt-get install %s), or set SLOTGATE_TEST_ALLOW_SKIP=1 to skip this test", err, pkg)
	return ""
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// replaced is the text with every old replaced by its new; each must be there, or the file has changed under the test.
func replaced(t *testing.T, text string, oldNew ...string) string {
	t.Helper()
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(text, oldNew[i]) {
			t.Fatalf("there is no %q to replace", oldNew[i])
		}
		text = strings.ReplaceAll(text, oldNew[i], oldNew[i+1])
	}
	return text
}

// eventually polls until ok, for at most 30 s: a figure for a busy machine that nothing is measured by.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

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

// begin starts a program, which ends with the test: by SIGTERM, and 30 s later by SIGKILL. end does so before.
func begin(t *testing.T, cmd *exec.Cmd) (end func()) {
	t.Helper()
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
	})
	t.Cleanup(func() {
		end()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", filepath.Base(cmd.Path), output.String())
		}
	})
	return end
}

// gateway is a running "slotgate serve" on the shared cluster, with the key of an app that may do everything.
type gateway struct {
	api, admin, token string
	end               func() // by SIGTERM, and waits
}

func startGateway(t *testing.T) gateway {
	t.Helper()
	return startGateways(t, 1, "SLOTGATE_HTTP_DRAIN_DELAY_MS=0")[0]
}

// startGateways starts several that share the app, with these variables ("NAME=value") besides.
func startGateways(t *testing.T, n int, vars ...string) []gateway {
	t.Helper()
	env := append(append(os.Environ(),
		"SLOTGATE_CLUSTERS_DEFAULT_ADDRS="+strings.Join(clustertest.Shared(t).Addrs(), ","),
		"SLOTGATE_SECRET_FILE="+write(t, filepath.Join(t.TempDir(), "secret"), strings.Repeat("secret", 8)),
	), vars...)
	slotgate := func(args ...string) *exec.Cmd {
		cmd := exec.Command(built(t), args...)
		cmd.Env = env
		return cmd
	}
	run := func(args ...string) []byte {
		out, err := slotgate(args...).Output()
		if err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
		return out
	}
	app := strings.ToLower(rand.Text()) // a name is never used again, not even by -count=2
	run("app", "create", app, "--permission", "*")
	var made struct{ Token string }
	if err := json.Unmarshal(run("key", "create", app, "-o", "json"), &made); err != nil {
		t.Fatal(err)
	}
	all := make([]gateway, n)
	for i := range all {
		g := &all[i]
		*g = gateway{api: freeAddr(t), admin: freeAddr(t), token: made.Token}
		g.end = begin(t, slotgate("serve", "--listen", g.api, "--admin-listen", g.admin))
		eventually(t, "the gateway is ready", func() bool { return status("http://"+g.admin+"/readyz") == 200 })
	}
	return all
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

// call sends a request whose path goes out as it stands here.
func (g gateway) call(t *testing.T, method, host, rawPath, body string) (int, string) {
	t.Helper()
	req := &http.Request{
		Method: method, URL: &url.URL{Scheme: "http", Host: host, Opaque: rawPath}, Host: "slotgate.example.com",
		Header: http.Header{"Authorization": {"Bearer " + g.token}, "Content-Type": {"application/json"}},
		Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		t.Errorf("%s %s: %v", method, rawPath, err)
		return 0, ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}
