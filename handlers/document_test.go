package handlers_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/handlers"
	"github.com/slotgate/slotgate/openapi"
	"github.com/slotgate/slotgate/openapi/openapitest"
	"github.com/slotgate/slotgate/store/ratelimit"
)

func TestRoutesAreThoseOfTheDocument(t *testing.T) {
	e := gin.New()
	handlers.New(handlers.Config{Ready: func(context.Context) error { return nil }, Tokens: issuer(t), Limits: testLimits(nil, nil), Pools: (&gateway{}).testPools(nil)}).Register(e, e.Group("/v1"))
	var routes []openapitest.Route
	for _, r := range e.Routes() {
		if strings.HasSuffix(r.Handler, "handlers.postOnly") {
			continue // no operation, but what keeps another from answering
		}
		routes = append(routes, openapitest.Route{Method: r.Method, Path: r.Path})
	}
	openapitest.Routes(t, routes)
}

// Every operation knows exactly the query parameters of the document; a parameter that is not known is refused with the list.
func TestParametersAreThoseOfTheDocument(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Document())
	if err != nil {
		t.Fatal(err)
	}
	a := start(t).app(t)
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			if !strings.HasPrefix(path, "/v1/") || method == http.MethodHead { // a HEAD cannot list them
				continue
			}
			var documented []string
			for _, p := range slices.Concat(item.Parameters, operation.Parameters) {
				if p.Value.In == openapi3.ParameterInQuery {
					documented = append(documented, p.Value.Name)
				}
			}
			m := a.call(t, method, strings.ReplaceAll(path, "{key}", "k")+"?nothing=1", "").want(t, 422)
			_, list, _ := strings.Cut(m["detail"].(string), "known here: ")
			var known []string
			if list != "" {
				known = strings.Split(list, ", ")
			}
			slices.Sort(documented)
			slices.Sort(known)
			if !slices.Equal(documented, known) {
				t.Errorf("%s %s knows %q, documented are %q", method, path, known, documented)
			}
		}
	}
}

// A name that the document allows is one that a limit can have, and the other way.
func TestNamesOfLimitsAreThoseOfTheDocument(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Document())
	if err != nil {
		t.Fatal(err)
	}
	ofPath := doc.Components.Parameters["LimitNameParam"].Value.Schema.Value
	ofItem := doc.Components.Schemas["RateLimitItem"].Value.Properties["name"].Value
	for _, name := range []string{"", "t", "tak", "take", "Take", "taken", "uake", "tbke", "tale", "taka", "t.ke", "api", "a/b", strings.Repeat("n", 64), strings.Repeat("n", 65)} {
		can := ratelimit.CheckName(name) == nil
		for _, schema := range []*openapi3.Schema{ofPath, ofItem} {
			if allowed := schema.VisitJSON(name) == nil; allowed != can {
				t.Errorf("%q: in the document %v, for a limit %v", name, allowed, can)
			}
		}
	}
}
