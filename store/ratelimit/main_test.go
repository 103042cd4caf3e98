package ratelimit

import (
	"context"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// newStore makes a store on the shared cluster.
func newStore(t testing.TB) *store.Store {
	t.Helper()
	return storetest.New(t)
}

func newApp(t testing.TB, permissions ...string) *acl.Identity {
	t.Helper()
	return storetest.App(t, permissions...)
}

func ptr(n int64) *int64 { return &n }

// valid fills in the defaults of rules.
func valid(t testing.TB, rules ...Rule) []Rule {
	t.Helper()
	d := Definition{Rules: rules}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	return d.Rules
}
