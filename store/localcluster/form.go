package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/slotgate/slotgate/store/slot"
)

// start brings the folder's cluster up, or makes one there. Ports may be taken by others between the choice and the use; then
// everything is started again with others.
func (c *Cluster) start(ctx context.Context) error {
	was, err := readLayout(c.Dir())
	if err != nil {
		return err
	}
	want := layout{Version: layoutVersion, Primaries: c.options.Primaries, Replicas: c.options.Replicas}
	if was.Formed && (was.Primaries != want.Primaries || was.Replicas != want.Replicas) {
		return fmt.Errorf("%s holds a cluster of %d primaries with %d replicas each", c.Dir(), was.Primaries, was.Replicas)
	}
	want.Formed = was.Formed
	want.Ports = make([][2]int, want.Primaries*(1+want.Replicas))
	copy(want.Ports, was.Ports)
	for attempt := 1; ; attempt++ {
		err := c.startOn(ctx, &want)
		if !errors.Is(err, errPortTaken) || attempt == 5 || ctx.Err() != nil {
			return err
		}
		for _, n := range c.nodes {
			n.Kill()
			n.closeClient()
		}
	}
}

func (c *Cluster) startOn(ctx context.Context, l *layout) error {
	before := append([][2]int(nil), l.Ports...)
	if err := l.choosePorts(c.options.Ports); err != nil {
		return err
	}
	if err := c.writeFiles(l, before); err != nil {
		return err
	}
	g, starting := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		g.Go(func() error { return n.start(starting) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, n := range c.nodes {
		id, err := n.Client().Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return fmt.Errorf("asking %s for its name: %w", n.Addr, err)
		}
		n.ID = id
	}
	if !l.Formed {
		if err := c.form(ctx); err != nil {
			return err
		}
		l.Formed = true
		if err := l.write(c.Dir()); err != nil {
			return err
		}
	}
	return c.WaitOK(ctx)
}

// writeFiles makes the nodes and their folders. Those of a cluster that was never finished are emptied.
func (c *Cluster) writeFiles(l *layout, before [][2]int) error {
	c.nodes = make([]*Node, len(l.Ports))
	for i, ports := range l.Ports {
		n := &Node{cluster: c, ports: ports, binary: c.options.Binary}
		n.Addr = loopback + ":" + strconv.Itoa(ports[0])
		n.dir = filepath.Join(c.Dir(), fmt.Sprintf("node-%d", i+1))
		if i >= l.Primaries {
			n.binary = c.options.ReplicaBinary
		}
		c.nodes[i] = n
		if !l.Formed {
			if err := os.RemoveAll(n.dir); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(n.dir, 0o700); err != nil {
			return err
		}
		if l.Formed {
			if err := readdress(filepath.Join(n.dir, "nodes.conf"), before, l.Ports); err != nil {
				return err
			}
		}
		if err := c.options.writeConfig(filepath.Join(n.dir, "redis.conf"), n.dir, ports); err != nil {
			return err
		}
	}
	return l.write(c.Dir())
}

// form makes one cluster of fresh nodes: slots to the primaries, everybody introduced to everybody (which is quicker than
// gossip), then the replicas put to their primaries.
func (c *Cluster) form(ctx context.Context) error {
	primaries := c.options.Primaries
	for i, n := range c.nodes {
		if i < primaries {
			first, last := slot.Count*i/primaries, slot.Count*(i+1)/primaries-1
			if err := n.Client().ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
				return fmt.Errorf("giving slots to %s: %w", n.Addr, err)
			}
		}
		if err := n.Client().Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return fmt.Errorf("numbering %s: %w", n.Addr, err)
		}
	}
	for i, n := range c.nodes {
		if err := n.introduce(ctx, c.nodes[:i]); err != nil {
			return err
		}
	}
	for i, n := range c.nodes {
		if err := n.acquaint(ctx, c.nodes[:i]); err != nil {
			return err
		}
	}
	for i, n := range c.nodes[primaries:] {
		if err := n.replicate(ctx, c.nodes[i%primaries]); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) introduce(ctx context.Context, others []*Node) error {
	for _, other := range others {
		err := n.Client().Do(ctx, "CLUSTER", "MEET", loopback, other.ports[0], other.ports[1]).Err()
		if err != nil {
			return fmt.Errorf("introducing %s to %s: %w", other.Addr, n.Addr, err)
		}
	}
	return nil
}

// acquaint waits until the node knows others. A node that does not shake hands within the node timeout, as on a busy machine, is forgotten
// and has to be introduced again; while hands are being shaken that does nothing.
func (n *Node) acquaint(ctx context.Context, others []*Node) error {
	for {
		known, err := n.view(ctx)
		if err != nil {
			return err
		}
		strangers := slices.DeleteFunc(slices.Clone(others), func(other *Node) bool { _, ok := known[other.ID]; return ok })
		if len(strangers) == 0 {
			return nil
		}
		if err := n.introduce(ctx, strangers); err != nil {
			return err
		}
		if !wait(ctx) {
			return fmt.Errorf("introducing %s to %s: %w", strangers[0].Addr, n.Addr, ctx.Err())
		}
	}
}

// replicate repeats the command until the node has come to know its primary.
func (n *Node) replicate(ctx context.Context, primary *Node) error {
	for {
		err := n.Client().ClusterReplicate(ctx, primary.ID).Err()
		if err == nil {
			return nil
		}
		if !wait(ctx) {
			return fmt.Errorf("making %s a replica of %s: %w", n.Addr, primary.Addr, err)
		}
	}
}
