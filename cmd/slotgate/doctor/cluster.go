package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/info"
)

// What is too much. Tokens allow for 30 s between clocks, so half of it is a fault; a second is what NTP never leaves.
const (
	skewWarn  = time.Second
	skewFail  = 15 * time.Second
	slowTrip  = 2 * time.Millisecond // within one data centre it is a tenth of that
	pings     = 5
	allSlots  = 16384
	atOnce    = 16
	nodeLimit = 2 * time.Second // for all questions to one node
)

// A Cluster is one to be looked at.
type Cluster struct {
	Name    string
	Client  *redis.ClusterClient // as a gateway would make it; used, not owned
	Control bool                 // it keeps apps and keys
	Now     func() time.Time
}

// Check asks every node of the cluster. It ends with ctx at the latest.
func (c Cluster) Check(ctx context.Context) []Finding {
	slots, err := c.Client.ClusterSlots(ctx).Result()
	if err != nil {
		f := fail(c.Name, "reachable", reachDo(err), "%v", err)
		f.Unreachable = !redis.IsAuthError(err) && !redis.IsPermissionError(err)
		return []Finding{f}
	}
	nodes, primaries := nodesOf(slots)
	found := []Finding{c.coverage(slots, primaries, nodes)}
	answers := c.askAll(ctx, nodes)
	found = append(found, c.versions(answers))
	for _, a := range answers {
		found = append(found, a.found...)
	}
	return found
}

func reachDo(err error) string {
	switch {
	case redis.IsAuthError(err):
		return "look at username and password_file"
	case redis.IsPermissionError(err):
		return "give the user the rights named in the error, see ACL SETUSER"
	}
	return "look at addrs, the network between here and the nodes, and whether Redis runs"
}

// nodesOf lists the addresses of all nodes, primaries first in each shard.
func nodesOf(slots []redis.ClusterSlot) (nodes []string, primaries map[string]bool) {
	primaries = map[string]bool{}
	for _, s := range slots {
		for i, n := range s.Nodes {
			if !slices.Contains(nodes, n.Addr) {
				nodes = append(nodes, n.Addr)
			}
			if i == 0 {
				primaries[n.Addr] = true
			}
		}
	}
	return nodes, primaries
}

func (c Cluster) coverage(slots []redis.ClusterSlot, primaries map[string]bool, nodes []string) Finding {
	covered := 0
	for _, s := range slots {
		covered += s.End - s.Start + 1
	}
	if covered < allSlots {
		return fail(c.Name, "slots", "redis-cli --cluster check, then --cluster fix", "%d of %d slots are covered", covered, allSlots)
	}
	if len(nodes) < 2*len(primaries) {
		return warn(c.Name, "slots", "give each primary a replica: redis-cli --cluster add-node --cluster-slave",
			"all slots are covered, by %d primaries with %d replicas together: some data is lost with its node", len(primaries), len(nodes)-len(primaries))
	}
	return ok(c.Name, "slots", "all are covered, %d primaries and %d replicas", len(primaries), len(nodes)-len(primaries))
}

// answer is what one node said.
type answer struct {
	addr, software, version string
	found                   []Finding
}

func (c Cluster) askAll(ctx context.Context, nodes []string) []answer {
	answers := make([]answer, len(nodes))
	limit := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, addr := range nodes {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			bounded, cancel := context.WithTimeout(ctx, nodeLimit)
			defer cancel()
			answers[i] = c.ask(bounded, addr)
		})
	}
	wg.Wait()
	return answers
}

// ask looks at one node over a connection of its own.
func (c Cluster) ask(ctx context.Context, addr string) answer {
	where := c.Name + " " + addr
	o := c.Client.Options()
	node := redis.NewClient(&redis.Options{
		Addr: addr, Username: o.Username, Password: o.Password, Dialer: o.Dialer, Protocol: 2, DisableIdentity: true,
		DialTimeout: o.DialTimeout, DialerRetries: 1, ReadTimeout: o.ReadTimeout, MaxRetries: -1, ContextTimeoutEnabled: true, PoolSize: 1,
		MaintNotificationsConfig: o.MaintNotificationsConfig,
	})
	defer node.Close()
	a := answer{addr: addr}
	add := func(f ...Finding) { a.found = append(a.found, f...) }
	trip, err := roundTrip(ctx, node)
	if err != nil {
		add(fail(where, "reachable", reachDo(err), "%v", err))
		return a
	}
	if trip > slowTrip {
		add(warn(where, "round trip", "put gateways and nodes into one place; look at load and network", "%v", trip.Round(time.Microsecond)))
	} else {
		add(ok(where, "round trip", "%v", trip.Round(time.Microsecond)))
	}
	add(c.clock(ctx, where, node))
	add(state(ctx, where, node))
	text, err := node.Info(ctx).Result()
	if err != nil {
		add(warn(where, "info", "let the user call INFO: ACL SETUSER … +info", "%v", err))
		return a
	}
	fields := info.Parse(text)
	a.software, a.version = "redis", fields["redis_version"]
	if v := fields["valkey_version"]; v != "" {
		a.software, a.version = "valkey", v
	}
	add(checkVersion(where, a.software, a.version), commands(ctx, where, node, fields["redis_version"]))
	add(c.memory(where, fields), c.persistence(where, fields))
	if fields.Replica() && fields["master_link_status"] != "up" {
		add(warn(where, "replication", "look at the replica's log", "the link to the primary is %s", fields["master_link_status"]))
	}
	add(rights(ctx, where, node))
	return a
}

func roundTrip(ctx context.Context, node *redis.Client) (time.Duration, error) {
	if err := node.Ping(ctx).Err(); err != nil { // connects
		return 0, err
	}
	took := make([]time.Duration, pings)
	for i := range took {
		start := time.Now()
		if err := node.Ping(ctx).Err(); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[pings/2], nil
}

func (c Cluster) clock(ctx context.Context, where string, node *redis.Client) Finding {
	const check, do = "clock", "run chrony or systemd-timesyncd on both machines"
	before := c.Now()
	theirs, err := node.Time(ctx).Result()
	if err != nil {
		return warn(where, check, "let the user call TIME: ACL SETUSER … +time", "%v", err)
	}
	after := c.Now()
	skew := theirs.Sub(before.Add(after.Sub(before) / 2))
	switch text := skew.Round(time.Millisecond); {
	case skew.Abs() > skewFail:
		return fail(where, check, do, "it is %v off ours", text)
	case skew.Abs() > skewWarn:
		return warn(where, check, do, "it is %v off ours", text)
	default:
		return ok(where, check, "%v off ours", text)
	}
}

func state(ctx context.Context, where string, node *redis.Client) Finding {
	const check = "cluster_state"
	text, err := node.ClusterInfo(ctx).Result()
	if err != nil {
		return warn(where, check, "let the user call CLUSTER INFO: ACL SETUSER … +cluster|info", "%v", err)
	}
	if s := info.Parse(text)["cluster_state"]; s != "ok" {
		return fail(where, check, "redis-cli --cluster check; a node is down or cut off from the others", "%q", s)
	}
	return ok(where, check, "ok")
}

// memory looks at what happens when the node is full.
func (c Cluster) memory(where string, f info.Fields) Finding {
	const check = "memory"
	policy, most := f["maxmemory_policy"], f["maxmemory"]
	switch {
	case c.Control && strings.HasPrefix(policy, "allkeys-"):
		return fail(where, check, "keep apps and keys in a cluster with noeviction, or a volatile- policy",
			"maxmemory-policy %s evicts any key, so the apps and keys that are kept here too", policy)
	case most == "0":
		return warn(where, check, "set maxmemory to some three quarters of the machine's memory", "maxmemory is not set: the kernel ends Redis when memory is out")
	}
	return ok(where, check, "maxmemory %s, %s", most, policy)
}

func (c Cluster) persistence(where string, f info.Fields) Finding {
	const check = "persistence"
	switch {
	case f["loading"] == "1":
		return fail(where, check, "wait until it has loaded its data", "the node is loading")
	case f["rdb_last_bgsave_status"] == "err":
		return fail(where, check, "look at disk space and rights of Redis' dir", "the last save failed: by default the node refuses writes")
	case f["aof_last_write_status"] == "err":
		return fail(where, check, "look at disk space and rights of Redis' dir", "the append-only file cannot be written")
	case c.Control && f["aof_enabled"] == "0":
		return warn(where, check, "appendonly yes on the cluster that keeps apps and keys, and slotgate export now and then",
			"without an append-only file a crash loses the last changes of apps and keys")
	}
	return ok(where, check, "appendonly %s", map[string]string{"0": "no", "1": "yes"}[f["aof_enabled"]])
}

// needed stand for the classes of commands that the gateway sends.
var needed = [][]any{
	{"get", "slotgate:x"}, {"set", "slotgate:x", "v"}, {"unlink", "slotgate:x"}, {"incrby", "slotgate:x", 1}, {"pexpire", "slotgate:x", 1},
	{"scan", 0}, {"eval", "return 1", 1, "slotgate:x"}, {"evalsha", "0", 1, "slotgate:x"}, {"cluster", "slots"},
}

// rights tries, without doing anything, what the user may do.
func rights(ctx context.Context, where string, node *redis.Client) Finding {
	const check = "rights"
	user, err := node.Do(ctx, "acl", "whoami").Text()
	if err != nil {
		return ok(where, check, "cannot be read by this user")
	}
	var refused []string
	for _, command := range needed {
		said, err := node.Do(ctx, append([]any{"acl", "dryrun", user}, command...)...).Text()
		var reply redis.Error
		if errors.As(err, &reply) {
			return ok(where, check, "of %s cannot be read by itself", user)
		}
		if err == nil && said != "OK" {
			refused = append(refused, fmt.Sprint(command[0]))
		}
	}
	if len(refused) > 0 {
		return fail(where, check, "ACL SETUSER "+user+" with these commands and the keys of all apps", "user %s may not: %s", user, strings.Join(refused, ", "))
	}
	return ok(where, check, "user %s may do what the gateway needs", user)
}

// versions tells of a cluster whose nodes are not alike.
func (c Cluster) versions(answers []answer) Finding {
	seen := map[string]bool{}
	for _, a := range answers {
		if a.version != "" {
			seen[a.software+" "+a.version] = true
		}
	}
	var all []string
	for v := range seen {
		all = append(all, v)
	}
	slices.Sort(all)
	if len(all) > 1 {
		return warn(c.Name, "versions", "bring all nodes to one version: what works depends on the key's shard until then", "%s", strings.Join(all, ", "))
	}
	return ok(c.Name, "versions", "%s on all nodes that answered", strings.Join(all, ""))
}
