package middleware_test

import (
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/middleware"
)

// What is kept beside an identity is that of the chain that kept it.
func TestTwoChainsWithOneDirectoryCountByThemselves(t *testing.T) {
	shared, clock := identity("shop", perApp("minute", 2, time.Minute, 0)), newClock()
	var gateways [2]*gateway
	for i := range gateways {
		g := start(t, func(c *middleware.Config) { c.Clock = clock.now }, func(public, v1 gin.IRouter) { keyRoutes(public, v1) })
		g.auth[goodKey] = shared
		gateways[i] = g
	}
	for range 2 {
		for i, g := range gateways {
			if a := g.get(t, "/v1/strings/a"); a.status != 200 {
				t.Errorf("gateway %d: %d, want 200: the other's requests count here", i, a.status)
			}
		}
	}
	for i, g := range gateways {
		if a := g.get(t, "/v1/strings/a"); a.status != 429 {
			t.Errorf("gateway %d: %d at the third request of two, want 429", i, a.status)
		}
		if got := g.metric(t, "slotgate_http_requests_total", map[string]string{"app": "shop"}); got != 3 {
			t.Errorf("gateway %d counted %v requests, want 3", i, got)
		}
	}
}

// Identities without a place to keep things are served all the same.
func TestAnIdentityWithoutMemoIsLimited(t *testing.T) {
	g := limited(t, newClock())
	id := identity("shop", perApp("minute", 1, time.Minute, 0))
	id.Memo = (*acl.Memo)(nil)
	g.auth[goodKey] = id
	for _, want := range []int{200, 429} {
		if a := g.get(t, "/v1/strings/a"); a.status != want {
			t.Errorf("%d, want %d", a.status, want)
		}
	}
}
