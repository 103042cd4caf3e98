package openapi

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed pages
var pageFS embed.FS

// pages are the HTML pages' templates.
type pages struct{ *template.Template }

func loadPages() (pages, error) {
	t, err := template.New("").Funcs(template.FuncMap{
		"markdown": markdown,
		"inline":   func(s string) template.HTML { return inline(strings.TrimSpace(s)) },
		"join":     strings.Join,
		"example":  exampleText,
		"isError":  func(status string) bool { return status >= "4" },
		"has":      slices.Contains[[]string],
	}).ParseFS(pageFS, "pages/*.html")
	return pages{t}, err
}

func (p pages) render(name string, data any) (*file, error) {
	var out bytes.Buffer
	if err := p.ExecuteTemplate(&out, name, data); err != nil {
		return nil, fmt.Errorf("rendering %s: %w", name, err)
	}
	return newFile("text/html; charset=utf-8", out.Bytes()), nil
}

// Group is one tag with its operations, for the reference.
type group struct {
	Name, Description string
	Operations        []*operation
}

// Groups sorts the operations by tag, tags and operations in the document's order.
func (s *spec) Groups() []group {
	var groups []group
	for _, tag := range s.Tags {
		g := group{Name: tag.Name, Description: tag.Description}
		for _, path := range s.Paths {
			for _, op := range s.operations(path) {
				if slices.Contains(op.Tags, tag.Name) {
					g.Operations = append(g.Operations, op)
				}
			}
		}
		groups = append(groups, g)
	}
	return groups
}

// Failures are the shared responses that have a body of their own, which the operations link to.
func (s *spec) Failures() []*response {
	var all []*response
	for _, r := range s.Components.Responses {
		if r.Value.Name = r.Name; len(r.Value.Content) > 0 {
			all = append(all, r.Value)
		}
	}
	return all
}

// Open reports whether the operation needs no app key.
func (op *operation) Open() bool { return op.Security != nil && len(*op.Security) == 0 }

// Needs is the permission in words.
func (op *operation) Needs() string {
	if len(op.Permission) == 1 && op.Permission[0] == "none" {
		return ""
	}
	text := strings.Join(op.Permission, " or ")
	for _, w := range op.When {
		text += "; " + w.Permission + " when " + w.When
	}
	return text
}

// Media is the one media type of the content, or nil.
func (r *response) Media() *entry[*mediaType] { return first(r.Content) }

// Media is the one media type of the content, or nil.
func (b *requestBody) Media() *entry[*mediaType] { return first(b.Content) }

func first(content ordered[*mediaType]) *entry[*mediaType] {
	if len(content) == 0 {
		return nil
	}
	return &content[0]
}

// Link is the name of the schema this one refers to, for an anchor; "" when it is written in place.
func (s *schema) Link() string {
	if s.Ref == "" {
		return ""
	}
	return last(s.Ref)
}

// Kind is the type in words.
func (s *schema) Kind() string {
	switch {
	case s.Type == "array":
		return "array of " + s.Items.Link() + s.Items.Kind()
	case s.Ref != "":
		return ""
	case len(s.AnyOf) > 0:
		kinds := make([]string, len(s.AnyOf))
		for i, one := range s.AnyOf {
			kinds[i] = one.Kind()
		}
		return strings.Join(kinds, ", or ")
	case s.Format != "":
		return s.Type + ", " + s.Format
	default:
		return s.Type
	}
}

// exampleText is an example as people read it: text as it is, everything else as indented JSON. "" when there is none.
func exampleText(n yaml.Node) (string, error) {
	if n.Kind == 0 {
		return "", nil
	}
	if n.Kind == yaml.ScalarNode {
		return n.Value, nil
	}
	var compact, pretty bytes.Buffer
	if err := writeJSON(&compact, &n); err != nil {
		return "", err
	}
	err := json.Indent(&pretty, compact.Bytes(), "", "  ")
	return pretty.String(), err
}
