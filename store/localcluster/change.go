package localcluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Failover hands a primary's slots to its first replica in the planned way, losing nothing, and returns the new primary when
// all running nodes agree on it.
func (c *Cluster) Failover(ctx context.Context, primary *Node) (*Node, error) {
	replica, err := c.ReplicaOf(ctx, primary)
	if err != nil {
		return nil, err
	}
	if err := replica.Client().ClusterFailover(ctx).Err(); err != nil {
		return nil, fmt.Errorf("promoting %s: %w", replica.Addr, err)
	}
	for {
		role, err := replica.Role(ctx)
		if err == nil && role == Primary {
			return replica, c.WaitOK(ctx)
		}
		if !wait(ctx) {
			return nil, fmt.Errorf("promoting %s: %w", replica.Addr, errors.Join(ctx.Err(), err))
		}
	}
}

// MigrateSlot moves a slot with its keys from one primary to another, as redis-cli does: readers and writers of the slot are
// redirected by ASK while it lasts, by MOVED afterwards. It returns when all running nodes agree.
func (c *Cluster) MigrateSlot(ctx context.Context, s int, from, to *Node) error {
	if err := c.BeginMigration(ctx, s, from, to); err != nil {
		return err
	}
	for {
		moved, err := c.MoveKeys(ctx, s, from, to, 100)
		if err != nil {
			return err
		}
		if moved == 0 {
			return c.EndMigration(ctx, s, to)
		}
	}
}

// BeginMigration opens a slot for moving: from now on keys that its old primary does not have are asked of the new one.
func (c *Cluster) BeginMigration(ctx context.Context, s int, from, to *Node) error {
	if err := to.Client().Do(ctx, "CLUSTER", "SETSLOT", s, "IMPORTING", from.ID).Err(); err != nil {
		return fmt.Errorf("importing slot %d: %w", s, err)
	}
	if err := from.Client().Do(ctx, "CLUSTER", "SETSLOT", s, "MIGRATING", to.ID).Err(); err != nil {
		return fmt.Errorf("migrating slot %d: %w", s, err)
	}
	return nil
}

// MoveKeys moves up to limit keys of an open slot and tells how many it found.
func (c *Cluster) MoveKeys(ctx context.Context, s int, from, to *Node, limit int) (int, error) {
	keys, err := from.Client().ClusterGetKeysInSlot(ctx, s, limit).Result()
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	command := []any{"MIGRATE", loopback, to.ports[0], "", 0, 5000}
	switch o := c.options; {
	case o.Username != "":
		command = append(command, "AUTH2", o.Username, o.Password)
	case o.Password != "":
		command = append(command, "AUTH", o.Password)
	}
	command = append(command, "KEYS")
	for _, key := range keys {
		command = append(command, key)
	}
	if err := from.Client().Do(ctx, command...).Err(); err != nil {
		return 0, fmt.Errorf("moving keys of slot %d: %w", s, err)
	}
	return len(keys), nil
}

// EndMigration gives an open slot, empty by now, to its new primary, which is told first: so the slot always has one.
func (c *Cluster) EndMigration(ctx context.Context, s int, to *Node) error {
	primaries, err := c.Primaries(ctx)
	if err != nil {
		return err
	}
	for _, n := range append([]*Node{to}, primaries...) {
		if err := n.Client().Do(ctx, "CLUSTER", "SETSLOT", s, "NODE", to.ID).Err(); err != nil {
			return fmt.Errorf("giving slot %d to %s, telling %s: %w", s, to.Addr, n.Addr, err)
		}
	}
	return c.WaitOK(ctx)
}

// KillConnections closes the connections of one kind ("normal" if none is given, "pubsub", "replica") to a node and returns
// their number.
func (c *Cluster) KillConnections(ctx context.Context, n *Node, kinds ...string) (int64, error) {
	if len(kinds) == 0 {
		kinds = []string{"normal"}
	}
	total := int64(0)
	for _, kind := range kinds {
		killed, err := n.Client().Do(ctx, "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes").Int64()
		if err != nil {
			return total, fmt.Errorf("closing connections of %s: %w", n.Addr, err)
		}
		total += killed
	}
	return total, nil
}

// StallReplication stops every running replica from taking over what its primary writes, while it still answers reads, with
// older and older data, until ResumeReplication (or an hour has passed). WAIT then counts no replica.
func (c *Cluster) StallReplication(ctx context.Context) error {
	return c.eachReplica(ctx, func(n *Node) error { return n.StallReplication(ctx) })
}

// ResumeReplication ends StallReplication; WaitOK tells when the replicas are in contact again.
func (c *Cluster) ResumeReplication(ctx context.Context) error {
	return c.eachReplica(ctx, func(n *Node) error { return n.ResumeReplication(ctx) })
}

// StallReplication is that of a cluster for one node, whatever its role. Its link to its primary stays up.
func (n *Node) StallReplication(ctx context.Context) error {
	// A paused server puts off the writes of all its clients, and the primary is one of them.
	return n.Client().Do(ctx, "CLIENT", "PAUSE", time.Hour.Milliseconds(), "WRITE").Err()
}

// ResumeReplication ends StallReplication of one node.
func (n *Node) ResumeReplication(ctx context.Context) error {
	return n.Client().ClientUnpause(ctx).Err()
}

// CutReplication breaks the link of a replica to its primary and has it fail to make another, until MendReplication. It still answers reads,
// with what it has, and says that the link is down.
func (n *Node) CutReplication(ctx context.Context) error {
	if err := n.Client().ConfigSet(ctx, "masterauth", "not the password").Err(); err != nil {
		return err
	}
	return n.Client().Do(ctx, "CLIENT", "KILL", "TYPE", "master").Err()
}

// MendReplication ends CutReplication; WaitOK tells when the replica is in contact again.
func (n *Node) MendReplication(ctx context.Context) error {
	return n.Client().ConfigSet(ctx, "masterauth", n.cluster.options.Password).Err()
}

func (c *Cluster) eachReplica(ctx context.Context, do func(*Node) error) error {
	for _, n := range c.running() {
		role, err := n.Role(ctx)
		if err != nil {
			return err
		}
		if role != Replica {
			continue
		}
		if err := do(n); err != nil {
			return fmt.Errorf("replica %s: %w", n.Addr, err)
		}
	}
	return nil
}

// Repair undoes what tests do to a cluster: nodes run again, replication is not stalled, and the cluster is well.
func (c *Cluster) Repair(ctx context.Context) error {
	for _, n := range c.nodes {
		if n.Running() {
			continue
		}
		if err := n.Resume(); err == nil {
			continue // it was paused
		}
		if err := n.Restart(ctx); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := errors.Join(n.ResumeReplication(ctx), n.MendReplication(ctx)); err != nil {
			return fmt.Errorf("repairing %s: %w", n.Addr, err)
		}
	}
	return c.WaitOK(ctx)
}
