// Package openapi is the contract of slotgate: one hand-written OpenAPI 3.0.3 document, embedded, and the pages made from it. It promises
// that what it serves works without any other host, and it refuses to know anything of ours: the table of error codes is handed in,
// paths are registered by the handlers.
package openapi

import (
	_ "embed"
	"fmt"
	"io/fs"
	"net/http"
	"slices"

	"github.com/swaggest/swgui/v5/static"
)

//go:embed openapi.yaml
var document []byte

// Document is the contract as it was written, in YAML. The caller gets a copy.
func Document() []byte { return slices.Clone(document) }

// Problem is what GET /problems/{code} says about one error code.
type Problem struct {
	Code        string
	Status      int
	Title       string
	Explanation string // one or two sentences: what happened, what to do about it; `code` in backticks
	Retryable   bool
}

// Site serves the document, the pages to try and to read it, and the explanations of error codes. Everything is rendered and
// compressed once, by New; a Site never changes and may be used by any number of goroutines.
type Site struct {
	yaml, json, docs, reference *file
	assets, problems            map[string]*file
}

// New renders the site. An error means that the embedded document or a page is broken, which the tests of this package exclude.
func New(problems []Problem) (*Site, error) {
	doc, err := parse(document)
	if err != nil {
		return nil, fmt.Errorf("reading the OpenAPI document: %w", err)
	}
	js, err := toJSON(document)
	if err != nil {
		return nil, fmt.Errorf("converting the OpenAPI document to JSON: %w", err)
	}
	pages, err := loadPages()
	if err != nil {
		return nil, fmt.Errorf("reading the pages' templates: %w", err)
	}
	s := &Site{
		yaml:     newFile("application/yaml", document),
		json:     newFile("application/json", js),
		assets:   map[string]*file{},
		problems: map[string]*file{},
	}
	if s.docs, err = pages.render("docs.html", doc); err != nil {
		return nil, err
	}
	if s.reference, err = pages.render("reference.html", doc); err != nil {
		return nil, err
	}
	for _, p := range problems {
		if s.problems[p.Code], err = pages.render("problem.html", p); err != nil {
			return nil, err
		}
	}
	return s, s.loadAssets()
}

// loadAssets takes Swagger UI's two files from the module that packs them, and ours. The module's own handler is not used: its page
// has an inline script, which a strict Content-Security-Policy forbids, and it can relay requests to other hosts.
func (s *Site) loadAssets() error {
	for name, mediaType := range map[string]string{"swagger-ui-bundle.js": "text/javascript; charset=utf-8", "swagger-ui.css": "text/css; charset=utf-8"} {
		packed, err := fs.ReadFile(static.FS, name+".gz")
		if err != nil {
			return fmt.Errorf("reading Swagger UI: %w", err)
		}
		if s.assets[name], err = newPackedFile(mediaType, packed); err != nil {
			return fmt.Errorf("unpacking Swagger UI's %s: %w", name, err)
		}
	}
	for name, mediaType := range map[string]string{"docs.js": "text/javascript; charset=utf-8", "docs.css": "text/css; charset=utf-8"} {
		content, err := pageFS.ReadFile("pages/" + name)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		s.assets[name] = newFile(mediaType, content)
	}
	return nil
}

// YAML serves the document as it was written.
func (s *Site) YAML() http.Handler { return s.yaml }

// JSON serves the document as JSON, in the same order.
func (s *Site) JSON() http.Handler { return s.json }

// Docs serves the page to try operations on (Swagger UI). It belongs at /docs, its assets at /docs/{name}.
func (s *Site) Docs() http.Handler { return s.docs }

// Reference serves every operation on one page that needs no script. It belongs at /docs/reference.
func (s *Site) Reference() http.Handler { return s.reference }

// Asset serves one of the files the pages load; false when there is none of that name.
func (s *Site) Asset(name string) (http.Handler, bool) {
	f, ok := s.assets[name]
	return f, ok
}

// Problem serves the explanation of an error code; false when there is no such code.
func (s *Site) Problem(code string) (http.Handler, bool) {
	f, ok := s.problems[code]
	return f, ok
}
