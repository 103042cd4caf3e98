package ratelimit

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/packed"
)

// forgetful loses every refund.
type forgetful struct{ *store.Store }

func (f forgetful) RunLimit(ctx context.Context, id *acl.Identity, access acl.Access, sc *store.Script, keys []string, argv []any) ([]any, error) {
	p := packed.Reader{Rest: string(argv[0].([]byte))}
	if m := mode(p.Number()); m == refund || m == undo {
		return nil, &store.Error{Code: store.CodeBackendTimeout, Outcome: store.Unknown}
	}
	return f.Store.RunLimit(ctx, id, access, sc, keys, argv)
}

// An error would let through what is open then.
func TestWhatTheTotalSaysHoldsAlsoIfNothingCanBeGivenBack(t *testing.T) {
	b := newBench(t, twoScopes(Partitioned, 10, 3))
	b.run = forgetful{newStore(t)}
	if r, _ := b.take(Request{Subject: "u", Cost: ptr(8), MinGrant: ptr(2)}); r.Granted != 3 {
		t.Errorf("a part: %+v", r)
	}
	if r, _ := b.take(Request{Subject: "v"}, "key"); r.Allowed || by(r) != "total" {
		t.Errorf("nothing: %+v", r)
	}
	b.clock = func() int64 { return T0 + minute }
	if r, replayed := b.take(Request{Subject: "v"}, "key"); !r.Allowed || replayed || r.Rules[1].Remaining != 9 {
		t.Errorf("its repetition a minute later: %+v, replayed %v", r, replayed)
	}
}

// late lets a request's time end when the total has answered.
type late struct {
	*store.Store
	end  context.CancelFunc
	back chan time.Time // until when each giving back may last
}

func (l late) RunLimit(ctx context.Context, id *acl.Identity, access acl.Access, sc *store.Script, keys []string, argv []any) ([]any, error) {
	p := packed.Reader{Rest: string(argv[0].([]byte))}
	if m := mode(p.Number()); m == refund || m == undo {
		until, _ := ctx.Deadline()
		defer func() { l.back <- until }()
	}
	reply, err := l.Store.RunLimit(ctx, id, access, sc, keys, argv)
	if strings.HasSuffix(keys[0], "}:t") {
		l.end()
	}
	return reply, err
}

func TestWhatTheTotalRefusesIsGivenBackAlsoWithoutTimeLeft(t *testing.T) {
	for name, c := range map[string]struct {
		request Request
		want    int64
	}{"all": {Request{Subject: "u", Cost: ptr(3)}, 10}, "a part": {Request{Subject: "u", Cost: ptr(3), MinGrant: ptr(1)}, 9}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, twoScopes(Partitioned, 10, 3))
			b.take(Request{Subject: "first", Cost: ptr(2)})
			ctx, end := context.WithCancel(testContext(t))
			l := late{newStore(t), end, make(chan time.Time, 1)}
			b.run = l
			if _, _, err := b.Take(ctx, b.id, b.lim, &c.request, store.Idempotency{}); err != nil {
				t.Fatal(err)
			}
			select {
			case until := <-l.back:
				if time.Until(until) > giveBackFor {
					t.Errorf("it may last until %v", until)
				}
			case <-testContext(t).Done():
				t.Fatal("nothing was given back")
			}
			if left := b.remaining("u"); left[1] != c.want {
				t.Errorf("u has %v left, want %d", left, c.want)
			}
		})
	}
}

// Where very many are given back at once, a shard hangs: then the request's own time must do, and nothing outlives it.
func TestNotMoreIsGivenBackThanIsGoodForAGateway(t *testing.T) {
	b := newBench(t, twoScopes(Partitioned, 10, 3))
	b.take(Request{Subject: "first", Cost: ptr(2)})
	l := late{newStore(t), func() {}, make(chan time.Time, 1)}
	b.run = l
	for range maxGivingBack {
		b.giving <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(testContext(t), time.Hour)
	defer cancel()
	if _, _, err := b.Take(ctx, b.id, b.lim, &Request{Subject: "u", Cost: ptr(3)}, store.Idempotency{}); err != nil {
		t.Fatal(err)
	}
	want, _ := ctx.Deadline()
	if until := <-l.back; !until.Equal(want) {
		t.Errorf("it may last until %v, the request until %v", until, want)
	}
	b.wantRemaining("u", 1, 10)
}

// panics is a store that panics when something is given back.
type panics struct{ *store.Store }

func (f panics) RunLimit(ctx context.Context, id *acl.Identity, access acl.Access, sc *store.Script, keys []string, argv []any) ([]any, error) {
	p := packed.Reader{Rest: string(argv[0].([]byte))}
	if mode(p.Number()) == undo {
		panic("giving back")
	}
	return f.Store.RunLimit(ctx, id, access, sc, keys, argv)
}

func TestAPanicWhileGivingBackChangesNothingOfTheAnswer(t *testing.T) {
	b := newBench(t, twoScopes(Partitioned, 10, 3))
	b.take(Request{Subject: "first", Cost: ptr(2)})
	b.run = panics{newStore(t)}
	if r, _ := b.take(Request{Subject: "u", Cost: ptr(3)}); r.Allowed || by(r) != "total" {
		t.Errorf("%+v", r)
	}
	if len(b.giving) != 0 {
		t.Errorf("%d are still given back", len(b.giving))
	}
}
