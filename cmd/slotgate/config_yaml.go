package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// readYAML lays a YAML file over the Config. It walks the nodes itself instead of decoding into the struct, since
// only a node knows its line, and because a decoder stops at the first unknown field.
func (l *loaded) readYAML(file string, data []byte) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return // an empty file sets nothing
	case err != nil:
		l.fault("", file, "%v", err)
		return
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		l.fault("", file, "holds more than one YAML document; keep the first")
		return
	}
	l.walk(file, "", doc.Content[0], reflect.TypeFor[Config]())
}

// walk takes the node at path, whose place in the Config has type t.
func (l *loaded) walk(file, path string, n *yaml.Node, t reflect.Type) {
	origin := fmt.Sprintf("%s:%d", file, n.Line)
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return // "clusters:" with all its lines commented out
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		l.walkMapping(file, path, n, t)
	case reflect.Slice:
		l.walkList(path, origin, n)
	default:
		if n.Kind != yaml.ScalarNode {
			l.fault(path, origin, "takes one value, not a %s", kindName(n))
			return
		}
		l.assign(path, origin, n.Value)
	}
}

func (l *loaded) walkMapping(file, path string, n *yaml.Node, t reflect.Type) {
	if n.Kind != yaml.MappingNode {
		l.fault(path, fmt.Sprintf("%s:%d", file, n.Line), "is a group of settings, not a %s", kindName(n))
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field, origin := join(path, key.Value), fmt.Sprintf("%s:%d", file, key.Line)
		if line, twice := first[key.Value]; twice {
			l.fault(field, origin, "is written twice, first in line %d", line)
			continue
		}
		first[key.Value] = key.Line
		inner, err := child(t, key.Value)
		if err != nil {
			l.fault(field, origin, "%v", err)
			continue
		}
		l.walk(file, field, value, inner)
	}
}

// child is the type of what stands under name in a struct or map.
func child(t reflect.Type, name string) (reflect.Type, error) {
	if t.Kind() == reflect.Map {
		if !clusterName.MatchString(name) {
			return nil, fmt.Errorf("%q is not a name; write lower case letters, digits, _ and -", name)
		}
		return t.Elem(), nil
	}
	f, ok := fieldNamed(t, name)
	if !ok {
		return nil, unknownField(name, fieldNames(t))
	}
	return f.Type, nil
}

func (l *loaded) walkList(path, origin string, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		l.fault(path, origin, "is a list; write [%s]", n.Value)
		return
	}
	items := make([]string, 0, len(n.Content))
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode {
			l.fault(path, origin, "is a list of plain values, one is a %s", kindName(item))
			return
		}
		items = append(items, item.Value)
	}
	l.assign(path, origin, items...)
}

func (l *loaded) assign(path, origin string, text ...string) {
	if err := l.Config.set(path, text...); err != nil {
		l.fault(path, origin, "%v", err)
		return
	}
	l.Origins[path] = origin
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "mapping"
	case yaml.SequenceNode:
		return "list"
	}
	return "single value"
}
