package control_test

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl/acltest"
)

// deaf is a client whose subscriptions hear nothing.
type deaf struct{ redis.UniversalClient }

func (d deaf) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return d.UniversalClient.Subscribe(ctx, "elsewhere")
}

func TestAMessageIsEnough(t *testing.T) {
	addr := miniredis.RunT(t).Addr()
	admin, token, key := created(t, open(newClient(t, addr), never))
	d := follow(t, open(newClient(t, addr), never))
	acltest.Eventually(t, "the key opens", opens(d, token))
	if _, err := admin.RevokeKey(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	acltest.Eventually(t, "the key is refused", refuses(d, token))
}

func TestAPollIsEnough(t *testing.T) {
	addr := miniredis.RunT(t).Addr()
	admin, token, key := created(t, open(newClient(t, addr), never))
	d := follow(t, open(deaf{newClient(t, addr)}, 20*time.Millisecond))
	acltest.Eventually(t, "the key opens", opens(d, token))
	if _, err := admin.RevokeKey(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	acltest.Eventually(t, "the key is refused", refuses(d, token))
}

// A failover can lose a change and give its number to the next one.
func TestAPollTellsApartTwoChangesOfOneNumber(t *testing.T) {
	m := miniredis.RunT(t)
	s := open(newClient(t, m.Addr()), never)
	admin, token, key := created(t, s)
	d := follow(t, open(deaf{newClient(t, m.Addr())}, 20*time.Millisecond))
	acltest.Eventually(t, "the key opens", opens(d, token))
	before, err := m.Get("slotgate:{acl}:version")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Set("slotgate:{acl}:version", "1-"+before[2:]); err != nil { // one change back
		t.Fatal(err)
	}
	if _, err := admin.RevokeKey(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	after, _ := m.Get("slotgate:{acl}:version")
	if before == after || before[:2] != after[:2] {
		t.Fatalf("versions %q and %q should differ in their nonces only", before, after)
	}
	acltest.Eventually(t, "the key is refused", refuses(d, token))
}

func TestAnOutageLogsNobodyOut(t *testing.T) {
	m := miniredis.RunT(t)
	_, token, key := created(t, open(newClient(t, m.Addr()), never))
	s := open(newClient(t, m.Addr()), 20*time.Millisecond)
	d := follow(t, s)
	acltest.Eventually(t, "contact is told of", func() bool { c := d.Contact(); return c.Err == nil && !c.Last.IsZero() })
	m.Close()
	acltest.Eventually(t, "loading fails", func() bool { return d.Refresh(t.Context()) != nil })
	acltest.Eventually(t, "the loss of contact is told of", func() bool { return d.Contact().Err != nil })
	lost := d.Contact().Last
	if !opens(d, token)() || !d.Ready() {
		t.Fatal("a key is refused because its storage is away")
	}
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := acltest.Admin(t, open(newClient(t, m.Addr()), never)).RevokeKey(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	acltest.Eventually(t, "the key is refused after the outage", refuses(d, token))
	if c := d.Contact(); c.Err != nil || !c.Last.After(lost) {
		t.Errorf("after the outage there is no contact: %+v", c)
	}
}

func TestAnEmptiedRedisLogsNobodyOut(t *testing.T) {
	m := miniredis.RunT(t)
	s := open(newClient(t, m.Addr()), 20*time.Millisecond)
	_, token, _ := created(t, s)
	d := follow(t, s)
	m.FlushAll()
	if err := d.Refresh(t.Context()); err == nil {
		t.Fatal("an emptied storage was believed")
	}
	if !opens(d, token)() {
		t.Fatal("a key is refused because Redis lost its data")
	}
	_, again, _ := created(t, open(newClient(t, m.Addr()), never)) // made anew by somebody who knows
	acltest.Eventually(t, "the new key opens", opens(d, again))
}
