package handlers

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/pool"
)

// FuzzPoolBody: every body is accepted or refused with a 4xx that names a place, and what is accepted is within bounds.
func FuzzPoolBody(f *testing.F) {
	for _, seed := range []string{
		`{"policy":"least_used"}`, `{"policy":"weighted_round_robin","variant":"classic","restore":"min","sticky_ms":5}`,
		`{"policy":"adaptive","lease":{"default_ms":1,"max_ms":2,"max_per_member":3,"abandoned":"failure"},"adaptive":{"floor":0.5,"panic":1,"fail_threshold":9}}`,
		`{"weight":2,"initial_count":0,"available":false,"cooldown_ms":5,"meta":{"url":"http://a","n":[1,{"b":null}]}}`, `{"meta": { "a" : 1 } }`,
		`{"members":[{"member":"a","weight":1000},{"member":"b","meta":{}}],"mode":"replace","dry_run":true}`, `{"members":[{"member":"_w"}],"key_encoding":"base64url"}`,
		`{"exclude":["a","b"],"count":16,"lease_ms":30000,"sticky":"s"}`, `{"exclude":["_w"],"key_encoding":"base64url"}`,
		`{"reports":[{"member":"a","outcome":"success","latency_ms":1.5,"saturation":0.9}]}`, `{"fence":1800000050000000,"lease_ms":30000}`,
		`{"fence":1,"outcome":"timeout","latency_ms":3}`, `{"latency_ms":1e400}`, `{"meta":[]}`, `{"count":0}`, `{"members":[[`, `{"meta":{"a":`, `{`,
	} {
		f.Add(seed)
	}
	t0 := terms{now: time.Unix(1_800_000_000, 0)}
	f.Fuzz(func(t *testing.T, body string) {
		src := []byte(body)
		def, e1 := parsePool(src, t0)
		change, e2 := parsePoolChange(src, t0)
		m, e3 := parsePoolMember(src, t0)
		_, e4 := parsePoolMemberChange(src, t0)
		c, e5 := parseCandidates(src, t0)
		a, e6 := parseAllocation(src, t0)
		r, e7 := parseReports(src, t0)
		_, e8 := parseRenewal(src, t0)
		done, e9 := parseCompletion(src, t0)
		for _, err := range []error{e1, e2, e3, e4, e5, e6, e7, e8, e9} {
			if err == nil {
				continue
			}
			if e, ok := errors.AsType[*store.Error](err); !ok || e.Status() < 400 || e.Status() > 499 || len(e.Fields) == 0 {
				t.Errorf("%s: %v", body, err)
			}
		}
		if e1 == nil {
			var again pool.Definition
			if e2 != nil || change(&again) != nil || again != def {
				t.Errorf("%s defines %+v and changes nothing into %+v, %v", body, def, again, e2)
			}
		}
		if e3 == nil && m.Meta != nil && (m.Meta[0] != '{' || !json.Valid(m.Meta)) {
			t.Errorf("%s has the meta %s", body, m.Meta)
		}
		if e5 == nil && len(c.members) > pool.MaxMembers || e6 == nil && len(a.Exclude) > pool.MaxExclude+1 {
			t.Errorf("%s was accepted as %d members, %d to exclude", body, len(c.members), len(a.Exclude))
		}
		if e7 == nil && (len(r.list) == 0 || len(r.list) > pool.MaxReports) || e9 == nil && done.used != nil && done.used.Outcome == "" {
			t.Errorf("%s was accepted as %d reports, %+v", body, len(r.list), done.used)
		}
	})
}
