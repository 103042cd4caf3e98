// Package openapitest holds a server to the contract in tests: every answer must have a documented status, documented headers and a body
// of the documented shape, every request that succeeds must be one the document allows, and routes and paths must be the same set. It
// is no part of the gateway.
package openapitest

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"

	"github.com/slotgate/slotgate/openapi"
)

// contract is the document, with objects closed: a member that is not documented is a fault here, while clients must bear new ones.
type contract struct{ doc *openapi3.T }

var loadOnce = sync.OnceValues(func() (*contract, error) {
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Document())
	if err != nil {
		return nil, err
	}
	for _, ref := range doc.Components.Schemas {
		closeObject(ref.Value)
	}
	return &contract{doc}, nil
})

func load(t testing.TB) *contract {
	t.Helper()
	c, err := loadOnce()
	if err != nil {
		t.Fatalf("the OpenAPI document does not load: %v", err)
	}
	return c
}

func closeObject(s *openapi3.Schema) {
	if s.Type.Is(openapi3.TypeObject) && s.AdditionalProperties.Has == nil && s.AdditionalProperties.Schema == nil {
		no := false
		s.AdditionalProperties.Has = &no
	}
}

// find looks up the operation of a request by its path as it was sent: a%2Fb is one segment. It does what kin's routers do not, which
// decode first. nil means that the document has no such operation.
func (c *contract) find(method string, u *url.URL) (*routers.Route, map[string]string) {
	sent := strings.Split(u.EscapedPath(), "/")
	var best *routers.Route
	var bestParams map[string]string
	for path, item := range c.doc.Paths.Map() {
		op := item.GetOperation(method)
		params, ok := match(strings.Split(path, "/"), sent)
		// Of /docs/reference and /docs/{asset} the one with fewer variables is meant, as in every router.
		if op == nil || !ok || best != nil && len(params) >= len(bestParams) {
			continue
		}
		best = &routers.Route{Spec: c.doc, Path: path, PathItem: item, Method: method, Operation: op}
		bestParams = params
	}
	return best, bestParams
}

func match(template, sent []string) (map[string]string, bool) {
	if len(template) != len(sent) {
		return nil, false
	}
	params := map[string]string{}
	for i, part := range template {
		if !strings.HasPrefix(part, "{") {
			if part != sent[i] {
				return nil, false
			}
			continue
		}
		value, err := url.PathUnescape(sent[i])
		if err != nil || value == "" {
			return nil, false
		}
		params[strings.Trim(part, "{}")] = value
	}
	return params, true
}

// Transport checks every exchange that goes through it. next nil means http.DefaultTransport. Answers are read to their end before
// they are handed on.
func Transport(t testing.TB, next http.RoundTripper) http.RoundTripper {
	t.Helper()
	if next == nil {
		next = http.DefaultTransport
	}
	load(t)
	return &transport{t, next}
}

type transport struct {
	t    testing.TB
	next http.RoundTripper
}

// Route is a method and a path as gin writes it ("/v1/keys/:key").
type Route struct{ Method, Path string }

// Routes fails unless the routes are those of the document, both ways. HEAD routes count only where the document has HEAD.
func Routes(t testing.TB, routes []Route) {
	t.Helper()
	served := map[Route]bool{}
	for _, r := range routes {
		served[Route{r.Method, asTemplate(r.Path)}] = true
	}
	for path, item := range load(t).doc.Paths.Map() {
		for method, op := range item.Operations() {
			r := Route{method, path}
			if !served[r] {
				t.Errorf("%s: the document has %s %s, which is not served", op.OperationID, method, path)
			}
			delete(served, r)
		}
	}
	for r := range served {
		t.Errorf("%s %s is served, but not in the document", r.Method, r.Path)
	}
}

// asTemplate turns gin's :key and *key into {key}.
func asTemplate(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, ":") || strings.HasPrefix(part, "*") {
			parts[i] = "{" + part[1:] + "}"
		}
	}
	return strings.Join(parts, "/")
}
