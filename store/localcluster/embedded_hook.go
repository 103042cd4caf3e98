package localcluster

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/slotgate/slotgate/store/slot"
)

const crossSlot = "CROSSSLOT Keys in request don't hash to the same slot"

// session is what a node keeps of a connection: its transaction.
type session struct {
	multi     bool
	refused   bool      // a queued command was
	slot      int       // of the queued commands; -1: none has keys
	crossed   bool      // they are of different slots
	published []message // by the queued commands
	executing bool
}

// hook runs before every command, of clients and of scripts, and decides what miniredis, which knows no cluster, cannot. It
// returns true if it has answered.
func (n *embeddedNode) hook(c *server.Peer, command string, args ...string) bool {
	s := n.session(c)
	if s == nil {
		return n.fromScript(c, command, args)
	}
	switch command {
	case "MULTI":
		if !s.multi {
			*s = session{multi: true, slot: -1}
		}
		return false
	case "DISCARD":
		*s = session{}
		return false
	case "EXEC":
		return n.exec(c, s)
	}
	keySlot, refusal := n.route(keysOf(command, args))
	if refusal != "" {
		s.refused = true
		c.WriteError(refusal)
		return true
	}
	if s.multi && keySlot >= 0 {
		s.crossed = s.crossed || s.slot >= 0 && s.slot != keySlot
		s.slot = keySlot
	}
	if command == "PUBLISH" && len(args) == 2 {
		n.published(s, message{n, args[0], args[1]})
	}
	answer, known := n.answers(command, args)
	if known && s.multi { // it would be answered at once, not queued
		s.refused = true
		c.WriteError("ERR the embedded cluster does not know " + command + " in a transaction")
		return true
	}
	if known {
		answer(c)
	}
	return known
}

// session returns the connection's session, or nil for the imaginary connection of a script, which comes with miniredis' own
// context, where a real one gets it with its first command.
func (n *embeddedNode) session(c *server.Peer) *session {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sessions[c]
	if s == nil && c.Ctx == nil {
		s = &session{}
		n.sessions[c] = s
		c.OnDisconnect(func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			delete(n.sessions, c)
		})
	}
	return s
}

// route returns the slot of the keys, -1 without any, or the error to answer with if another node or no node has them all.
func (n *embeddedNode) route(keys []string) (keySlot int, answer string) {
	if len(keys) == 0 {
		return -1, ""
	}
	keySlot = slot.Of(keys[0])
	for _, key := range keys[1:] {
		if slot.Of(key) != keySlot {
			return keySlot, crossSlot
		}
	}
	if owner := n.cluster.owner(keySlot); owner != n {
		return keySlot, fmt.Sprintf("MOVED %d %s", keySlot, owner.addr())
	}
	return keySlot, ""
}

func (n *embeddedNode) fromScript(c *server.Peer, command string, args []string) bool {
	if _, answer := n.route(keysOf(command, args)); answer != "" {
		c.WriteError("ERR Script attempted to access a non local key in a cluster node")
		return true
	}
	if command == "PUBLISH" && len(args) == 2 {
		n.cluster.publish(message{n, args[0], args[1]})
	}
	return false
}

// published hands a publication on, or keeps it until the transaction is executed.
func (n *embeddedNode) published(s *session, m message) {
	if s.multi {
		s.published = append(s.published, m)
		return
	}
	n.cluster.publish(m)
}

// exec ends a transaction as a cluster does: aborted if a queued command was refused, refused if the commands' slots differ.
func (n *embeddedNode) exec(c *server.Peer, s *session) bool {
	if s.executing {
		return false
	}
	was := *s
	*s = session{executing: true}
	defer func() { *s = session{} }()
	srv := n.server.Server()
	if was.refused || was.crossed {
		silent := server.NewPeer(bufio.NewWriter(io.Discard))
		silent.Ctx = c.Ctx
		srv.Dispatch(silent, []string{"DISCARD"})
		if was.refused {
			c.WriteError("EXECABORT Transaction discarded because of previous errors.")
		} else {
			c.WriteError(crossSlot)
		}
		return true
	}
	srv.Dispatch(c, []string{"EXEC"}) // comes back here, executing
	for _, m := range was.published { // now that what they tell of can be seen
		n.cluster.publish(m)
	}
	return true
}

// answers returns what answers a command that miniredis does not have or answers for a single node.
func (n *embeddedNode) answers(command string, args []string) (func(*server.Peer), bool) {
	sub := ""
	if len(args) > 0 {
		sub = strings.ToUpper(args[0])
	}
	switch {
	case command == "CLUSTER" && sub != "":
		return func(c *server.Peer) { n.answerCluster(c, sub, args) }, true
	case command == "READONLY" || command == "READWRITE" || command == "ASKING" || command == "CLIENT" && sub == "SETINFO":
		return (*server.Peer).WriteOK, true
	case command == "SELECT" && sub != "0", command == "SWAPDB", command == "MOVE":
		return func(c *server.Peer) { c.WriteError("ERR " + command + " is not allowed in cluster mode") }, true
	case command == "INFO" && sub != "CLIENTS" && sub != "STATS":
		return func(c *server.Peer) { c.WriteBulk(n.info(sub)) }, true
	case command == "OBJECT" && sub == "ENCODING" && len(args) == 2:
		return func(c *server.Peer) { n.answerEncoding(c, args[1]) }, true
	}
	return nil, false
}
