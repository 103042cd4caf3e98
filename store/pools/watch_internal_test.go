package pools

import (
	"fmt"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
)

// What a gateway looks after is bounded, of an app and of all, and is free again when it is forgotten.
func TestNoAppTakesThePlacesOfAll(t *testing.T) {
	w := newWatch()
	now := time.Unix(1_800_000_000, 0)
	see := func(app, pools int) (there int) {
		id := &acl.Identity{App: &acl.App{ID: fmt.Sprint("app", app), Namespace: fmt.Sprint("n", app)}}
		before := len(w.pools)
		for n := range pools {
			w.note(id, fmt.Sprint("p", n), false)
		}
		return len(w.pools) - before
	}
	if n := see(0, maxWatched); n != maxWatchedOfApp {
		t.Errorf("of one app it looks after %d pools", n)
	}
	if n := see(1, 3); n != 3 {
		t.Errorf("of another app it looks after %d pools of 3", n)
	}
	for app := range maxWatched {
		see(2+app, 2)
	}
	if len(w.pools) != maxWatched {
		t.Errorf("it looks after %d pools", len(w.pools))
	}
	w.drop(w.round(now)[0])
	if n := see(0, maxWatched); n != 1 {
		t.Errorf("in the place of one that is gone it looks after %d", n)
	}
	w.round(now)
	if w.round(now.Add(forgetAfter)); len(w.pools) != 0 || len(w.ofApp) != 0 {
		t.Errorf("%d pools of %d apps are left that nobody uses", len(w.pools), len(w.ofApp))
	}
}
