// Package wire watches the replies that a Redis node sends, byte by byte, before the driver sees them.
//
// It promises that whatever a node sends, the driver neither allocates more than a limit for it nor recurses without end: go-redis
// (v9.23.0, internal/proto) makes memory for a length that a reply merely claims, calls itself for each level of an array, and waits for
// the end of a line without a bound, so five bytes of a broken or hostile node would end the process for every tenant. It also promises
// that a stream that is not RESP ends the connection, so that what follows is not taken for the reply to another command.
//
// A string over the limit that is a reply of its own is not passed on: an error reply stands for it (see OverCap), its bytes are dropped as
// they come, and the replies behind it are whole. Inside an array it ends the connection.
//
// It refuses to know commands, and RESP3, which the gateway does not speak: its types are errors here.
package wire

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds of a reply, beside the limit of its strings.
const (
	// maxDepth is of arrays in arrays: COMMAND of Redis 8 has nine levels, CLUSTER SLOTS four.
	maxDepth = 32
	// minElements is of all arrays of one reply together, in 16 bytes each: at least so many may come. CLUSTER SLOTS of a cluster whose
	// neighbouring slots all belong to different nodes has 16,384 ranges of about 20 elements, with two replicas each.
	minElements = 1 << 19
	// elementBytes is how many bytes of the limit give one element more: they take a quarter of it at the most.
	elementBytes = 64
	// maxLine is the bytes of a status, an integer or an error. Redis cuts what it quotes in an error at 128 bytes.
	maxLine = 16 << 10
	// maxString is the longest that Redis can hold (proto-max-bulk-len, 512 MB unless somebody raised it) and more: a longer one is no
	// string but a lie, and is not even waited for.
	maxString = 1 << 30
	// maxLength is the line "$1073741824".
	maxLength = 24
)

// Limit is the most bytes of strings in one reply. It is shared by the connections of a cluster and may grow while they are used.
type Limit struct{ bytes atomic.Int64 }

// base is enough for what the gateway asks for itself, whatever the apps may: INFO, the slot map, the list of nodes.
const base = 8 << 20

// envelope is what a stored value may be longer than the value.
const envelope = 64 << 10

// Allow makes replies of n bytes pass.
func (l *Limit) Allow(n int64) {
	for {
		old := l.bytes.Load()
		if n <= old || l.bytes.CompareAndSwap(old, n) {
			return
		}
	}
}

func (l *Limit) now() int64 {
	if l == nil {
		return base
	}
	return max(l.bytes.Load(), base) + envelope
}

// ErrProtocol is the end of a connection whose node sent something that is no reply, or too much of one.
var ErrProtocol = errors.New("wire: the node's reply is malformed or over the bounds")

// overCap begins the error reply that stands for a string over the limit. No Redis has such an error.
const overCap = "SLOTGATEOVERCAP "

// OverCap says whether the text of an error reply stands for a string over the limit, and how long that is.
func OverCap(text string) (size int64, ok bool) {
	digits, ok := strings.CutPrefix(text, overCap)
	if !ok {
		return 0, false
	}
	size, err := strconv.ParseInt(digits, 10, 64)
	return size, err == nil
}

// Dialer guards the connections that dial makes; nil dials plain TCP within timeout.
func Dialer(dial func(ctx context.Context, network, addr string) (net.Conn, error), timeout time.Duration, limit *Limit) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if dial == nil {
		// As go-redis does it (v9.23.0, NewDialer).
		dial = (&net.Dialer{Timeout: timeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return Guard(conn, limit), nil
	}
}

// Guard wraps a connection to a node. limit may be nil: then strings are what the gateway asks for itself.
func Guard(conn net.Conn, limit *Limit) net.Conn {
	c := guarded{Conn: conn, limit: limit}
	if s, ok := conn.(syscall.Conn); ok { // the driver looks whether an idle connection has something to read
		return &guardedSocket{guarded: c, socket: s}
	}
	return &c
}

type guardedSocket struct {
	guarded
	socket syscall.Conn
}

// SyscallConn implements syscall.Conn.
func (c *guardedSocket) SyscallConn() (syscall.RawConn, error) { return c.socket.SyscallConn() }
