package handlers

import (
	"net/http"
	"strings"

	"github.com/slotgate/slotgate/acl"
)

// Class says what a route does, for limits of a class of commands: its class, by the resource, and whether it changes anything. A route
// of no class, such as whoami, has 0. It is called for requests and touches no map.
func Class(method, route string) (acl.Class, acl.Access) {
	access := acl.Write
	if method == http.MethodGet || method == http.MethodHead || Reads(route) {
		access = acl.Read
	}
	resource, ok := strings.CutPrefix(route, "/v1/")
	if !ok {
		return 0, 0
	}
	if end := strings.IndexByte(resource, '/'); end >= 0 {
		resource = resource[:end]
	}
	switch resource {
	case "strings", "bytes", "counters", "mget", "mset":
		return acl.Strings, access
	case "keys", "mdelete", "mexists":
		return acl.Keys, access
	case "ratelimits":
		return acl.RateLimits, access
	case "pools":
		return acl.Pools, access
	}
	return 0, 0
}
