package openapi

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// spec is the part of the document that the pages show. It is not a general reader of OpenAPI: it knows the subset that the tests allow
// in openapi.yaml, and a library that knows all of it would weigh more in the binary than the rest of this package.
type spec struct {
	Info struct {
		Title, Version, Description string
	}
	Tags []struct {
		Name, Description string
	}
	Paths      ordered[pathItem]
	Components struct {
		Parameters    map[string]*parameter
		RequestBodies map[string]*requestBody `yaml:"requestBodies"`
		Responses     ordered[*response]
		Schemas       ordered[*schema]
	}
}

type pathItem struct {
	Parameters                          []*parameter
	Get, Head, Put, Post, Patch, Delete *operation
}

type operation struct {
	Method, Path string `yaml:"-"`
	ID           string `yaml:"operationId"`
	Tags         []string
	Summary      string
	Description  string
	Parameters   []*parameter
	RequestBody  *requestBody `yaml:"requestBody"`
	Responses    ordered[*response]
	Security     *[]map[string][]string // empty, not absent: open to everybody
	Permission   words                  `yaml:"x-permission"`
	When         []struct {
		When, Permission string
	} `yaml:"x-permission-when"`
	Commands words  `yaml:"x-redis-commands"`
	Cost     string `yaml:"x-cost"`
	MinRedis string `yaml:"x-min-redis"`
	Samples  []struct {
		Lang, Source string
	} `yaml:"x-codeSamples"`
}

type parameter struct {
	Ref         string `yaml:"$ref"`
	Name, In    string
	Required    bool
	Description string
	Schema      *schema
	Example     yaml.Node
}

type requestBody struct {
	Ref         string `yaml:"$ref"`
	Description string
	Content     ordered[*mediaType]
}

type response struct {
	Ref         string `yaml:"$ref"`
	Name        string `yaml:"-"` // of the component, for a link
	Description string
	Headers     ordered[yaml.Node]
	Content     ordered[*mediaType]
}

type mediaType struct {
	Schema   *schema
	Example  yaml.Node
	Examples ordered[struct {
		Summary string
		Value   yaml.Node
	}]
}

type schema struct {
	Ref         string `yaml:"$ref"`
	Type        string
	Format      string
	Description string
	Enum        []string
	Items       *schema
	Required    []string
	Properties  ordered[*schema]
	AnyOf       []*schema `yaml:"anyOf"`
}

// ordered is a mapping in the order it was written in.
type ordered[T any] []entry[T]

type entry[T any] struct {
	Name  string
	Value T
}

// UnmarshalYAML reads a mapping.
func (o *ordered[T]) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: not a mapping", n.Line)
	}
	for i := 0; i < len(n.Content); i += 2 {
		e := entry[T]{Name: n.Content[i].Value}
		if err := n.Content[i+1].Decode(&e.Value); err != nil {
			return err
		}
		*o = append(*o, e)
	}
	return nil
}

func (o ordered[T]) find(name string) (T, bool) {
	for _, e := range o {
		if e.Name == name {
			return e.Value, true
		}
	}
	var none T
	return none, false
}

// words is a string or a list of them.
type words []string

// UnmarshalYAML reads either form.
func (w *words) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*w = words{n.Value}
		return nil
	}
	return n.Decode((*[]string)(w))
}

// parse reads the document and puts the referenced parameters, bodies and responses in their places.
func parse(doc []byte) (*spec, error) {
	s := &spec{}
	if err := yaml.Unmarshal(doc, s); err != nil {
		return nil, err
	}
	for i := range s.Paths {
		for _, op := range s.operations(s.Paths[i]) {
			if err := s.resolve(op); err != nil {
				return nil, fmt.Errorf("%s: %w", op.ID, err)
			}
		}
	}
	return s, nil
}

// operations lists a path's operations, in the order in which people look for them, and tells each where it is.
func (s *spec) operations(path entry[pathItem]) []*operation {
	var all []*operation
	for _, m := range []struct {
		method string
		op     *operation
	}{{"GET", path.Value.Get}, {"HEAD", path.Value.Head}, {"PUT", path.Value.Put}, {"POST", path.Value.Post}, {"PATCH", path.Value.Patch}, {"DELETE", path.Value.Delete}} {
		if m.op != nil {
			m.op.Method, m.op.Path = m.method, path.Name
			all = append(all, m.op)
		}
	}
	return all
}

func (s *spec) resolve(op *operation) error {
	path, _ := s.Paths.find(op.Path)
	op.Parameters = append(append([]*parameter{}, path.Parameters...), op.Parameters...)
	for i, p := range op.Parameters {
		if p.Ref != "" {
			if op.Parameters[i] = s.Components.Parameters[last(p.Ref)]; op.Parameters[i] == nil {
				return fmt.Errorf("no such parameter: %s", p.Ref)
			}
		}
	}
	if b := op.RequestBody; b != nil && b.Ref != "" {
		if op.RequestBody = s.Components.RequestBodies[last(b.Ref)]; op.RequestBody == nil {
			return fmt.Errorf("no such body: %s", b.Ref)
		}
	}
	for i, r := range op.Responses {
		if r.Value.Ref == "" {
			continue
		}
		shared, ok := s.Components.Responses.find(last(r.Value.Ref))
		if !ok {
			return fmt.Errorf("no such response: %s", r.Value.Ref)
		}
		shared.Name = last(r.Value.Ref)
		op.Responses[i].Value = shared
	}
	return nil
}

func last(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }
