package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Every testdata/busted_*.yaml has one fault; its first line says which: "# want: LINE TEXT", LINE 0 for the file as a whole.
func TestBustedFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/busted_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no busted files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			line, want := wanted(t, file)
			l := load(sources{File: file})
			found := false
			for _, f := range l.check() {
				switch {
				case strings.HasPrefix(f.Field+": "+f.Problem, want), f.Field == "" && strings.Contains(f.Problem, want):
					found = true
					if line != "0" && !strings.HasSuffix(f.Origin, file[len("testdata/"):]+":"+line) && !strings.Contains(f.Problem, "line "+line+":") {
						t.Errorf("the fault is said to be at %q, want line %s", f.Origin, line)
					}
				case strings.HasPrefix(f.Problem, "is empty;"): // these files name no secret and most no cluster
				default:
					t.Errorf("another fault: %v", f)
				}
			}
			if !found {
				t.Errorf("want %q, got %v", want, l.check())
			}
			got := slotgate(t, nil, "config", "check", "-c", file)
			if got.code != exitCheck || got.stdout != "" {
				t.Errorf("config check: code %d, stdout %q", got.code, got.stdout)
			}
			lacks(t, "config check", got.stderr, "hunter2")
		})
	}
}

func wanted(t *testing.T, file string) (line, text string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Scan()
	rest, ok := strings.CutPrefix(s.Text(), "# want: ")
	line, text, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 {
		t.Fatalf("%s does not begin with # want: LINE TEXT", file)
	}
	return line, text
}

func TestGoodFile(t *testing.T) {
	got := slotgate(t, nil, "config", "check", "-c", "testdata/good.yaml")
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("code %d: %s", got.code, got.stderr)
	}
	l := load(sources{File: "testdata/good.yaml"})
	want := Cluster{Addrs: []string{"127.0.0.1:7001", "[::1]:7002"}, Username: "gateway", Password: "hunter2"}
	for _, name := range []string{"main", "other-one"} {
		if !reflect.DeepEqual(l.Config.Clusters[name], want) {
			t.Errorf("cluster %s is %+v", name, l.Config.Clusters[name])
		}
	}
	if _, ok := l.Config.Clusters[defaultCluster]; ok {
		t.Error("the cluster default is there although others are configured")
	}
	if l.Config.Log != defaultConfig().Log {
		t.Error("an empty group changed settings")
	}
}

func TestPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "slotgate.yaml")
	text := "redis:\n  pool_size: 2\n  pipeline_pool_size: 2\n  read_timeout_ms: 2\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l := load(sources{
		File:      file,
		Environ:   []string{"SLOTGATE_REDIS_POOL_SIZE=3", "SLOTGATE_REDIS_PIPELINE_POOL_SIZE=3", "SLOTGATE_LISTEN="},
		Overrides: []override{{Path: "redis.pool_size", Text: "4", Flag: "--set"}},
	})
	for _, c := range []struct{ path, value, origin string }{
		{"redis.pool_size", "4", "flag --set"},
		{"redis.pipeline_pool_size", "3", "environment SLOTGATE_REDIS_PIPELINE_POOL_SIZE"},
		{"redis.read_timeout_ms", "2", "slotgate.yaml:4"},
		{"redis.write_timeout_ms", "1000", "default"},
		{"listen", "127.0.0.1:8080", "default"}, // an empty variable counts as not set
	} {
		for _, s := range l.Config.settings() {
			if s.Path == c.path && (fmt.Sprint(s.Value) != c.value || l.origin(s.Path) != c.origin) {
				t.Errorf("%s is %v from %s, want %s from %s", c.path, s.Value, l.origin(s.Path), c.value, c.origin)
			}
		}
	}
	if len(l.Faults) > 0 {
		t.Error(l.Faults)
	}
}

func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		name string
		vars []string
		path string
		want string
	}{
		{"a list has commas", []string{"SLOTGATE_CLUSTERS_DEFAULT_ADDRS=a:1, b:2,"}, "clusters.default.addrs", "[a:1 b:2]"},
		{"a new cluster appears", []string{"SLOTGATE_CLUSTERS_MAIN_ADDRS=a:1"}, "clusters.main.addrs", "[a:1]"},
		{"the longest ending wins", []string{"SLOTGATE_CLUSTERS_MAIN_PASSWORD_FILE=/run/pw"}, "clusters.main.password_file", "/run/pw"},
		{"a cluster's name may have an underscore", []string{"SLOTGATE_CLUSTERS_EU_WEST_USERNAME=u"}, "clusters.eu_west.username", "u"},
		{"a cluster of the file is met, its dash written as underscore",
			[]string{"SLOTGATE_CONFIG=testdata/good.yaml", "SLOTGATE_CLUSTERS_OTHER_ONE_USERNAME=u"}, "clusters.other-one.username", "u"},
		{"an issuer of tokens appears", []string{
			"SLOTGATE_JWT_TRUSTED_LOGIN_JWKS_FILE=/keys", "SLOTGATE_JWT_TRUSTED_LOGIN_ALGORITHMS=ES256,RS256",
		}, "jwt.trusted.login.algorithms", "[ES256 RS256]"},
		{"a boolean", []string{"SLOTGATE_HTTP_H2C=true"}, "http.h2c", "true"},
		{"SLOTGATE_CONFIG names the file", []string{"SLOTGATE_CONFIG=testdata/good.yaml"}, "redis.pool_size", "64"},
	} {
		l := load(sources{Environ: c.vars})
		if len(l.Faults) > 0 {
			t.Errorf("%s: %v", c.name, l.Faults)
		}
		found := false
		for _, s := range l.Config.settings() {
			found = found || s.Path == c.path && fmt.Sprint(s.Value) == c.want
		}
		if !found {
			t.Errorf("%s: %s is not %s", c.name, c.path, c.want)
		}
	}
}

func TestBadEnvironment(t *testing.T) {
	for pair, want := range map[string]string{
		"SLOTGATE_REDIS_POOL_SIZ=3":       "SLOTGATE_REDIS_POOL_SIZ: names no setting; did you mean SLOTGATE_REDIS_POOL_SIZE?",
		"SLOTGATE_FROBNICATE=3":           "SLOTGATE_FROBNICATE: names no setting",
		"SLOTGATE_REDIS_POOL_SIZE=many":   `redis.pool_size: "many" is not a whole number`,
		"SLOTGATE_CONFIG=/nowhere/x.yaml": "reading the configuration file: open /nowhere/x.yaml",
		"SLOTGATE_CLUSTERS_MAIN_PORT=1":   "SLOTGATE_CLUSTERS_MAIN_PORT: names no setting",
	} {
		got := slotgate(t, []string{pair}, "config", "check")
		if got.code != exitCheck {
			t.Errorf("%s: code %d", pair, got.code)
		}
		contains(t, pair, got.stderr, want)
	}
}

func TestForeignVariables(t *testing.T) {
	vars := append(fileVars(t, "apps: []\n"), "SLOTGATE_FROBNICATE=3")
	got := slotgate(t, vars, "app", "list")
	if got.code != 0 {
		t.Errorf("an unknown variable stops a command: %d", got.code)
	}
	contains(t, "stderr", got.stderr, "warning: SLOTGATE_FROBNICATE: names no setting")

	vars[len(vars)-1] = "SLOTGATE_SERVICE_HOST=10.0.0.1"
	vars = append(vars, "SLOTGATE_SERVICE_PORT=8080", "SLOTGATE_SERVICE_PORT_HTTP=8080", "SLOTGATE_PORT=tcp://10.0.0.1:8080",
		"SLOTGATE_PORT_8080_TCP=tcp://10.0.0.1:8080", "SLOTGATE_PORT_8080_TCP_ADDR=10.0.0.1", "SLOTGATE_ADMIN_SERVICE_HOST=10.0.0.2")
	if got := slotgate(t, vars, "config", "check"); got.code != 0 {
		t.Errorf("what Kubernetes sets fails the check: %s", got.stderr)
	}
}

func TestFlagMistakesNameTheirFlag(t *testing.T) {
	for _, c := range []struct{ arg, want string }{
		{"--set=redis.pool_sise=3", "redis.pool_sise: is no setting; did you mean pool_size? (flag --set)"},
		{"--set=redis=3", "redis: is a group of settings, not a value (flag --set)"},
		{"--set=listen.port=3", "listen.port: is a value and has no field port (flag --set)"},
		{"--set=clusters.A.addrs=a:1", `clusters.A.addrs: "A" is not a name`},
		{"--listen=nonsense", `listen: "nonsense" is not an address; write host:port, for example 127.0.0.1:8080 (flag --listen)`},
	} {
		got := slotgate(t, nil, "config", "check", c.arg)
		contains(t, c.arg, got.stderr, c.want)
	}
}

func TestCheckJSON(t *testing.T) {
	var report struct {
		OK     bool
		Faults []fault
	}
	got := slotgate(t, nil, "config", "check", "-o", "json", "-c", "testdata/busted_out_of_range.yaml")
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || report.OK || len(report.Faults) < 2 || got.code != exitCheck {
		t.Errorf("code %d, error %v: %s", got.code, err, got.stdout)
	}
	got = slotgate(t, nil, "config", "check", "-o", "json", "-c", "testdata/good.yaml")
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || !report.OK || got.code != exitOK {
		t.Errorf("code %d, error %v: %s", got.code, err, got.stdout)
	}
}

func TestPrintIsRedactedAndReadable(t *testing.T) {
	for _, form := range []string{"table", "json"} {
		got := slotgate(t, nil, "config", "print", "-o", form, "-c", "testdata/good.yaml")
		if got.code != 0 {
			t.Errorf("code %d: %s", got.code, got.stderr)
		}
		lacks(t, "config print", got.stdout, "hunter2")
		contains(t, "config print", got.stdout, redacted, "good.yaml:3")
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		l := load(sources{File: "testdata/good.yaml"})
		lacks(t, format, fmt.Sprintf(format, l.Config), "hunter2")
	}

	printed := slotgate(t, nil, "config", "print", "-c", "testdata/good.yaml").stdout
	file := filepath.Join(t.TempDir(), "again.yaml")
	if err := os.WriteFile(file, []byte(printed), 0o600); err != nil {
		t.Fatal(err)
	}
	first, again := load(sources{File: "testdata/good.yaml"}).Config, load(sources{File: file})
	for name, c := range first.Clusters {
		c.Password = redacted
		first.Clusters[name] = c
	}
	if len(again.Faults) > 0 || !reflect.DeepEqual(first, again.Config) {
		t.Errorf("what config print wrote reads differently: %v\n%s", again.Faults, printed)
	}
}

func TestEverySettingIsDocumentedAndBounded(t *testing.T) {
	numbers := map[string]bool{}
	for _, s := range defaultConfig().settings() {
		if k := s.Value.Kind(); k == reflect.Int || k == reflect.Int64 {
			numbers[s.Path] = true
			if _, ok := numberBounds[s.Path]; !ok {
				t.Errorf("%s has no bounds", s.Path)
			}
		}
		if s.Value.Kind() == reflect.Float64 {
			if _, err := thresholdNamed(strings.TrimPrefix(s.Path, "alerts.")); err != nil {
				t.Errorf("%s has no bounds: %v", s.Path, err)
			}
		}
	}
	for path := range numberBounds {
		if !numbers[path] {
			t.Errorf("bounds of %s, which is no number in Config", path)
		}
	}
	for _, r := range docRows() {
		if r.Doc == "" {
			t.Errorf("%s has no comment", r.Path)
		}
	}
}

func TestDefaultsLackOnlyAddressesAndSecret(t *testing.T) {
	got := defaultConfig().faults()
	if len(got) != 2 || got[0].Field != "clusters.default.addrs" || got[1].Field != "secret_file" {
		t.Errorf("faults of the defaults: %v", got)
	}
}

var update = flag.Bool("update", false, "rewrite the table of settings in README.md")

func TestReadmeHasTheTable(t *testing.T) {
	const file, begin, end = "../../README.md", "<!-- config:begin -->\n", "<!-- config:end -->"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("README.md lacks %q and %q", begin, end)
	}
	if table == configTable() {
		return
	}
	if !*update {
		t.Fatal("the table of settings in README.md is not that of Config; run go test ./cmd/slotgate -run Readme -update")
	}
	if err := os.WriteFile(file, []byte(before+begin+configTable()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
