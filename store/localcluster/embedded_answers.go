package localcluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/slotgate/slotgate/store/slot"
)

// busOffset makes up the port of the nodes' own connections, which do not exist, as Redis would choose it.
const busOffset = 10_000

// answerCluster answers CLUSTER as one of several nodes.
func (n *embeddedNode) answerCluster(c *server.Peer, sub string, args []string) {
	switch sub {
	case "SLOTS":
		c.Block(n.cluster.writeSlots)
	case "SHARDS":
		c.Block(n.cluster.writeShards)
	case "NODES":
		c.WriteBulk(n.describeNodes())
	case "INFO":
		c.WriteBulk(n.cluster.describe())
	case "MYID":
		c.WriteBulk(n.id)
	case "KEYSLOT":
		if len(args) != 2 {
			c.WriteError("ERR wrong number of arguments for 'cluster|keyslot' command")
			return
		}
		c.WriteInt(slot.Of(args[1]))
	case "COUNTKEYSINSLOT", "GETKEYSINSLOT":
		n.answerKeysInSlot(c, sub, args[1:])
	default:
		c.WriteError("ERR the embedded cluster knows only CLUSTER SLOTS, SHARDS, NODES, INFO, MYID, KEYSLOT, COUNTKEYSINSLOT, GETKEYSINSLOT")
	}
}

func (e *Embedded) writeSlots(w *server.Writer) {
	w.WriteLen(len(e.nodes))
	for _, n := range e.nodes {
		w.WriteLen(3)
		w.WriteInt(n.first)
		w.WriteInt(n.last)
		w.WriteLen(4)
		w.WriteBulk(loopback)
		w.WriteInt(n.port)
		w.WriteBulk(n.id)
		w.WriteLen(0) // metadata
	}
}

func (e *Embedded) writeShards(w *server.Writer) {
	w.WriteLen(len(e.nodes))
	for _, n := range e.nodes {
		w.WriteMapLen(2)
		w.WriteBulk("slots")
		w.WriteLen(2)
		w.WriteInt(n.first)
		w.WriteInt(n.last)
		w.WriteBulk("nodes")
		w.WriteLen(1)
		w.WriteMapLen(7)
		w.WriteBulk("id")
		w.WriteBulk(n.id)
		w.WriteBulk("port")
		w.WriteInt(n.port)
		w.WriteBulk("replication-offset")
		w.WriteInt(0)
		for _, pair := range [][2]string{{"ip", loopback}, {"endpoint", loopback}, {"role", "master"}, {"health", "online"}} {
			w.WriteBulk(pair[0])
			w.WriteBulk(pair[1])
		}
	}
}

func (n *embeddedNode) describeNodes() string {
	var b strings.Builder
	for i, other := range n.cluster.nodes {
		flags := "master"
		if other == n {
			flags = "myself,master"
		}
		fmt.Fprintf(&b, "%s %s@%d %s - 0 0 %d connected %d-%d\n", other.id, other.addr(), other.port+busOffset, flags, i+1, other.first, other.last)
	}
	return b.String()
}

func (e *Embedded) describe() string {
	return fmt.Sprintf("cluster_state:ok\r\ncluster_slots_assigned:%[1]d\r\ncluster_slots_ok:%[1]d\r\ncluster_slots_pfail:0\r\n"+
		"cluster_slots_fail:0\r\ncluster_known_nodes:%[2]d\r\ncluster_size:%[2]d\r\ncluster_current_epoch:%[2]d\r\n", slot.Count, len(e.nodes))
}

func (n *embeddedNode) answerKeysInSlot(c *server.Peer, sub string, args []string) {
	wanted := 1
	if sub == "GETKEYSINSLOT" {
		wanted = 2
	}
	numbers := make([]int, len(args))
	for i, text := range args {
		var err error
		if numbers[i], err = strconv.Atoi(text); err != nil || numbers[i] < 0 {
			wanted = -1
		}
	}
	if len(args) != wanted || numbers[0] >= slot.Count {
		c.WriteError("ERR Invalid slot or number of keys")
		return
	}
	var keys []string
	for _, key := range n.server.Keys() {
		if slot.Of(key) == numbers[0] {
			keys = append(keys, key)
		}
	}
	if wanted == 1 {
		c.WriteInt(len(keys))
		return
	}
	c.WriteStrings(keys[:min(len(keys), numbers[1])])
}

// info answers INFO, also for sections that miniredis refuses. What it cannot know is left out.
func (n *embeddedNode) info(section string) string {
	parts := []struct{ name, text string }{
		{"SERVER", fmt.Sprintf("# Server\r\nredis_version:7.0.0\r\nredis_mode:cluster\r\nprocess_id:%d\r\ntcp_port:%d\r\nslotgate_embedded:1\r\n", os.Getpid(), n.port)},
		{"CLIENTS", fmt.Sprintf("# Clients\r\nconnected_clients:%d\r\n", n.server.CurrentConnectionCount())},
		{"PERSISTENCE", "# Persistence\r\nloading:0\r\naof_enabled:0\r\n"},
		{"REPLICATION", "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n"},
		{"CLUSTER", "# Cluster\r\ncluster_enabled:1\r\n"},
	}
	var b strings.Builder
	for _, p := range parts {
		if section == p.name || section == "" || section == "ALL" || section == "DEFAULT" || section == "EVERYTHING" {
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// answerEncoding answers OBJECT ENCODING with what Redis would use for a small value of the type.
func (n *embeddedNode) answerEncoding(c *server.Peer, key string) {
	switch kind := n.server.Type(key); kind {
	case "":
		c.WriteNull()
	case "string":
		value, _ := n.server.Get(key)
		c.WriteBulk(stringEncoding(value))
	case "list":
		c.WriteBulk("quicklist")
	case "set":
		c.WriteBulk("hashtable")
	case "stream":
		c.WriteBulk("stream")
	default:
		c.WriteBulk("listpack")
	}
}

func stringEncoding(value string) string {
	if i, err := strconv.ParseInt(value, 10, 64); err == nil && strconv.FormatInt(i, 10) == value {
		return "int"
	}
	if len(value) <= 44 { // OBJ_ENCODING_EMBSTR_SIZE_LIMIT of Redis
		return "embstr"
	}
	return "raw"
}
