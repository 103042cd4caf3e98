package store_test

import (
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// narrowed is the same app with a key that has these permissions.
func narrowed(t testing.TB, id *acl.Identity, permissions ...string) *acl.Identity {
	t.Helper()
	own := must[acl.Permissions](t)(acl.CompilePermissions(permissions))
	narrow := *id
	narrow.Permissions = id.Permissions.Intersect(own)
	return &narrow
}

func TestAnUnmetConditionTellsOnlyReadersTheETag(t *testing.T) {
	s, ctx, id := newStore(t, clustertest.Shared(t)), testContext(t), newApp(t)
	must[store.SetResult](t)(s.Set(ctx, id, "k", []byte("secret"), store.SetOptions{}))
	etag, unmet := store.ETag([]byte("secret")), store.Condition{IfMatch: []string{`"other"`}}
	for _, c := range []struct {
		permission, etag string
	}{{"strings:*", etag}, {"strings:write", ""}, {"commands:SET", ""}} {
		_, err := s.Set(ctx, narrowed(t, id, c.permission), "k", nil, store.SetOptions{Cond: unmet})
		if e := wantCode(t, err, store.CodePreconditionFailed); e.ETag != c.etag {
			t.Errorf("set with %s shows %q", c.permission, e.ETag)
		}
	}
	_, err := s.Delete(ctx, narrowed(t, id, "keys:write"), "k", store.DeleteOptions{Cond: unmet})
	if e := wantCode(t, err, store.CodePreconditionFailed); e.ETag != "" {
		t.Errorf("delete with keys:write shows %q", e.ETag)
	}
}

func TestANamedCommandOpensItsOwnForm(t *testing.T) {
	s, ctx, id := newStore(t, clustertest.Shared(t)), testContext(t), newApp(t)
	must[store.SetResult](t)(s.Set(ctx, id, "k", nil, store.SetOptions{}))
	at := store.Expiry{Mode: store.ExpireAt, Millis: time.Now().Add(time.Minute).UnixMilli()}
	for permission, e := range map[string]store.Expiry{"commands:PEXPIRE": in(60_000), "commands:PEXPIREAT": at} {
		for _, other := range []store.Expiry{in(60_000), at} {
			_, _, err := s.Expire(ctx, narrowed(t, id, permission), "k", other, "", store.Delivery{})
			if other == e && err != nil {
				t.Errorf("%s: %v", permission, err)
			} else if other != e {
				wantCode(t, err, store.CodeForbidden)
			}
		}
	}
}
