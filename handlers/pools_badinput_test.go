package handlers_test

import (
	"fmt"
	"strings"
	"testing"
)

func candidates(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"member":"m%d"}`, i)
	}
	return `{"members":[` + strings.Join(list, ",") + `]}`
}

func reportsOf(n int) string {
	return `{"reports":[` + strings.TrimSuffix(strings.Repeat(`{"member":"p1","outcome":"success"},`, n), ",") + `]}`
}

func excluding(n int) string {
	return `{"exclude":[` + strings.TrimSuffix(strings.Repeat(`"p9",`, n), ",") + `]}`
}

func TestBadPoolsAreRefused(t *testing.T) {
	a := pooler(t, start(t), inflightOne, "p1", "p2")
	lease := a.allocate(t, `{}`)["lease"].(map[string]any)
	mine, fence := leasesPath+"/"+lease["id"].(string), number(lease["fence"])
	const p1, reports, foreign = membersPath + "/p1", poolPath + "/reports", leasesPath + "/AAAAAAAAAAAAAAAAAAAAAA"
	before := a.call(t, "GET", poolPath, "").body + a.call(t, "GET", membersPath, "").body + a.call(t, "GET", leasesPath, "").body
	meta := func(n int) string { return `{"meta":{"a":` + quoted(n-8) + `}}` }
	adaptive := func(members string) string { return `{"policy":"adaptive","adaptive":{` + members + `}}` }
	for _, b := range []bad{
		{"unknown policy", "PUT", poolPath, `{"policy":"fastest"}`, nil, 422, "validation_failed", "/policy"},
		{"no policy", "PUT", poolPath, `{}`, nil, 422, "validation_failed", "/policy"},
		{"policy that is empty", "PUT", poolPath, `{"policy":""}`, nil, 422, "validation_failed", "/policy"},
		{"policy that is a number", "PUT", poolPath, `{"policy":1}`, nil, 422, "validation_failed", "/policy"},
		{"policy that is changed to an unknown one", "PATCH", poolPath, `{"policy":"fastest"}`, nil, 422, "validation_failed", "/policy"},
		{"unknown variant", "PUT", poolPath, `{"policy":"weighted_round_robin","variant":"rough"}`, nil, 422, "validation_failed", "/variant"},
		{"variant of another policy", "PUT", poolPath, `{"policy":"round_robin","variant":"smooth"}`, nil, 422, "validation_failed", "/variant"},
		{"unknown restore", "PUT", poolPath, `{"policy":"least_used","restore":"never"}`, nil, 422, "validation_failed", "/restore"},
		{"unknown setting", "PUT", poolPath, `{"policy":"least_used","weight":1}`, nil, 422, "validation_failed", "/weight"},
		{"unknown setting of leases", "PUT", poolPath, `{"policy":"least_used","lease":{"ms":1}}`, nil, 422, "validation_failed", "/lease/ms"},
		{"unknown setting of adaptive", "PUT", poolPath, adaptive(`"speed":1`), nil, 422, "validation_failed", "/adaptive/speed"},
		{"lease that is no object", "PUT", poolPath, `{"policy":"least_used","lease":30000}`, nil, 422, "validation_failed", "/lease"},
		{"longest lease over 12 hours", "PUT", poolPath, `{"policy":"least_used","lease":{"max_ms":43200001}}`, nil, 422, "validation_failed", "/lease/max_ms"},
		{"longest lease of 0", "PUT", poolPath, `{"policy":"least_used","lease":{"max_ms":0}}`, nil, 422, "validation_failed", "/lease/max_ms"},
		{"usual lease longer than the longest", "PUT", poolPath, `{"policy":"least_used","lease":{"max_ms":5,"default_ms":6}}`, nil, 422, "validation_failed", "/lease/default_ms"},
		{"negative usual lease", "PUT", poolPath, `{"policy":"least_used","lease":{"default_ms":-1}}`, nil, 422, "validation_failed", "/lease/default_ms"},
		{"leases of each member over a million", "PUT", poolPath, `{"policy":"least_inflight","lease":{"max_per_member":1000001}}`, nil, 422, "validation_failed", "/lease/max_per_member"},
		{"leases of each member, of a policy that does not look", "PUT", poolPath, `{"policy":"least_used","lease":{"max_per_member":1}}`, nil, 422, "validation_failed", "/lease/max_per_member"},
		{"unknown word for abandoned leases", "PUT", poolPath, `{"policy":"adaptive","lease":{"abandoned":"success"}}`, nil, 422, "validation_failed", "/lease/abandoned"},
		{"sticky for 0 ms", "PUT", poolPath, `{"policy":"least_used","sticky_ms":0}`, nil, 422, "validation_failed", "/sticky_ms"},
		{"sticky for more than 30 days", "PUT", poolPath, `{"policy":"least_used","sticky_ms":2592000001}`, nil, 422, "validation_failed", "/sticky_ms"},
		{"settings of adaptive for another policy", "PUT", poolPath, `{"policy":"least_used","adaptive":{"panic":0.5}}`, nil, 422, "validation_failed", "/adaptive"},
		{"floor 0", "PUT", poolPath, adaptive(`"floor":0`), nil, 422, "validation_failed", "/adaptive/floor"},
		{"panic over 1", "PUT", poolPath, adaptive(`"panic":1.5`), nil, 422, "validation_failed", "/adaptive/panic"},
		{"half life that is a fraction", "PUT", poolPath, adaptive(`"half_life_ms":100.5`), nil, 422, "validation_failed", "/adaptive/half_life_ms"},
		{"threshold of 1 failure", "PUT", poolPath, adaptive(`"fail_threshold":1`), nil, 422, "validation_failed", "/adaptive/fail_threshold"},
		{"longest ejection below the first", "PUT", poolPath, adaptive(`"eject_ms":5000,"eject_max_ms":4999`), nil, 422, "validation_failed", "/adaptive/eject_max_ms"},
		{"number beyond doubles", "PUT", poolPath, adaptive(`"panic":1e999`), nil, 422, "validation_failed", "/adaptive/panic"},
		{"name of other characters", "PUT", "/v1/pools/a%20b", leastUsed, nil, 422, "validation_failed", "path:pool"},
		{"name of 65 characters", "GET", "/v1/pools/" + strings.Repeat("n", 65), "", nil, 422, "validation_failed", "path:pool"},
		{"both conditions", "PUT", poolPath, leastUsed, []string{`If-Match: "a"`, "If-None-Match: *"}, 422, "validation_failed", "header:If-None-Match"},
		{"If-None-Match of a change", "PATCH", poolPath, leastUsed, []string{"If-None-Match: *"}, 422, "validation_failed", "header:If-None-Match"},
		{"If-None-Match of a deletion", "DELETE", poolPath, "", []string{"If-None-Match: *"}, 422, "validation_failed", "header:If-None-Match"},
		{"condition on an allocation", "POST", allocatePath, `{}`, []string{"If-Match: *"}, 422, "validation_failed", "header:If-Match"},
		{"condition on a member", "PUT", p1, `{}`, []string{"If-Match: *"}, 422, "validation_failed", "header:If-Match"},
		{"cursor that is none", "GET", "/v1/pools?cursor=a%2Fb", "", nil, 400, "invalid_request", "query:cursor"},
		{"limit that is no number", "GET", "/v1/pools?limit=ten", "", nil, 400, "invalid_request", "query:limit"},

		{"negative weight", "PUT", p1, `{"weight":-1}`, nil, 422, "validation_failed", "/weight"},
		{"weight of 1,001", "PUT", p1, `{"weight":1001}`, nil, 422, "validation_failed", "/weight"},
		{"weight that is a fraction", "PUT", p1, `{"weight":1.5}`, nil, 422, "validation_failed", "/weight"},
		{"weight that is changed to 1,001", "PATCH", p1, `{"weight":1001}`, nil, 422, "validation_failed", "/weight"},
		{"weight of 1,001 in a list", "PUT", membersPath, `{"members":[{"member":"p1"},{"member":"p3","weight":1001}]}`, nil, 422, "validation_failed", "/members/1/weight"},
		{"weight that is a fraction in a list", "PUT", membersPath, `{"members":[{"member":"p3","weight":0.5}]}`, nil, 422, "validation_failed", "/members/0/weight"},
		{"negative count", "PUT", p1, `{"initial_count":-1}`, nil, 422, "validation_failed", "/initial_count"},
		{"count beyond 2^50", "PUT", p1, `{"initial_count":1125899906842625}`, nil, 422, "validation_failed", "/initial_count"},
		{"count that is changed", "PATCH", p1, `{"initial_count":1}`, nil, 422, "validation_failed", "/initial_count"},
		{"cooldown of more than a day", "PATCH", p1, `{"cooldown_ms":86400001}`, nil, 422, "validation_failed", "/cooldown_ms"},
		{"availability that is a word", "PATCH", p1, `{"available":"no"}`, nil, 422, "validation_failed", "/available"},
		{"meta that is no object", "PUT", p1, `{"meta":[1]}`, nil, 422, "validation_failed", "/meta"},
		{"meta over 1,024 bytes", "PUT", p1, meta(1025), nil, 422, "validation_failed", "/meta"},
		{"meta with a member twice", "PUT", p1, `{"meta":{"a":1,"a":2}}`, nil, 400, "invalid_request", "/meta/a"},
		{"meta that is deep", "PUT", p1, `{"meta":{"a":` + deep(40) + `}}`, nil, 400, "invalid_request", ""},
		{"unknown part of a member", "PUT", p1, `{"wieght":1}`, nil, 422, "validation_failed", "/wieght"},
		{"member over 256 bytes", "PUT", membersPath + "/" + strings.Repeat("m", 257), `{}`, nil, 422, "validation_failed", "path:member"},
		{"member over 256 bytes when encoded", "GET", membersPath + "/" + base64url(strings.Repeat("m", 257)) + "?key_encoding=base64url", "", nil, 422, "validation_failed", "path:member"},
		{"member over 256 bytes in a list", "PUT", membersPath, `{"members":[{"member":` + quoted(257) + `}]}`, nil, 422, "validation_failed", "/members/0/member"},
		{"member of 256 bytes and of more characters than that", "POST", allocatePath, `{"exclude":["` + strings.Repeat("é", 129) + `"]}`, nil, 422, "validation_failed", "/exclude/0"},
		{"member that is empty", "PUT", membersPath, `{"members":[{"member":""}]}`, nil, 422, "validation_failed", "/members/0/member"},
		{"member that is missing", "PUT", membersPath, `{"members":[{"weight":1}]}`, nil, 422, "validation_failed", "/members/0/member"},
		{"member that is no base64url", "PUT", membersPath, `{"members":[{"member":"a="}],"key_encoding":"base64url"}`, nil, 422, "validation_failed", "/members/0/member"},
		{"member that is no base64url in a path", "PUT", membersPath + "/a=?key_encoding=base64url", `{}`, nil, 422, "validation_failed", "path:member"},
		{"member with a bad escape", "PUT", membersPath + "/%25zz?key_encoding=base64url", `{}`, nil, 422, "validation_failed", "path:member"},
		{"member twice in a list", "PUT", membersPath, `{"members":[{"member":"p3"},{"member":"p3"}]}`, nil, 422, "validation_failed", "/members/1/member"},
		{"1,001 candidates", "PUT", membersPath, candidates(1001), nil, 413, "batch_too_large", "/members"},
		{"candidates missing", "PUT", membersPath, `{"mode":"merge"}`, nil, 422, "validation_failed", "/members"},
		{"candidates that are no list", "PUT", membersPath, `{"members":{}}`, nil, 422, "validation_failed", "/members"},
		{"unknown mode", "PUT", membersPath, `{"mode":"append","members":[]}`, nil, 422, "validation_failed", "/mode"},
		{"unknown history", "DELETE", p1 + "?history=burn", "", nil, 422, "validation_failed", "query:history"},
		{"member that is not there", "PATCH", membersPath + "/p9", `{"weight":1}`, nil, 404, "member_not_found", ""},

		{"allocation from a pool that is not defined", "POST", "/v1/pools/none/allocations", `{}`, nil, 404, "pool_not_found", ""},
		{"17 at once", "POST", allocatePath, `{"count":17}`, nil, 422, "validation_failed", "/count"},
		{"none at all", "POST", allocatePath, `{"count":0}`, nil, 422, "validation_failed", "/count"},
		{"as many as fit into nothing", "POST", allocatePath, `{"count":4294967297}`, nil, 422, "validation_failed", "/count"},
		{"65 to exclude", "POST", allocatePath, excluding(65), nil, 422, "validation_failed", "/exclude"},
		{"member to exclude that is empty", "POST", allocatePath, `{"exclude":["p1",""]}`, nil, 422, "validation_failed", "/exclude/1"},
		{"lease longer than the longest", "POST", allocatePath, `{"lease_ms":60001}`, nil, 422, "validation_failed", "/lease_ms"},
		{"lease of 0", "POST", allocatePath, `{"lease_ms":0}`, nil, 422, "validation_failed", "/lease_ms"},
		{"negative lease", "POST", allocatePath, `{"lease_ms":-1}`, nil, 422, "validation_failed", "/lease_ms"},
		{"sticky key that is empty", "POST", allocatePath, `{"sticky":""}`, nil, 422, "validation_failed", "/sticky"},
		{"sticky key over 256 bytes", "POST", allocatePath, `{"sticky":` + quoted(257) + `}`, nil, 422, "validation_failed", "/sticky"},
		{"unknown wish", "POST", allocatePath, `{"prefer":"p1"}`, nil, 422, "validation_failed", "/prefer"},
		{"no body", "POST", allocatePath, "", []string{"Content-Type: application/json"}, 400, "invalid_request", "body"},

		{"101 reports", "POST", reports, reportsOf(101), nil, 413, "batch_too_large", "/reports"},
		{"no reports", "POST", reports, `{"reports":[]}`, nil, 422, "validation_failed", "/reports"},
		{"reports missing", "POST", reports, `{}`, nil, 422, "validation_failed", "/reports"},
		{"report without a member", "POST", reports, `{"reports":[{"outcome":"success"}]}`, nil, 422, "validation_failed", "/reports/0/member"},
		{"report without an outcome", "POST", reports, `{"reports":[{"member":"p1"}]}`, nil, 422, "validation_failed", "/reports/0/outcome"},
		{"report of an unknown outcome", "POST", reports, `{"reports":[{"member":"p1","outcome":"slow"}]}`, nil, 422, "validation_failed", "/reports/0/outcome"},
		{"report of a negative latency", "POST", reports, `{"reports":[{"member":"p1","outcome":"success","latency_ms":-0.5}]}`, nil, 422, "validation_failed", "/reports/0/latency_ms"},
		{"report of a saturation over 1", "POST", reports, `{"reports":[{"member":"p1","outcome":"success","saturation":1.01}]}`, nil, 422, "validation_failed", "/reports/0/saturation"},
		{"reports to a pool that is not defined", "POST", "/v1/pools/none/reports", reportsOf(1), nil, 404, "pool_not_found", ""},

		{"renewal of a lease nobody has", "PATCH", foreign, `{"fence":1,"lease_ms":1}`, nil, 404, "lease_not_found", ""},
		{"completion of a lease nobody has", "POST", foreign + "/complete", `{"fence":1}`, nil, 404, "lease_not_found", ""},
		{"renewal with the fence of another", "PATCH", mine, `{"fence":1,"lease_ms":1}`, nil, 409, "fence_mismatch", ""},
		{"completion with the fence of another", "POST", mine + "/complete", `{"fence":1}`, nil, 409, "fence_mismatch", ""},
		{"renewal beyond the longest", "PATCH", mine, `{"fence":` + fence + `,"lease_ms":60001}`, nil, 422, "validation_failed", "/lease_ms"},
		{"renewal without a length", "PATCH", mine, `{"fence":` + fence + `}`, nil, 422, "validation_failed", "/lease_ms"},
		{"renewal without a fence", "PATCH", mine, `{"lease_ms":1}`, nil, 422, "validation_failed", "/fence"},
		{"completion without a fence", "POST", mine + "/complete", `{}`, nil, 422, "validation_failed", "/fence"},
		{"completion with a fence of 0", "POST", mine + "/complete", `{"fence":0}`, nil, 422, "validation_failed", "/fence"},
		{"completion with a latency and no outcome", "POST", mine + "/complete", `{"fence":` + fence + `,"latency_ms":1}`, nil, 422, "validation_failed", "/outcome"},
		{"completion with an unknown outcome", "POST", mine + "/complete", `{"fence":` + fence + `,"outcome":"done"}`, nil, 422, "validation_failed", "/outcome"},
		{"lease that cannot be one", "POST", leasesPath + "/short/complete", `{"fence":1}`, nil, 422, "validation_failed", "path:lease"},
		{"completion in a pool that is not defined", "POST", "/v1/pools/none/leases/AAAAAAAAAAAAAAAAAAAAAA/complete", `{"fence":1}`, nil, 404, "pool_not_found", ""},
		{"leases of a member over 256 bytes", "GET", leasesPath + "?member=" + strings.Repeat("m", 257), "", nil, 422, "validation_failed", "query:member"},
		{"leases of a member that is empty", "GET", leasesPath + "?member=", "", nil, 422, "validation_failed", "query:member"},
		{"leases that are perhaps expired", "GET", leasesPath + "?expired=perhaps", "", nil, 422, "validation_failed", "query:expired"},
		{"counts of a pool that is not defined", "POST", "/v1/pools/none/rebase", "", nil, 404, "pool_not_found", ""},
		{"members of a pool that is not defined", "PUT", "/v1/pools/none/members", candidates(1), nil, 404, "pool_not_found", ""},
		{"an empty name", "GET", "/v1/pools/", "", nil, 400, "invalid_key", "path:pool"},
		{"a method that is not offered", "PATCH", allocatePath, `{}`, nil, 405, "method_not_allowed", ""},
	} {
		t.Run(b.why, func(t *testing.T) {
			a.call(t, b.method, b.path, b.body, b.headers...).refused(t, b.status, b.code, b.pointer)
		})
	}
	if after := a.call(t, "GET", poolPath, "").body + a.call(t, "GET", membersPath, "").body + a.call(t, "GET", leasesPath, "").body; after != before {
		t.Errorf("it was %s, it is %s", before, after)
	}
	a.call(t, "PUT", p1, meta(1024)).want(t, 200)
	a.call(t, "PUT", membersPath, candidates(1000)).want(t, 200)
	a.call(t, "POST", reports, reportsOf(100)).want(t, 200)
	a.call(t, "POST", allocatePath, excluding(64)).want(t, 200)
}
