package handlers_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// poolWrites are a request to each route that changes a pool; FENCE is that of its lease.
var poolWrites = map[string]string{
	"PUT /v1/pools/:pool":                         leastUsed,
	"PATCH /v1/pools/:pool":                       leastUsed,
	"DELETE /v1/pools/:pool":                      "",
	"POST /v1/pools/:pool/rebase":                 "",
	"PUT /v1/pools/:pool/members":                 `{"members":[{"member":"p1","weight":7}],"mode":"replace"}`,
	"PUT /v1/pools/:pool/members/:member":         `{"weight":7}`,
	"PATCH /v1/pools/:pool/members/:member":       `{"weight":7}`,
	"DELETE /v1/pools/:pool/members/:member":      "",
	"POST /v1/pools/:pool/allocations":            `{}`,
	"POST /v1/pools/:pool/reports":                `{"reports":[{"member":"p1","outcome":"failure"}]}`,
	"PATCH /v1/pools/:pool/leases/:lease":         `{"fence":FENCE,"lease_ms":60000}`,
	"POST /v1/pools/:pool/leases/:lease/complete": `{"fence":FENCE,"outcome":"failure"}`,
}

// TestEveryFailedWriteOfAPoolSaysWhatBecameOfIt is TestEveryFailedWriteSaysWhatBecameOfIt for pools. They are defined and looked at through
// another gateway, on which all is well.
func TestEveryFailedWriteOfAPoolSaysWhatBecameOfIt(t *testing.T) {
	good := start(t)
	for name, f := range faults(t) {
		t.Run(name, func(t *testing.T) {
			well := f.elsewhere(good)
			for n, route := range slices.Sorted(maps.Keys(poolWrites)) {
				own := "p" + strconv.Itoa(n)
				path := "/v1/pools/" + own
				well.call(t, "PUT", path, `{"policy":"least_inflight"}`).want(t, 200)
				well.call(t, "PUT", path+"/members", `{"members":[{"member":"p1","initial_count":5},{"member":"p2","initial_count":6}]}`).want(t, 200)
				lease := well.call(t, "POST", path+"/allocations", `{"lease_ms":3600000}`).want(t, 200)["lease"].(map[string]any)
				f.try(t, attempt{
					route: route, body: poolWrites[route], known: path,
					with: strings.NewReplacer(":pool", own, ":member", "p1", ":lease", lease["id"].(string), "FENCE", number(lease["fence"])),
					stored: func() (all string) {
						for _, part := range []string{"", "/members", "/leases"} {
							all += well.call(t, "GET", path+part, "").body
						}
						return all
					},
				})
			}
		})
	}
}
