package store_test

import (
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// Replicas go on telling a slot map whose primaries are dead; a gateway that believed them would be sent requests it can only refuse.
func TestRoutableNeedsAPrimaryThatAnswers(t *testing.T) {
	c := clustertest.Run(t, localcluster.Options{Primaries: 3, Replicas: 1, NodeTimeout: 30 * time.Second})
	s := newStore(t, c)
	nodes := c.Nodes()
	for i, sentence := range []string{"all primaries answer", "two of three answer", "one of three answers"} {
		if err := s.Routable(testContext(t), "default"); err != nil {
			t.Errorf("%s: %v", sentence, err)
		}
		nodes[i].Kill()
	}
	if err := s.Routable(testContext(t), "default"); err == nil {
		t.Error("no primary answers, and yet it is routable")
	}
	for _, n := range nodes[:3] {
		if err := n.Restart(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	for ctx := testContext(t); s.Routable(ctx, "default") != nil; {
		if ctx.Err() != nil {
			t.Fatal("it does not become routable again")
		}
	}
}
