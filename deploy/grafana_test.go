package deploy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ Type, UID string }
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct {
		Expr       string
		Datasource struct{ Type, UID string }
	}
}

type dashboard struct {
	UID, Title, Description string
	Tags                    []string
	Panels                  []panel
	Templating              struct {
		List []struct{ Name, Type, Definition string }
	}
}

// uids are part of people's bookmarks and of links: they stay.
var dashboardUIDs = map[string]string{"gateway.json": "slotgate-gateway", "app.json": "slotgate-app", "cluster.json": "slotgate-cluster"}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("grafana/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no dashboards", err)
	}
	all := map[string]dashboard{}
	for _, file := range files {
		var d dashboard
		if err := json.Unmarshal([]byte(read(t, file)), &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = d
	}
	return all
}

func TestDashboardsKeepTheirNamesAndAskForWhatTheyShow(t *testing.T) {
	all := dashboards(t)
	variables := map[string][]string{"gateway.json": {"datasource"}, "app.json": {"datasource", "app"}, "cluster.json": {"datasource", "cluster"}}
	for file, uid := range dashboardUIDs {
		d, ok := all[file]
		if !ok || d.UID != uid || d.Title == "" || d.Description == "" {
			t.Errorf("%s has uid %q, title %q, description %q", file, d.UID, d.Title, d.Description)
		}
		var names []string
		for _, v := range d.Templating.List {
			names = append(names, v.Name)
		}
		if !slices.Equal(names, variables[file]) {
			t.Errorf("%s has the variables %v, want %v", file, names, variables[file])
		}
		for _, name := range variables[file][1:] {
			for _, p := range d.Panels {
				for _, target := range p.Targets {
					if !strings.Contains(target.Expr, name+`="$`+name+`"`) {
						t.Errorf("%s: %q shows every %s: %s", file, p.Title, name, target.Expr)
					}
				}
			}
		}
	}
	if len(all) != len(dashboardUIDs) {
		t.Errorf("there are %d dashboards, known are %d", len(all), len(dashboardUIDs))
	}
}

func TestPanelsSayWhatTheyShow(t *testing.T) {
	// Grafana's names of units; a wrong one is shown as if it were text.
	units := []string{"reqps", "ops", "s", "bytes", "Bps", "percentunit", "short"}
	for file, d := range dashboards(t) {
		ids := map[int]bool{}
		titles := map[string]bool{}
		for _, p := range d.Panels {
			if ids[p.ID] {
				t.Errorf("%s: the id %d is there twice", file, p.ID)
			}
			ids[p.ID] = true
			if p.Type == "row" {
				continue
			}
			if key := p.Type + p.Title; p.Title == "" || titles[key] {
				t.Errorf("%s: the title %q is empty or there twice", file, p.Title)
			} else {
				titles[key] = true
			}
			if !strings.HasSuffix(p.Description, ".") || !slices.Contains(units, p.FieldConfig.Defaults.Unit) {
				t.Errorf("%s: %q has the description %q and the unit %q", file, p.Title, p.Description, p.FieldConfig.Defaults.Unit)
			}
			if len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
				t.Errorf("%s: %q has %d queries to the data source %q", file, p.Title, len(p.Targets), p.Datasource.UID)
			}
			for _, target := range p.Targets {
				if target.Datasource.UID != "${datasource}" {
					t.Errorf("%s: %q asks the data source %q", file, p.Title, target.Datasource.UID)
				}
			}
		}
	}
}

func TestPanelsDoNotLieOnEachOther(t *testing.T) {
	for file, d := range dashboards(t) {
		for i, p := range d.Panels {
			a := p.GridPos
			if a.W <= 0 || a.H <= 0 || a.X < 0 || a.X+a.W > 24 {
				t.Errorf("%s: %q is %+v, outside of the 24 columns", file, p.Title, a)
			}
			for _, q := range d.Panels[:i] {
				if b := q.GridPos; a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
					t.Errorf("%s: %q lies on %q", file, p.Title, q.Title)
				}
			}
		}
	}
}

// What compose mounts, where the provisioning looks, and whom it asks.
func TestComposeShowsTheDashboards(t *testing.T) {
	c := parse[compose](t, "compose.yaml")
	grafana, prometheus := c.Services["grafana"], c.Services["prometheus"]
	mounts := map[string]string{} // target to source
	for _, v := range slices.Concat(grafana.Volumes, prometheus.Volumes) {
		source, target, _ := strings.Cut(v, ":")
		target = strings.TrimSuffix(target, ":ro")
		mounts[target] = source
		if strings.HasPrefix(source, "./") {
			if _, err := os.Stat(source); err != nil {
				t.Errorf("compose mounts what is not there: %v", err)
			}
		} else if _, ok := c.Volumes[source]; !ok {
			t.Errorf("the volume %s is not declared", source)
		}
	}
	providers := parse[struct {
		Providers []struct{ Options struct{ Path string } }
	}](t, "grafana/provisioning/dashboards/slotgate.yaml").Providers
	if len(providers) != 1 || mounts[providers[0].Options.Path] != "./grafana/dashboards" {
		t.Errorf("dashboards are looked for in %+v, mounted are %v", providers, mounts)
	}
	if mounts["/etc/grafana/provisioning"] != "./grafana/provisioning" {
		t.Errorf("the provisioning is not where Grafana looks: %v", mounts)
	}
	if home := grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]; home != providers[0].Options.Path+"/gateway.json" {
		t.Errorf("the first page is %s", home)
	}
	sources := parse[struct {
		Datasources []struct{ Type, URL string }
	}](t, "grafana/provisioning/datasources/prometheus.yaml").Datasources
	if len(sources) != 1 || sources[0].Type != "prometheus" || sources[0].URL != "http://prometheus:9090" {
		t.Errorf("data sources are %+v", sources)
	}
	if mounts["/etc/slotgate/prometheus"] != "./prometheus" || !slices.Contains(prometheus.Command, "--config.file=/etc/slotgate/prometheus/prometheus.yaml") {
		t.Errorf("prometheus reads %v, mounted are %v", prometheus.Command, mounts)
	}
	for _, s := range []service{grafana, prometheus} {
		if len(s.Ports) != 1 || !strings.HasPrefix(s.Ports[0], "127.0.0.1:") {
			t.Errorf("%s is published as %v, want loopback alone", s.Image, s.Ports)
		}
	}
}

// Prometheus scrapes the admin listener of the gateway in compose, under the job name of which the rules speak.
func TestPrometheusScrapesTheGateway(t *testing.T) {
	jobs := parse[struct {
		Jobs []struct {
			Name    string                       `yaml:"job_name"`
			Targets []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}](t, "prometheus/prometheus.yaml").Jobs
	want := "gateway:" + portOf(defaults(t)["admin_listen"])
	if len(jobs) != 1 || jobs[0].Name != "slotgate" || len(jobs[0].Targets) != 1 || !slices.Equal(jobs[0].Targets[0].Targets, []string{want}) {
		t.Errorf("jobs are %+v, want slotgate with %s", jobs, want)
	}
	if _, ok := parse[compose](t, "compose.yaml").Services["gateway"]; !ok {
		t.Error("compose has no gateway of that name")
	}
}

// An alert that a panel names is one of the rules.
func TestPanelsNameAlertsThatExist(t *testing.T) {
	names := alertNames(t)
	for file, d := range dashboards(t) {
		for _, p := range d.Panels {
			for word := range strings.FieldsSeq(p.Description) {
				if word = strings.Trim(word, ".,:"); strings.HasPrefix(word, "Slotgate") && !slices.Contains(names, word) {
					t.Errorf("%s: %q names %s, which is no alert", file, p.Title, word)
				}
			}
		}
	}
}
