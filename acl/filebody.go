package acl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fileBody is what the file holds.
type fileBody struct {
	Clusters []Cluster `yaml:"clusters,omitempty"`
	Apps     []App     `yaml:"apps,omitempty"`
	Keys     []Key     `yaml:"keys,omitempty"`
}

func (b *fileBody) write(w io.Writer) error {
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	return errors.Join(enc.Encode(b), enc.Close())
}

// parseFile reads the whole file or reports every fault of it with its line.
func parseFile(data []byte) (*Set, error) {
	body, root, err := decodeFile(data)
	if err != nil {
		return nil, err
	}
	c := fileCheck{set: &Set{Apps: map[string]*App{}, Keys: map[string]*Key{}, Clusters: map[string]*Cluster{}}, namespaces: map[string]string{}}
	if len(body.Apps) == 0 && valueOf(root, "apps") == nil {
		// A file cut short must not log everybody out; nobody meaning to have no apps finds this hard to write.
		c.fault(root, &Fault{Field: "apps", Detail: "is missing; write apps: [] to have none"})
	}
	for i := range body.Clusters {
		c.cluster(item(root, "clusters", i), &body.Clusters[i])
	}
	for i := range body.Apps {
		app := body.Apps[i].WithDefaults()
		c.app(item(root, "apps", i), &app)
	}
	for i := range body.Keys {
		c.key(item(root, "keys", i), &body.Keys[i])
	}
	return c.set, c.faults.join()
}

func decodeFile(data []byte) (*fileBody, *yaml.Node, error) {
	var body fileBody
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&body); errors.Is(err, io.EOF) {
		return nil, nil, errors.New("it is empty; write apps: [] to have no apps")
	} else if err != nil {
		return nil, nil, readable(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("it holds more than one YAML document; put everything into one")
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, nil, err
	}
	root := &doc
	if len(doc.Content) > 0 {
		root = resolve(doc.Content[0])
	}
	return &body, root, nil
}

var (
	strayField  = regexp.MustCompile(`(not found|already set) in type \S+`)
	parserFault = regexp.MustCompile(`^line (\d+): (did not find expected .*)$`)
	wrongKind   = regexp.MustCompile("cannot unmarshal !!\\w+(?: (`.*`))? into (\\S+)")
)

// readable takes the Go types out of the messages.
func readable(err error) error {
	var t *yaml.TypeError
	if !errors.As(err, &t) {
		return parserLine(err)
	}
	var f faults
	for _, line := range t.Errors {
		if m := wrongKind.FindStringSubmatchIndex(line); m != nil {
			line = line[:m[0]] + strings.TrimSpace(string(wrongKind.ExpandString(nil, "$1", line, m))+" must be "+kindOf(line[m[4]:m[5]]))
		}
		line = strayField.ReplaceAllStringFunc(line, func(s string) string {
			if strings.HasPrefix(s, "not found") {
				return "is not known here"
			}
			return "is set twice"
		})
		f = append(f, errors.New(line))
	}
	return f.join()
}

// parserLine mends the line of a syntax error: yaml/v3 counts from 0 in what its parser (not its scanner) complains about.
func parserLine(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := parserFault.FindStringSubmatch(text); m != nil {
		if line, err := strconv.Atoi(m[1]); err == nil {
			text = fmt.Sprintf("line %d: %s", line+1, m[2])
		}
	}
	return errors.New(text)
}

func kindOf(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.HasPrefix(goType, "int"):
		return "a whole number of 64 bits"
	case goType == "time.Time":
		return "a time such as 2026-05-01T12:00:00Z"
	case strings.HasPrefix(goType, "acl.") && !slices.Contains([]string{"acl.Layout", "acl.State", "acl.Compression", "acl.Durability", "acl.ReadFrom", "acl.Priority"}, goType):
		return "a mapping of names to values"
	}
	return "text"
}

// A fileCheck gathers the entries and their faults.
type fileCheck struct {
	faults
	set        *Set
	namespaces map[string]string
}

func (c *fileCheck) cluster(node *yaml.Node, cluster *Cluster) {
	c.each(node, cluster.Validate())
	if c.set.Clusters[cluster.Name] != nil {
		c.fault(node, &Fault{Field: "name", Detail: fmt.Sprintf("cluster %q is here twice; names are unique", cluster.Name)})
	}
	c.set.Clusters[cluster.Name] = cluster
}

func (c *fileCheck) app(node *yaml.Node, app *App) {
	c.each(node, app.Validate())
	if c.set.Apps[app.ID] != nil {
		c.fault(node, &Fault{Field: "id", Detail: fmt.Sprintf("app %q is here twice; ids are unique", app.ID)})
		return
	}
	if other, taken := c.namespaces[app.Namespace]; taken {
		c.fault(node, &Fault{Field: "namespace", Detail: fmt.Sprintf("%q belongs to app %q already; use another", app.Namespace, other)})
	}
	c.namespaces[app.Namespace] = app.ID
	c.set.Apps[app.ID] = app
}

func (c *fileCheck) key(node *yaml.Node, key *Key) {
	c.each(node, key.Validate())
	if list := valueOf(node, "permissions"); list != nil && key.Permissions == nil {
		c.fault(node, &Fault{Field: "permissions", Detail: "is empty; leave it out for the app's permissions, or name those the key has"})
	}
	if c.set.Keys[key.ID] != nil {
		c.fault(node, &Fault{Field: "id", Detail: fmt.Sprintf("key %q is here twice; ids are unique", key.ID)})
		return
	}
	c.set.Keys[key.ID] = key
	app := c.set.Apps[key.App]
	if app == nil {
		c.fault(node, &Fault{Field: "app", Detail: fmt.Sprintf("there is no app %q in this file", key.App)})
		return
	}
	// Named commands are left to the intersection: their class is not known here.
	granted, _ := CompilePermissions(app.Permissions)
	over := slices.DeleteFunc(granted.Excess(key.Permissions, nil), func(entry string) bool {
		return new(rule).grant(entry) != nil || strings.HasPrefix(entry, commandPrefix+":")
	})
	if len(over) > 0 {
		c.fault(node, &Fault{Field: "permissions", Detail: fmt.Sprintf("%s is more than app %q may do", strings.Join(over, ", "), app.ID)})
	}
}

func (c *fileCheck) each(node *yaml.Node, err error) {
	for _, err := range list(err) {
		c.fault(node, err)
	}
}

// fault adds the line of the field it is about, or of the innermost thing around it that is written there.
func (c *fileCheck) fault(node *yaml.Node, err error) {
	if f, ok := err.(*Fault); ok {
		node = locate(node, f.Field)
	}
	c.faults = append(c.faults, fmt.Errorf("line %d: %w", max(node.Line, 1), err))
}

// locate follows a path such as limits[2].per as far as it goes.
func locate(node *yaml.Node, path string) *yaml.Node {
	for _, name := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune("[].", r) }) {
		next := valueOf(node, name)
		if i, err := strconv.Atoi(name); err == nil && node.Kind == yaml.SequenceNode && i < len(node.Content) {
			next = resolve(node.Content[i])
		}
		if next == nil {
			break
		}
		node = next
	}
	return node
}

// valueOf finds the value of a field in a mapping; nil when it is not there.
func valueOf(node *yaml.Node, field string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == field {
			return resolve(node.Content[i+1])
		}
	}
	return nil
}

func item(root *yaml.Node, field string, i int) *yaml.Node {
	if seq := valueOf(root, field); seq != nil && i < len(seq.Content) {
		return resolve(seq.Content[i])
	}
	return root
}

func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}
