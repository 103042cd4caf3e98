package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// fault is one thing wrong with the configuration: where, what stands there, and what should.
type fault struct {
	Field   string `json:"field"`            // path, "" for the file as a whole
	Origin  string `json:"origin,omitempty"` // "slotgate.yaml:12", "environment SLOTGATE_LISTEN", "flag --set"
	Problem string `json:"problem"`
}

func (f fault) Error() string {
	text := f.Problem
	if f.Field != "" {
		text = f.Field + ": " + text
	}
	if f.Origin != "" && f.Origin != originDefault {
		text += " (" + f.Origin + ")"
	}
	return text
}

// faults is an error made of all that is wrong.
type faults []fault

func (fs faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	if len(lines) == 1 {
		return "configuration: " + lines[0]
	}
	return fmt.Sprintf("configuration has %d faults:\n  %s", len(lines), strings.Join(lines, "\n  "))
}

// orNil keeps an empty list from becoming a non-nil error.
func (fs faults) orNil() error {
	if len(fs) == 0 {
		return nil
	}
	return fs
}

// override is a setting given on the command line.
type override struct{ Path, Text, Flag string }

// sources is where a configuration comes from.
type sources struct {
	File      string // "" = SLOTGATE_CONFIG, and without that no file
	Environ   []string
	Overrides []override
}

// loaded is a Config with the origin of each setting, by path.
type loaded struct {
	Config  Config
	Origins map[string]string
	Faults  faults // of the layers; Config.Validate has its own
	// Strangers are variables that name no setting. They only make config check fail: the environment is not ours alone.
	Strangers faults
}

const (
	originDefault = "default"
	envPrefix     = "SLOTGATE_"
	envFile       = "SLOTGATE_CONFIG"
	envActor      = "SLOTGATE_ACTOR"
)

// load lays the layers upon each other. It goes on after a fault, so that all are seen at once.
func load(src sources) loaded {
	l := loaded{Config: defaultConfig(), Origins: map[string]string{}}
	vars, file := environment(src.Environ), src.File
	if file == "" {
		file = vars[envFile]
	}
	delete(vars, envFile)
	delete(vars, envActor)
	if file != "" {
		l.readFile(file)
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		l.readVariable(name, vars[name])
	}
	for _, o := range src.Overrides {
		l.apply(o.Path, o.Text, "flag "+o.Flag)
	}
	l.dropUnusedDefault()
	return l
}

// dropUnusedDefault forgets the cluster "default", which the defaults only name, when others are configured instead.
func (l *loaded) dropUnusedDefault() {
	for path := range l.Origins {
		if strings.HasPrefix(path, "clusters."+defaultCluster+".") {
			return
		}
	}
	if len(l.Config.Clusters) > 1 {
		delete(l.Config.Clusters, defaultCluster)
	}
}

func (l *loaded) fault(field, origin, format string, args ...any) {
	l.Faults = append(l.Faults, fault{Field: field, Origin: origin, Problem: fmt.Sprintf(format, args...)})
}

func (l *loaded) readFile(file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		l.fault("", "", "reading the configuration file: %v", err)
		return
	}
	l.readYAML(filepath.Base(file), data)
}

func (l *loaded) apply(path, text, origin string) {
	if err := l.Config.setText(path, text); err != nil {
		l.fault(path, origin, "%v", err)
		return
	}
	l.Origins[path] = origin
}

// origin of a setting; what no layer touched has its default.
func (l *loaded) origin(path string) string {
	if o := l.Origins[path]; o != "" {
		return o
	}
	return originDefault
}

// environment keeps the SLOTGATE_ variables that somebody set for us; an empty one counts as not set, as compose files
// write them.
func environment(environ []string) map[string]string {
	vars := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, envPrefix) && value != "" && !isServiceLink(name, value) {
			vars[name] = value
		}
	}
	return vars
}

func (l *loaded) readVariable(name, value string) {
	if path := l.pathOf(name); path != "" {
		l.apply(path, value, "environment "+name)
		return
	}
	known := make([]string, 0, 64)
	for _, s := range l.Config.settings() {
		known = append(known, envName(s.Path))
	}
	problem := "names no setting; `slotgate config print` lists them"
	if near := nearest(name, known); near != "" {
		problem = "names no setting; did you mean " + near + "?"
	}
	l.Strangers = append(l.Strangers, fault{Field: name, Origin: "environment", Problem: problem})
}

// serviceLink is a variable that Kubernetes sets in every pod beside a Service whose name begins with slotgate.
var serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)$`)

func isServiceLink(name, value string) bool {
	return serviceLink.MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

// envName is the variable of a path.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// pathOf finds the setting of a variable, "" when there is none. Settings that exist go first, so a cluster whose
// name has a - is found too; a name not seen before is a new cluster or issuer.
func (l *loaded) pathOf(name string) string {
	for _, s := range l.Config.settings() {
		if envName(s.Path) == name {
			return s.Path
		}
	}
	for group, entry := range namedGroups {
		if rest, ok := strings.CutPrefix(name, envName(group)+"_"); ok {
			return pathOfEntry(group, rest, entry)
		}
	}
	return ""
}

// namedGroups are the groups of settings whose entries have names of the operator's choice.
var namedGroups = map[string]reflect.Type{
	"clusters": reflect.TypeFor[Cluster](), "jwt.trusted": reflect.TypeFor[TrustedIssuer](), "ceilings": reflect.TypeFor[Ceiling](),
}

// pathOfEntry finds the setting of an entry that was not seen before.
func pathOfEntry(group, rest string, entry reflect.Type) string {
	// The longest ending wins: PASSWORD_FILE is not the FILE of a cluster called X_PASSWORD.
	var leaves []setting
	collect(&leaves, "", reflect.Zero(entry))
	slices.SortFunc(leaves, func(a, b setting) int { return len(b.Path) - len(a.Path) })
	for _, leaf := range leaves {
		name, ok := strings.CutSuffix(rest, strings.TrimPrefix(envName("."+leaf.Path), envPrefix))
		if name = strings.ToLower(name); ok && clusterName.MatchString(name) {
			return group + "." + name + "." + leaf.Path
		}
	}
	return ""
}
