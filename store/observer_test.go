package store_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// observer keeps what it is told.
type observer struct {
	mu   sync.Mutex
	sent []store.Sent
}

func (o *observer) Sent(s store.Sent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent = append(o.sent, s)
}

// take gives what it was told since the last time.
func (o *observer) take() []store.Sent {
	o.mu.Lock()
	defer o.mu.Unlock()
	sent := o.sent
	o.sent = nil
	return sent
}

func TestObserver(t *testing.T) {
	for _, off := range []bool{false, true} {
		t.Run(fmt.Sprint("coalesce off: ", off), func(t *testing.T) {
			s := newStore(t, clustertest.Shared(t), func(c *store.Config) { c.Coalesce.Off = off; c.Batch.Chunk = 10 })
			o := &observer{}
			ctx := context.WithValue(testContext(t), store.ObserverKey(), o)
			id := newApp(t, func(a *acl.App) { a.CompressMinBytes = 0 })
			single := func(what string, err error, command string, code store.Code, redisError string) {
				t.Helper()
				sent := o.take()
				if len(sent) != 1 {
					t.Fatalf("%s: %d commands (%v)", what, len(sent), err)
				}
				c := sent[0]
				if c.Command != command || c.Commands != 1 || c.Code != code || c.RedisError != redisError || c.Cluster != id.App.Cluster ||
					c.Node == "" || c.Start.IsZero() || !c.End.After(c.Start) {
					t.Errorf("%s: %+v", what, c)
				}
			}
			_, err := s.Set(ctx, id, "canary", []byte("canary"), store.SetOptions{})
			single("a write", err, "SET", "", "")
			_, err = s.Get(ctx, id, "canary", store.GetOptions{})
			single("a read", err, "GET", "", "")
			_, err = s.Get(ctx, id, "absent", store.GetOptions{})
			single("a read of nothing is no failure", err, "GET", "", "")
			_, err = s.CounterAdd(ctx, id, "canary", store.AddOptions{Delta: store.Int(1), Min: new(store.Int(0))})
			o.take() // a script; what it is told as is not the point
			if err == nil {
				t.Error("a text was counted")
			}
			foreign(t, clustertest.Shared(t)).RPush(ctx, id.Prefix+"list", "x")
			_, err = s.Get(ctx, id, "list", store.GetOptions{})
			single("a refusal", err, "GET", store.CodeWrongType, "WRONGTYPE")

			keys, items := numbered(45, func(int) string { return "canary" })
			must[int](t)(s.MSet(ctx, id, items))
			chunks := func(what, command string) {
				t.Helper()
				total, sent := 0, o.take()
				for _, c := range sent {
					total += c.Commands
					if c.Command != command || c.Commands > 10 || c.Code != "" || c.Node == "" {
						t.Errorf("%s: %+v", what, c)
					}
				}
				if total != 45 || len(sent) < 5 {
					t.Errorf("%s: %d commands in %d chunks", what, total, len(sent))
				}
				if strings.Contains(fmt.Sprintf("%+v", sent), "canary") {
					t.Error("a key or a value is told")
				}
			}
			chunks("an mset", "SET")
			must[[]store.GetItem](t)(s.MGet(ctx, id, keys, store.Reading{}))
			chunks("an mget", "GET")
			must[[]store.GetItem](t)(s.MGet(ctx, id, keys[:3], store.Reading{})) // one wave
			total := 0
			for _, c := range o.take() {
				total += c.Commands
			}
			if total != 3 {
				t.Errorf("%d commands in a wave of 3", total)
			}
			// One that is not over with the wave, because its value goes by itself.
			must[int](t)(s.MSet(ctx, id, []store.SetItem{{Key: "large", Data: values()["a large value that does not shrink"]}, {Key: "larger", Data: bytes.Repeat(values()["every byte"], 100)}}))
			total = 0
			for _, c := range o.take() {
				total += c.Commands
			}
			if total != 2 {
				t.Errorf("%d commands in an mset of 2 large values", total)
			}
			must[[]store.GetItem](t)(s.MGet(ctx, id, []string{"list"}, store.Reading{}))
			if sent := o.take(); len(sent) != 1 || sent[0].Code != store.CodeWrongType || sent[0].RedisError != "WRONGTYPE" {
				t.Errorf("a batch with a refusal: %+v", sent)
			}
		})
	}
}
