package pool_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/pool"
)

// pointers are the fields that a validation found wrong; of another error its text.
func pointers(err error) []string {
	if err == nil {
		return nil
	}
	var e *store.Error
	if !errors.As(err, &e) || e.Code != store.CodeValidationFailed {
		return []string{err.Error()}
	}
	var list []string
	for _, f := range e.Fields {
		list = append(list, f.Pointer)
	}
	return list
}

func TestBadDefinitions(t *testing.T) {
	for _, row := range []struct{ name, json, wrong string }{
		{"no policy", `{}`, "/policy"},
		{"an unknown policy", `{"policy":"fastest"}`, "/policy"},
		{"a policy in capitals", `{"policy":"LEAST_USED"}`, "/policy"},
		{"an unknown variant", `{"policy":"weighted_round_robin","variant":"rough"}`, "/variant"},
		{"a variant of another policy", `{"policy":"round_robin","variant":"smooth"}`, "/variant"},
		{"an unknown way to restore", `{"policy":"least_used","restore":"max"}`, "/restore"},
		{"a negative longest lease", `{"policy":"least_used","lease":{"max_ms":-1}}`, "/lease/max_ms"},
		{"a lease of more than 12 h", `{"policy":"least_used","lease":{"max_ms":43200001}}`, "/lease/max_ms"},
		{"a usual lease above the longest", `{"policy":"least_used","lease":{"max_ms":1000,"default_ms":1001}}`, "/lease/default_ms"},
		{"a negative usual lease", `{"policy":"least_used","lease":{"default_ms":-1}}`, "/lease/default_ms"},
		{"negative leases of a member", `{"policy":"least_inflight","lease":{"max_per_member":-1}}`, "/lease/max_per_member"},
		{"too many leases of a member", `{"policy":"least_inflight","lease":{"max_per_member":1000001}}`, "/lease/max_per_member"},
		{"what abandoned leases are by another policy", `{"policy":"least_inflight","lease":{"abandoned":"failure"}}`, "/lease/abandoned"},
		{"abandoned leases that are something else", `{"policy":"adaptive","lease":{"abandoned":"x"}}`, "/lease/abandoned"},
		{"leases of a member by another policy", `{"policy":"least_used","lease":{"max_per_member":1}}`, "/lease/max_per_member"},
		{"settings of adaptive by another policy", `{"policy":"least_used","adaptive":{"floor":0.2}}`, "/adaptive"},
		{"a half life of nothing", `{"policy":"adaptive","adaptive":{"half_life_ms":99}}`, "/adaptive/half_life_ms"},
		{"a floor above 1", `{"policy":"adaptive","adaptive":{"floor":1.1}}`, "/adaptive/floor"},
		{"negative recovery", `{"policy":"adaptive","adaptive":{"recover_ms":-1}}`, "/adaptive/recover_ms"},
		{"one failure ejects", `{"policy":"adaptive","adaptive":{"fail_threshold":1}}`, "/adaptive/fail_threshold"},
		{"a negative span", `{"policy":"adaptive","adaptive":{"fail_span_ms":-1}}`, "/adaptive/fail_span_ms"},
		{"a negative ejection", `{"policy":"adaptive","adaptive":{"eject_ms":-1}}`, "/adaptive/eject_ms"},
		{"a first ejection above the longest", `{"policy":"adaptive","adaptive":{"eject_ms":2000,"eject_max_ms":1999}}`, "/adaptive/eject_max_ms"},
		{"a negative share of panic", `{"policy":"adaptive","adaptive":{"panic":-0.5}}`, "/adaptive/panic"},
		{"all latencies degrade", `{"policy":"adaptive","adaptive":{"degrade_latency_factor":1}}`, "/adaptive/degrade_latency_factor"},
		{"a rate above 1", `{"policy":"adaptive","adaptive":{"degrade_error_rate":5}}`, "/adaptive/degrade_error_rate"},
		{"a negative baseline", `{"policy":"adaptive","adaptive":{"baseline_ms":-1}}`, "/adaptive/baseline_ms"},
		{"a sticky key of 31 days", `{"policy":"least_used","sticky_ms":2678400000}`, "/sticky_ms"},
		{"all at once", `{"policy":"x","restore":"y","lease":{"max_ms":-1}}`, "/policy /restore /lease/max_ms"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var d pool.Definition
			if err := json.Unmarshal([]byte(row.json), &d); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(pointers(d.Validate()), " "); got != row.wrong {
				t.Errorf("wrong is %q, want %q", got, row.wrong)
			}
		})
	}
}

func TestDefaultsOfADefinition(t *testing.T) {
	d := pool.Definition{Policy: pool.WeightedRoundRobin}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	want := pool.Definition{Policy: pool.WeightedRoundRobin, Variant: pool.Smooth, Restore: pool.CatchUp, StickyMS: 3_600_000,
		Lease: pool.Lease{DefaultMS: 30_000, MaxMS: 43_200_000}}
	if d != want {
		t.Errorf("got %+v, want %+v", d, want)
	}
	short := pool.Definition{Policy: pool.LeastInflight, Lease: pool.Lease{MaxMS: 500}}
	if err := short.Validate(); err != nil || short.Lease.DefaultMS != 500 {
		t.Errorf("a pool of short leases: %v, %+v", err, short.Lease)
	}
}

func TestNames(t *testing.T) {
	for _, good := range []string{"a", "A.b_c-9", strings.Repeat("x", 64)} {
		if err := pool.CheckName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "a/b", "a b", "{a}", "é", "a\n", strings.Repeat("x", 65)} {
		if got := pointers(pool.CheckName(bad)); !slices.Equal(got, []string{"path:pool"}) {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func TestBadMembers(t *testing.T) {
	long := strings.Repeat("x", 257)
	for _, row := range []struct{ name, json, wrong string }{
		{"no name", `[{}]`, "/members/0/member"},
		{"a name of 257 bytes", `[{"member":"a"},{"member":"` + long + `"}]`, "/members/1/member"},
		{"a negative weight", `[{"member":"a","weight":-1}]`, "/members/0/weight"},
		{"a weight of 1,001", `[{"member":"a","weight":1001}]`, "/members/0/weight"},
		{"a negative count", `[{"member":"a","initial_count":-1}]`, "/members/0/initial_count"},
		{"a count that a double does not hold", `[{"member":"a","initial_count":9007199254740993}]`, "/members/0/initial_count"},
		{"a negative cooldown", `[{"member":"a","cooldown_ms":-1}]`, "/members/0/cooldown_ms"},
		{"a cooldown of more than a day", `[{"member":"a","cooldown_ms":86400001}]`, "/members/0/cooldown_ms"},
		{"a long meta", `[{"member":"a","meta":{"x":"` + strings.Repeat("x", 1017) + `"}}]`, "/members/0/meta"},
		{"a meta that is no object", `[{"member":"a","meta":["x"]}]`, "/members/0/meta"},
		{"a meta that has a name twice", `[{"member":"a","meta":{"x":1,"x":2}}]`, "/members/0/meta"},
		{"one twice", `[{"member":"a"},{"member":"b"},{"member":"a"}]`, "/members/2/member"},
		{"1,001 of them", `[` + strings.Repeat(`{"member":"a"},`, 1000) + `{"member":"a"}]`, "/members"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var list []pool.Member
			if err := json.Unmarshal([]byte(row.json), &list); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(pointers(pool.ValidateMembers("/members", list)), " "); got != row.wrong {
				t.Errorf("wrong is %q, want %q", got, row.wrong)
			}
		})
	}
	if json.Unmarshal([]byte(`{"member":"a","weight":1.5}`), new(pool.Member)) == nil {
		t.Error("a weight that is a fraction can be read")
	}
	if got := pointers((&pool.Member{Member: "a", Meta: json.RawMessage("{")}).Validate()); !slices.Equal(got, []string{"/meta"}) {
		t.Errorf("a meta that is no JSON: %v", got)
	}
}

func TestBadAllocations(t *testing.T) {
	d := pool.Definition{Policy: pool.LeastUsed, Lease: pool.Lease{MaxMS: 1000}}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	many := strings.TrimSuffix(strings.Repeat(`"a",`, 65), ",")
	for _, row := range []struct{ name, json, wrong string }{
		{"a negative count", `{"count":-1}`, "/count"},
		{"a count of 17", `{"count":17}`, "/count"},
		{"a negative lease", `{"lease_ms":-1}`, "/lease_ms"},
		{"a lease longer than the longest", `{"lease_ms":1001}`, "/lease_ms"},
		{"a sticky key of 257 bytes", `{"sticky":"` + strings.Repeat("x", 257) + `"}`, "/sticky"},
		{"an empty name excluded", `{"exclude":["a",""]}`, "/exclude/1"},
		{"65 excluded", `{"exclude":[` + many + `]}`, "/exclude"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var r pool.Request
			if err := json.Unmarshal([]byte(row.json), &r); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(pointers(r.Validate(&d)), " "); got != row.wrong {
				t.Errorf("wrong is %q, want %q", got, row.wrong)
			}
		})
	}
}

func TestBadReports(t *testing.T) {
	nan := math.NaN()
	for _, row := range []struct {
		name  string
		list  []pool.Report
		wrong string
	}{
		{"none", nil, "/reports"},
		{"101 of them", make([]pool.Report, 101), "/reports"},
		{"no member", []pool.Report{{Outcome: pool.Success}}, "/reports/0/member"},
		{"no outcome", []pool.Report{{Member: "a"}}, "/reports/0/outcome"},
		{"an unknown outcome", []pool.Report{{Member: "a", Outcome: "ok"}}, "/reports/0/outcome"},
		{"a negative latency", []pool.Report{{Member: "a", Outcome: pool.Success, LatencyMS: -1}}, "/reports/0/latency_ms"},
		{"a latency that is no number", []pool.Report{{Member: "a", Outcome: pool.Success, LatencyMS: nan}}, "/reports/0/latency_ms"},
		{"a latency of two days", []pool.Report{{Member: "a", Outcome: pool.Success, LatencyMS: 2 * 86_400_000}}, "/reports/0/latency_ms"},
		{"a saturation above 1", []pool.Report{{Member: "a", Outcome: pool.Success}, {Member: "a", Outcome: pool.Success, Saturation: ptr(1.1)}}, "/reports/1/saturation"},
		{"a saturation that is no number", []pool.Report{{Member: "a", Outcome: pool.Success, Saturation: &nan}}, "/reports/0/saturation"},
	} {
		if got := strings.Join(pointers(pool.ValidateReports("/reports", row.list)), " "); got != row.wrong {
			t.Errorf("%s: wrong is %q, want %q", row.name, got, row.wrong)
		}
	}
}
