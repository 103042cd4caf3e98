package control_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
)

// Every change is sent once, whatever go-redis would make of a lost answer.
func TestAChangeWhoseAnswerIsLost(t *testing.T) {
	m := miniredis.RunT(t)
	network, err := faultproxy.NewNetwork([]string{m.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { network.Close() })
	s := open(newClientThrough(t, network.Dial, m.Addr()), never)
	admin, _, key := created(t, s)
	before, _ := m.Get("slotgate:{acl}:version")

	network.Proxy(m.Addr()).ResetReplies(1, "evalsha")
	if _, err := admin.RevokeKey(t.Context(), key.ID); err != nil {
		t.Errorf("a change that was made is reported as %v", err)
	}
	after, _ := m.Get("slotgate:{acl}:version")
	if before[:2] != "2-" || after[:2] != "3-" {
		t.Errorf("version %s became %s: the change was not made once", before, after)
	}
}

func TestAChangeThatMayStillHappen(t *testing.T) {
	m := miniredis.RunT(t)
	s := open(newClient(t, m.Addr()), never)
	admin, _, key := created(t, s)
	var sent atomic.Int64
	m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd != "EVALSHA" && cmd != "EVAL" {
			return false
		}
		sent.Add(1)
		c.Close() // before it is done, which the sender cannot know
		return true
	})
	_, err := admin.RevokeKey(t.Context(), key.ID)
	if !errors.Is(err, acl.ErrUnknown) {
		t.Errorf("error %v, want that it is unknown", err)
	}
	m.Server().SetPreHook(nil)
	if n := sent.Load(); n != 1 {
		t.Errorf("the change was sent %d times", n)
	}
	_, _, err = admin.CreateKey(t.Context(), "shop", acl.KeyOptions{})
	if err != nil {
		t.Errorf("the next change: %v", err)
	}
}

func TestAChangeThatWasRefusedIsNotUnknown(t *testing.T) {
	m := miniredis.RunT(t)
	admin, _, key := created(t, open(newClient(t, m.Addr()), never))
	for _, reply := range []string{
		"OOM command not allowed when used memory > 'maxmemory'.",
		"READONLY You can't write against a read only replica.",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	} {
		m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
			if cmd != "EVALSHA" && cmd != "EVAL" {
				return false
			}
			c.WriteError(reply)
			return true
		})
		_, err := admin.RevokeKey(t.Context(), key.ID)
		if err == nil || errors.Is(err, acl.ErrUnknown) || !strings.Contains(err.Error(), reply) {
			t.Errorf("%s became %v", reply, err)
		}
	}
	m.Server().SetPreHook(nil)
	m.Close()
	if _, err := admin.RevokeKey(t.Context(), key.ID); err == nil || errors.Is(err, acl.ErrUnknown) {
		t.Errorf("an unreachable Redis gave %v", err)
	}
}

func TestTheVersionCountsOn(t *testing.T) {
	m := miniredis.RunT(t)
	s := open(newClient(t, m.Addr()), never)
	admin := acltest.Admin(t, s)
	if err := m.Set("slotgate:{acl}:version", "41-abc"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateApp(t.Context(), acl.App{ID: "shop", Namespace: "shop"}); err != nil {
		t.Fatal(err)
	}
	if version, _ := m.Get("slotgate:{acl}:version"); !strings.HasPrefix(version, "42-") {
		t.Errorf("version %s does not follow 41", version)
	}
}

func TestDeletingAnAppRevokesItsKeysOnly(t *testing.T) {
	s := open(newClient(t, miniredis.RunT(t).Addr()), never)
	admin, _, key := created(t, s)
	if _, err := admin.CreateApp(t.Context(), acl.App{ID: "other", Namespace: "other"}); err != nil {
		t.Fatal(err)
	}
	_, kept, err := admin.CreateKey(t.Context(), "other", acl.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteApp(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	set, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if at := set.Keys[key.ID].RevokedAt; at == nil || !at.Equal(acltest.Start) {
		t.Errorf("the key of the deleted app was revoked at %v", at)
	}
	if set.Keys[kept.ID].RevokedAt != nil {
		t.Error("the key of another app was revoked")
	}
}

// interposed lets something happen between reading and writing.
type interposed struct {
	redis.UniversalClient
	between func()
}

func (c *interposed) Process(ctx context.Context, cmd redis.Cmder) error {
	if between := c.between; between != nil {
		c.between = nil
		between()
	}
	return c.UniversalClient.Process(ctx, cmd)
}

func TestWhatHappensBetweenReadingAndWriting(t *testing.T) {
	for _, row := range []struct {
		name    string
		between func(*acl.Admin) error
		change  func(*acl.Admin) error
		want    error
	}{
		{
			"the app of a new key is deleted",
			func(a *acl.Admin) error { _, err := a.DeleteApp(t.Context(), "shop"); return err },
			func(a *acl.Admin) error { _, _, err := a.CreateKey(t.Context(), "shop", acl.KeyOptions{}); return err },
			acl.ErrNotFound,
		},
		{
			"the namespace of a new app is taken",
			func(a *acl.Admin) error {
				_, err := a.CreateApp(t.Context(), acl.App{ID: "one", Namespace: "mine"})
				return err
			},
			func(a *acl.Admin) error {
				_, err := a.CreateApp(t.Context(), acl.App{ID: "two", Namespace: "mine"})
				return err
			},
			acl.ErrExists,
		},
		{
			"the app is deleted while it is suspended",
			func(a *acl.Admin) error { _, err := a.DeleteApp(t.Context(), "shop"); return err },
			func(a *acl.Admin) error { _, err := a.SuspendApp(t.Context(), "shop"); return err },
			acl.ErrNotFound,
		},
		{
			"the app is edited while it is suspended",
			func(a *acl.Admin) error {
				_, err := a.EditApp(t.Context(), "shop", func(app *acl.App) { app.MaxTTLMS = 7 })
				return err
			},
			func(a *acl.Admin) error {
				app, err := a.SuspendApp(t.Context(), "shop")
				if err == nil && app.MaxTTLMS != 7 {
					t.Error("the edit was lost")
				}
				return err
			},
			nil,
		},
	} {
		addr := miniredis.RunT(t).Addr()
		other, _, _ := created(t, open(newClient(t, addr), never))
		c := &interposed{UniversalClient: newClient(t, addr), between: func() {
			if err := row.between(other); err != nil {
				t.Errorf("%s: %v", row.name, err)
			}
		}}
		if err := row.change(acltest.Admin(t, open(c, never))); !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
		if c.between != nil {
			t.Errorf("%s: it did not happen between", row.name)
		}
	}
}
