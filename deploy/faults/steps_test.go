package faults

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// load returns clients of one gateway with a ledger of their own.
func (in *installation) load(g *gateway, clients int) *load {
	return &load{ledger: newLedger(), token: in.token, target: func() string { return g.api }, clients: clients}
}

// warm has the gateway make its connections and buffers, and returns what it then holds with no client connected.
func warm(t *testing.T, in *installation, g *gateway) size {
	t.Helper()
	l := in.load(g, 16)
	l.prefix = "warm-"
	l.ops = []string{opPut, opGet, opMget, opMset}
	l.start(t)
	pause(t, time.Second)
	l.stop()
	pause(t, 300*time.Millisecond) // the gateway sees that the clients have gone
	return g.size(t)
}

// pause lets a load run for a while: a part of what is done, not a wait for something.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	if !sleep(t.Context(), d) {
		t.Fatal(context.Cause(t.Context()))
	}
}

// compare is the ledger's verdict on what Redis holds, with its examples in the test's log.
func (l *load) compare(t *testing.T, c *redis.ClusterClient) verdict {
	t.Helper()
	v, err := l.ledger.compare(stored(within(t), c))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range v.examples {
		t.Log(e)
	}
	return v
}

// honest says that nothing was applied twice, labelled wrongly, crossed or put out of order: true whatever the fault.
func (v verdict) honest() bool {
	return v.double == 0 && v.wrong == 0 && v.crossed == 0 && v.disorder == 0 && v.silent == 0
}

// exact says that besides nothing was lost.
func (v verdict) exact() bool { return v.honest() && v.lost == 0 }

func (v verdict) mustBeHonest(t *testing.T) {
	t.Helper()
	if !v.honest() {
		t.Errorf("%s; %d answers without an outcome", v.counted(), v.silent)
	}
	if v.acked == 0 {
		t.Error("no write was acked: nothing was tested")
	}
}

func (v verdict) mustBeExact(t *testing.T) {
	t.Helper()
	v.mustBeHonest(t)
	if v.lost > 0 {
		t.Errorf("%d acked writes are lost", v.lost)
	}
}

// ms rounds a time for the table.
func ms(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
