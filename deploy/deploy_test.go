// Package deploy_test checks what is shipped beside the binary against the binary: names, ports and times that are written
// down twice must agree. Nothing here runs a container or systemd.
package deploy_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/slotgate/slotgate/store/localcluster/certtest"
)

// defaults are the settings in the README's table, which the tests of cmd/slotgate keep true: path to default.
func defaults(t *testing.T) map[string]string {
	t.Helper()
	_, rest, ok := strings.Cut(read(t, "../README.md"), "<!-- config:begin -->")
	table, _, ok2 := strings.Cut(rest, "<!-- config:end -->")
	if !ok || !ok2 {
		t.Fatal("README.md has no table of settings")
	}
	all := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `[^`]+` \\| `([^`]*)` \\|").FindAllStringSubmatch(table, -1) {
		all[m[1]] = m[2]
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func parse[T any](t *testing.T, path string) T {
	t.Helper()
	var v T
	if err := yaml.Unmarshal([]byte(read(t, path)), &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

// drain is the longest time that an orderly end takes.
func drain(t *testing.T) time.Duration {
	t.Helper()
	return setting(t, "http.drain_delay_ms") + setting(t, "http.shutdown_timeout_ms")
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

type service struct {
	Image       string
	Build       struct{ Context, Dockerfile string }
	Command     []string
	Ports       []string
	Environment map[string]string
	Secrets     []string
	Volumes     []string
	DependsOn   waits `yaml:"depends_on"`
	Networks    yaml.Node
	StopGrace   string `yaml:"stop_grace_period"`
}

// waits is on which services one waits, and for what; the short form is a list and waits for their start.
type waits map[string]struct{ Condition string }

// UnmarshalYAML takes both forms.
func (w *waits) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		return nil
	}
	return n.Decode((*map[string]struct{ Condition string })(w))
}

type compose struct {
	Services map[string]service
	Volumes  map[string]any
	Networks map[string]any
	Secrets  map[string]struct{ File string }
}

func TestComposeStartsSixNodesAndAGateway(t *testing.T) {
	c := parse[compose](t, "compose.yaml")
	gateway := c.Services["gateway"]
	var nodes []string
	addrs := map[string]string{} // node to its fixed address
	for name, s := range c.Services {
		if !strings.HasPrefix(name, "redis-") {
			continue
		}
		nodes = append(nodes, name)
		var networks map[string]struct {
			Addr string `yaml:"ipv4_address"`
		}
		if err := s.Networks.Decode(&networks); err != nil || networks["cluster"].Addr == "" {
			t.Fatalf("%s has no fixed address in the network (%v)", name, err)
		}
		addrs[name] = networks["cluster"].Addr + ":6379"
		if _, ok := c.Volumes[strings.Split(s.Volumes[0], ":")[0]]; !ok {
			t.Errorf("%s keeps its data in a volume that is not declared: %v", name, s.Volumes)
		}
		if c.Services["form"].DependsOn[name].Condition != "service_healthy" {
			t.Errorf("form does not wait for %s", name)
		}
	}
	if len(nodes) != 6 {
		t.Errorf("nodes are %v, want six", nodes)
	}
	known := slices.Collect(maps.Values(addrs))
	for seed := range strings.SplitSeq(gateway.Environment["SLOTGATE_CLUSTERS_DEFAULT_ADDRS"], ",") {
		if !slices.Contains(known, seed) {
			t.Errorf("the gateway's seed %q is no node", seed)
		}
	}
	if gateway.DependsOn["form"].Condition != "service_completed_successfully" {
		t.Error("the gateway does not wait for the cluster to be formed")
	}
}

func TestComposeRunsTheImageAsItIsBuilt(t *testing.T) {
	c := parse[compose](t, "compose.yaml")
	gateway := c.Services["gateway"]
	if _, err := os.Stat(filepath.Join(gateway.Build.Context, gateway.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
	api, admin := portOf(defaults(t)["listen"]), portOf(defaults(t)["admin_listen"])
	if len(gateway.Ports) != 1 || !strings.HasSuffix(gateway.Ports[0], ":"+api) || !strings.HasPrefix(gateway.Ports[0], "127.0.0.1:") {
		t.Errorf("published ports are %v, want %s on loopback and nothing else", gateway.Ports, api)
	}
	if strings.Contains(strings.Join(gateway.Ports, " "), admin) {
		t.Error("the admin listener is published")
	}
	for _, name := range gateway.Secrets {
		if c.Secrets[name].File == "" || gateway.Environment["SLOTGATE_SECRET_FILE"] != "/run/secrets/"+name {
			t.Errorf("secret %s is not the one that the gateway reads", name)
		}
	}
	if grace, err := time.ParseDuration(gateway.StopGrace); err != nil || grace <= drain(t) {
		t.Errorf("stop_grace_period %q (%v) is not above the drain of %v", gateway.StopGrace, err, drain(t))
	}
	if _, ok := c.Networks["cluster"]; !ok {
		t.Error("the network cluster is not declared")
	}
}

func TestDockerfileAgreesWithTheDefaults(t *testing.T) {
	text := read(t, "Dockerfile")
	api, admin := portOf(defaults(t)["listen"]), portOf(defaults(t)["admin_listen"])
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))
	for _, want := range []string{
		"SLOTGATE_LISTEN=:" + api, "SLOTGATE_ADMIN_LISTEN=:" + admin, "EXPOSE " + api + " " + admin + "\n",
		"golang:" + version[1] + "-", "USER nonroot", "distroless/static",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the Dockerfile lacks %q", want)
		}
	}
}

func TestImagesHealthCheckTellsALivingGatewayFromADeadOne(t *testing.T) {
	m := regexp.MustCompile(`(?m)^HEALTHCHECK .* CMD \["/usr/local/bin/slotgate", (.*)\]$`).FindStringSubmatch(read(t, "Dockerfile"))
	if m == nil {
		t.Fatal("the Dockerfile has no health check that runs slotgate")
	}
	args := strings.Split(strings.ReplaceAll(m[1], `"`, ""), ", ")
	g := startGateway(t)
	check := func() error {
		cmd := exec.Command(built(t), args...)
		cmd.Env = []string{"SLOTGATE_ADMIN_LISTEN=" + g.admin, "SLOTGATE_CLUSTERS_DEFAULT_ADDRS=127.0.0.1:1",
			"SLOTGATE_SECRET_FILE=" + write(t, filepath.Join(t.TempDir(), "secret"), strings.Repeat("secret", 8))}
		return cmd.Run()
	}
	if err := check(); err != nil {
		t.Errorf("alive, while Redis may be away: %v", err)
	}
	g.end()
	if check() == nil {
		t.Error("dead, and the check passes")
	}
}

func TestUnitGivesTheGatewayTimeToDrain(t *testing.T) {
	text := read(t, "systemd/slotgate.service")
	m := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatal("no TimeoutStopSec in seconds")
	}
	if seconds, _ := strconv.Atoi(m[1]); time.Duration(seconds)*time.Second <= drain(t) {
		t.Errorf("TimeoutStopSec=%s is not above the drain of %v", m[1], drain(t))
	}
}

// The gateway tells its state (cmd/slotgate/systemd.go), for which it needs a socket that the hardening leaves it.
func TestUnitHearsTheGateway(t *testing.T) {
	text := read(t, "systemd/slotgate.service")
	if !strings.Contains(text, "\nType=notify\n") || !regexp.MustCompile(`(?m)^RestrictAddressFamilies=.*\bAF_UNIX\b`).MatchString(text) {
		t.Error("the unit does not wait for READY=1, or forbids to send it")
	}
}

// systemd-analyze adds up what a service may do, from 0 (nothing) to 100 (everything).
func TestUnitMayDoLittle(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", "--threshold=15", "systemd/slotgate.service").CombinedOutput()
	if err != nil {
		t.Errorf("%v: it was 12 of 100\n%s", err, out)
	}
}

func TestUnitIsAccepted(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	// The binary is not installed here, and verify wants to see one.
	text := strings.ReplaceAll(read(t, "systemd/slotgate.service"), "=/usr/local/bin/slotgate", "=/bin/true")
	path := filepath.Join(t.TempDir(), "slotgate.service")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", "--man=no", path).CombinedOutput(); err != nil || bytes.Contains(out, []byte(path)) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// What the gateway itself says of the example and of what compose and the image set.
func TestConfigurationsAreGood(t *testing.T) {
	dir := t.TempDir()
	binary, secret := built(t), filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, bytes.Repeat([]byte("secret"), 8), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, env []string, args ...string) string {
		cmd := exec.Command(binary, append([]string{"config", "check", "--secret-file", secret}, args...)...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			return string(out)
		}
		return ""
	}
	t.Run("the example", func(t *testing.T) {
		if faults := check(t, nil, "--config", "slotgate.example.yaml"); faults != "" {
			t.Error(faults)
		}
	})
	t.Run("the example with all that is commented out", func(t *testing.T) {
		text := regexp.MustCompile(`(?m)^( *)# ([a-z_0-9]+:.*|  .*)$`).ReplaceAllString(read(t, "slotgate.example.yaml"), "$1$2")
		if !strings.Contains(text, "\nhttp:\n  drain_delay_ms") || !strings.Contains(text, "\n    password_file") {
			t.Fatalf("the comments were not taken away:\n%s", text)
		}
		password := filepath.Join(dir, "password")
		if err := os.WriteFile(password, []byte("pw"), 0o600); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "all.yaml")
		pair := certtest.New(t).Issue(t, certtest.Options{})
		text = strings.NewReplacer("/etc/slotgate/redis-password", password,
			"/etc/slotgate/api.pem", pair.CertFile, "/etc/slotgate/api.key", pair.KeyFile).Replace(text)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if faults := check(t, nil, "--config", path); faults != "" {
			t.Error(faults)
		}
	})
	t.Run("compose and the image", func(t *testing.T) {
		env := regexp.MustCompile(`SLOTGATE_\w+=\S+`).FindAllString(read(t, "Dockerfile"), -1)
		for name, value := range parse[compose](t, "compose.yaml").Services["gateway"].Environment {
			env = append(env, name+"="+value)
		}
		if faults := check(t, env); len(env) < 4 || faults != "" {
			t.Errorf("with %v: %s", env, faults)
		}
	})
	t.Run("a fault is found", func(t *testing.T) {
		if faults := check(t, []string{"SLOTGATE_LISTEN=nowhere"}); faults == "" {
			t.Error("a bad configuration passes the check, so the other cases show nothing")
		}
	})
}

// CONTRIBUTING.md gives a reason for each dependency.
func TestEveryDependencyHasAReason(t *testing.T) {
	reasons := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^` ]+)` \\|").FindAllStringSubmatch(read(t, "../CONTRIBUTING.md"), -1) {
		reasons[m[1]] = true
	}
	required := map[string]bool{} // module to direct
	for _, m := range regexp.MustCompile(`(?m)^(?:require)?\s+(\S+) v\S+( // indirect)?$`).FindAllStringSubmatch(read(t, "../go.mod"), -1) {
		required[m[1]] = m[2] == ""
	}
	for module, direct := range required {
		if direct && !reasons[module] {
			t.Errorf("%s is in go.mod without a reason in CONTRIBUTING.md", module)
		}
	}
	for module := range reasons {
		if _, ok := required[module]; !ok {
			t.Errorf("%s has a reason in CONTRIBUTING.md and is not in go.mod", module)
		}
	}
	if len(required) < 5 || len(reasons) < 5 {
		t.Errorf("found %d modules and %d reasons", len(required), len(reasons))
	}
}
