package pooltest

import (
	"errors"
	"strings"

	"github.com/slotgate/slotgate/store/pool"
)

// leased is a story of a pool that leases, at most so many of each member; 0 = any number.
func leased(most int64, members string, story func(*Play)) func(*Play) {
	return func(p *Play) {
		p.Define(pool.Definition{Policy: pool.LeastInflight, Lease: pool.Lease{MaxPerMember: most}})
		p.With(members, nil)
		story(p)
	}
}

// hold allocates one by one and returns n leases.
func (p *Play) hold(n int) (claims []pool.Claim, members string) {
	p.t.Helper()
	var list []string
	for range n {
		res, _ := p.Allocate(pool.Request{}, "")
		if res.Reason != "" {
			p.t.Fatal(res.Reason)
		}
		a := res.Allocated[0]
		claims = append(claims, pool.Claim{ID: a.Lease.ID, Fence: a.Lease.Fence})
		list = append(list, a.Member)
	}
	return claims, strings.Join(list, " ")
}

// told is what becomes of an attempt to complete a lease: "ok", "late", or the error.
func (p *Play) told(c pool.Claim) string {
	p.t.Helper()
	kept, _, err := p.Complete(c, "")
	switch {
	case err != nil:
		return errorName(err)
	case kept.Late:
		return "late"
	}
	return "ok"
}

func errorName(err error) string {
	switch {
	case errors.Is(err, pool.ErrNoLease):
		return "no lease"
	case errors.Is(err, pool.ErrOtherFence):
		return "other fence"
	case errors.Is(err, pool.ErrLost):
		return "lost"
	}
	return err.Error()
}

// leases are the vectors of algorithms 2.5.
var leases = []Vector{
	{"L1 leases are spread up to the limit", leased(2, "a b c", func(p *Play) {
		claims, members := p.hold(6)
		p.Want("members", members, "a b c a b c")
		for i := range claims {
			if i > 0 && claims[i].Fence <= claims[i-1].Fence {
				p.t.Errorf("fence %d after %d", claims[i].Fence, claims[i-1].Fence)
			}
		}
		if claims[0].Fence != T0 {
			p.t.Errorf("the first fence is %d, want the time", claims[0].Fence)
		}
		p.wait(2*Second + 1)
		res, _ := p.Allocate(pool.Request{}, "")
		if res.Reason != pool.Saturated || res.RetryAfterMS != 28_000 {
			p.t.Errorf("the seventh: %+v", res)
		}
		if res, _ := p.Allocate(pool.Request{Exclude: []string{"a", "b", "c"}}, ""); res.Reason != pool.Excluded {
			p.t.Errorf("all excluded: %+v", res)
		}
	})},
	{"L2 a lease is completed once by who holds it", leased(2, "a b c", func(p *Play) {
		claims, _ := p.hold(6)
		p.wait(5 * Second)
		kept, _, err := p.Complete(claims[1], "")
		if want := (pool.Kept{Member: "b", HeldMS: 5000, ExpiresAtMS: T0/1000 + 30_000}); err != nil || kept != want {
			p.t.Errorf("completed: %+v, %v, want %+v", kept, err, want)
		}
		p.Want("a second time", p.told(claims[1]), "no lease")
		p.Want("another's fence", p.told(pool.Claim{ID: claims[2].ID, Fence: claims[3].Fence}), "other fence")
		p.Want("an invented one", p.told(pool.Claim{ID: strings.Repeat("A", 22), Fence: 1}), "no lease")
		_, members := p.hold(1)
		p.Want("who is free again", members, "b")
	})},
	{"L3 a lease is renewed until it expires", leased(0, "a b", func(p *Play) {
		p.Define(pool.Definition{Policy: pool.LeastInflight, Lease: pool.Lease{MaxMS: 60_000}})
		claims, _ := p.hold(2)
		p.wait(10 * Second)
		if kept, err := p.Renew(claims[0], 40_000); err != nil || kept.ExpiresAtMS != T0/1000+50_000 || kept.Member != "a" {
			p.t.Errorf("renewed: %+v, %v", kept, err)
		}
		if kept, err := p.Renew(claims[0], 60_000); err != nil || kept.ExpiresAtMS != T0/1000+60_000 {
			p.t.Errorf("renewed beyond the most: %+v, %v", kept, err)
		}
		if _, err := p.Renew(pool.Claim{ID: claims[0].ID, Fence: claims[1].Fence}, 1000); !errors.Is(err, pool.ErrOtherFence) {
			p.t.Errorf("with another fence: %v", err)
		}
		p.at(30)
		if _, err := p.Renew(claims[1], 1000); !errors.Is(err, pool.ErrLost) {
			p.t.Errorf("when it has expired: %v", err)
		}
		p.Want("completed late", p.told(claims[1]), "late")
		if _, err := p.Renew(claims[1], 1000); !errors.Is(err, pool.ErrNoLease) {
			p.t.Errorf("when it is completed: %v", err)
		}
		p.Want("completed in time", p.told(claims[0]), "ok")
	})},
	{"L4 abandoned leases come back", leased(2, "a b c", func(p *Play) {
		claims, _ := p.hold(5)
		p.Want("before", p.Held(), "a2 b2 c1")
		p.wait(30 * Second)
		again, members := p.hold(1)
		p.Want("then", members+", "+p.Held(), "a, a1 b0 c0")
		if o := p.Show(); o.Abandoned != 5 {
			p.t.Errorf("%d were abandoned", o.Abandoned)
		}
		if again[0].Fence != p.now {
			p.t.Errorf("fence %d, want the time", again[0].Fence)
		}
		p.Want("completed when it was given to another", p.told(claims[0]), "no lease")
		p.Want("at last", p.Held(), "a1 b0 c0")
	})},
	{"L6 a repetition has the same lease", leased(0, "a b", func(p *Play) {
		first, _ := p.Allocate(pool.Request{Count: 2}, "k")
		p.wait(Second)
		again, replayed := p.Allocate(pool.Request{Count: 2}, "k")
		if !replayed || *first.Allocated[1].Lease != *again.Allocated[1].Lease || first.Allocated[0].Member != again.Allocated[0].Member {
			p.t.Errorf("first %+v, then %+v, replayed %v", first, again, replayed)
		}
		p.Want("leases", p.Held(), "a1 b1")

		lease := first.Allocated[0].Lease
		c := pool.Claim{ID: lease.ID, Fence: lease.Fence}
		done, _, err := p.Complete(c, "done")
		if err != nil {
			p.t.Fatal(err)
		}
		p.wait(Second)
		if once, replayed, err := p.Complete(c, "done"); err != nil || !replayed || once != done {
			p.t.Errorf("completed again: %+v, replayed %v, %v", once, replayed, err)
		}
		p.Want("then", p.Held(), "a0 b1")
	})},
	{"L7 leases outlive that a member is away", leased(2, "a b", func(p *Play) {
		claims, _ := p.hold(4)
		p.Available("a", false)
		p.Want("off", p.Held(), "a2 b2")
		p.Want("completed", p.told(claims[0]), "ok")
		p.Available("a", true)
		p.Want("on", p.Held(), "a1 b2")
		p.Remove("a")
		p.Want("completed when the member had left", p.told(claims[2]), "ok")
		p.Put(pool.Member{Member: "a"})
		p.Want("added again", p.Held(), "b2 a0")
	})},
}
