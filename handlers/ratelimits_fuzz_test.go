package handlers

import (
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/limits"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// FuzzRateLimitBody: every body is accepted or refused with a 4xx that names a place, and what is accepted is within bounds.
func FuzzRateLimitBody(f *testing.F) {
	for _, seed := range []string{
		`{"rules":[{"id":"m","algorithm":"token_bucket","limit":60,"period_ms":60000,"burst":3}],"shadow":true,"on_error":"local"}`,
		`{"rules":[{"id":"w","scope":"limit","algorithm":"fixed_window","limit":1,"period_ms":1,"align":"epoch","tz_offset_min":-60}],"expires_at":"2999-01-01T00:00:00Z"}`,
		`{"subject":"{}:%","cost":2,"min_grant":1,"max_wait_ms":5}`, `{"subject":"_w","key_encoding":"base64url"}`,
		`{"items":[{"name":"api","subject":"u"},{"name":"b","subject":"v","cost":9}]}`, `{"rules":[{}]}`, `{"items":[1]}`, `{"rules":[[`, `{"subject":"`,
	} {
		f.Add(seed)
	}
	t0 := terms{now: time.Unix(1_800_000_000, 0)}
	f.Fuzz(func(t *testing.T, body string) {
		src := []byte(body)
		def, e1 := parseDefinition(src, t0)
		over, e2 := parseOverride(src, t0)
		_, e3 := parseTake(src, t0)
		_, e4 := parseRefund(src, t0)
		takes, e5 := parseTakes(src, t0)
		for _, err := range []error{e1, e2, e3, e4, e5} {
			if err == nil {
				continue
			}
			if e, ok := errors.AsType[*store.Error](err); !ok || e.Status() < 400 || e.Status() > 499 || len(e.Fields) == 0 {
				t.Errorf("%s: %v", body, err)
			}
		}
		if e1 == nil && def.Rules == nil || e2 == nil && (over.Rules == nil || !over.ExpiresAt.IsZero() && !over.ExpiresAt.After(t0.now)) {
			t.Errorf("%s was accepted as %v and %v", body, def, over)
		}
		if e5 == nil && (len(takes) == 0 || len(takes) > limits.MaxBatch) {
			t.Errorf("%s was accepted as %d takes", body, len(takes))
		}
	})
}

// FuzzRateLimitSubject: whatever stands in a path is a subject, of bytes that the same path always means, or refused at its place.
func FuzzRateLimitSubject(f *testing.F) {
	for _, raw := range []string{"user:42", "%7B%7D%3A%25", "a%2Fb", "%2E", "%2E%2E", "%00%FF", "%", "%zz", "_w", "a=", strings.Repeat("s", 257), strings.Repeat("%41", 256), ""} {
		f.Add(raw, false)
		f.Add(raw, true)
	}
	f.Fuzz(func(t *testing.T, raw string, encoded bool) {
		enc := keyUTF8
		if encoded {
			enc = keyBase64URL
		}
		subject, err := pathName("subject", raw, enc, ratelimit.MaxSubject)
		if err != nil {
			if e, ok := errors.AsType[*store.Error](err); !ok || e.Status() != 422 || len(e.Fields) != 1 || e.Fields[0].Pointer != "path:subject" {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		again := strings.ReplaceAll(url.PathEscape(subject), ".", "%2E") // a dot segment is no subject
		if encoded {
			again = base64.RawURLEncoding.EncodeToString([]byte(subject))
		}
		if same, err := pathName("subject", again, enc, ratelimit.MaxSubject); err != nil || same != subject || len(subject) > ratelimit.MaxSubject {
			t.Errorf("%q is %q, which is written %q and read as %q, %v", raw, subject, again, same, err)
		}
	})
}
