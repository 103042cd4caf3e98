package handlers_test

import (
	"strings"
	"testing"

	"github.com/slotgate/slotgate/handlers"
	"github.com/slotgate/slotgate/store"
)

// A route without a class would be left out by limits of a class; a new resource gets one, or a place among those that have none.
func TestEveryRouteHasAClass(t *testing.T) {
	classless := map[string]bool{"/v1/whoami": true, "/v1/token": true}
	for _, r := range start(t, func(*store.Config) {}).routes {
		class, access := handlers.Class(r.Method, r.Path)
		if wants := strings.HasPrefix(r.Path, "/v1/") && !classless[r.Path]; wants != (class != 0) || wants != (access != 0) {
			t.Errorf("%s %s is of class %v, %v", r.Method, r.Path, class, access)
		}
	}
}

func TestClassesOfRoutes(t *testing.T) {
	for route, want := range map[string]string{
		"GET /v1/strings/:key":             "strings read",
		"PUT /v1/bytes/:key":               "strings write",
		"HEAD /v1/bytes/:key":              "strings read",
		"POST /v1/counters/:key/add":       "strings write",
		"POST /v1/mget":                    "strings read",
		"POST /v1/mset":                    "strings write",
		"POST /v1/mexists":                 "keys read",
		"POST /v1/mdelete":                 "keys write",
		"GET /v1/keys":                     "keys read",
		"DELETE /v1/keys/:key/ttl":         "keys write",
		"POST /v1/ratelimits/:name/take":   "ratelimits write",
		"POST /v1/ratelimits/:name/peek":   "ratelimits read",
		"GET /v1/pools":                    "pools read",
		"PATCH /v1/pools/:pool":            "pools write",
		"POST /v1/pools/:pool/allocations": "pools write",
		"GET /v1/whoami":                   "none none",
		"GET /readyz":                      "none none",
		"GET unmatched":                    "none none",
		"POST /v1/a-resource-of-tomorrow":  "none none",
	} {
		method, path, _ := strings.Cut(route, " ")
		class, access := handlers.Class(method, path)
		if got := class.String() + " " + access.String(); got != want {
			t.Errorf("%s is of %s, want %s", route, got, want)
		}
	}
}

func BenchmarkClass(b *testing.B) {
	for b.Loop() {
		handlers.Class("POST", "/v1/ratelimits/:name/take")
	}
}
