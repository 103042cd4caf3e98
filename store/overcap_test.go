package store_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// TestAValueFarOverTheCapHarmsNobodyBehindIt reads a value so large that dropping its connection is cheaper than
// reading it, while others read small ones of the same node: none of them may be told that its value is empty.
func TestAValueFarOverTheCapHarmsNobodyBehindIt(t *testing.T) {
	c := clustertest.Shared(t)
	id, ctx := newApp(t), testContext(t)
	const tag, workers = "{t}", 32
	client := foreign(t, c)
	huge := id.Prefix + tag + "huge"
	if err := client.SetRange(ctx, huge, 64<<20, "end").Err(); err != nil {
		t.Fatal(err)
	}
	defer client.Del(ctx, huge)
	for i := range workers {
		key := tag + strconv.Itoa(i)
		must[string](t)(client.Set(ctx, id.Prefix+key, key, 0).Result())
	}
	for range 3 {
		// One that does not know yet which keys are large. 64 MB may take a busy machine more than the usual second, and a node that sends them
		// answers others late; neither is the matter here.
		s := newStore(t, c, func(cfg *store.Config) { cfg.Redis.ReadTimeout, cfg.Overload.Off = 30*time.Second, true })
		var stop atomic.Bool
		var all sync.WaitGroup
		for i := range workers {
			all.Go(func() {
				key := tag + strconv.Itoa(i)
				for !stop.Load() {
					if v, err := s.Get(ctx, id, key, store.GetOptions{}); err != nil || string(v.Data) != key {
						t.Errorf("%s: got %+v, error %v", key, v, err)
						return
					}
					if _, err := s.Set(ctx, id, key, []byte(key), store.SetOptions{}); err != nil {
						t.Errorf("writing %s: %v", key, err)
						return
					}
				}
			})
		}
		for range 2 {
			_, err := s.Get(ctx, id, tag+"huge", store.GetOptions{})
			wantCode(t, err, store.CodeResponseTooLarge)
		}
		stop.Store(true)
		all.Wait()
	}
}
