package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"syscall"
	"time"
)

// dialFunc connects to a node.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialError is that no connection could be made, or that it was lost before it could carry a command: nothing was sent. It does
// not unwrap, because go-redis v9.23.0 (initPooledConn) takes off one layer of what it gets.
type dialError struct{ cause error }

func (e *dialError) Error() string { return "connecting: " + e.cause.Error() }

// keepAlive is what go-redis v9.23.0 asks of a connection (defaultKeepAliveConfig).
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// rawDial is the dialer of a configuration.
func (cc ClusterConfig) rawDial() dialFunc {
	if cc.Dialer != nil {
		return cc.Dialer
	}
	return (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext
}

// gate bounds the dials of a cluster's pools, by node: few at once, one while the node is doubtful, and none after a dial has
// failed, until a probe gets through.
//
// A dial that fails gives the pool a connection that fails when it is used. The pool of go-redis v9.23.0 counts errors of dials
// for good, and from as many as it has places on it answers from memory and dials once a second by itself, so that a node would
// be found a second after it is back.
func (c *cluster) gate(raw dialFunc) dialFunc {
	raw = meeting(raw, c.cfg.Redis.DialTimeout)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := c.nodes.health(addr).dial(ctx, raw, network, addr, c.cfg.Redis.DialTimeout)
		if err != nil {
			return failedConn{&dialError{err}}, nil
		}
		return conn, nil
	}
}

var errGivenUp = errors.New("nobody waits for the connection any more")

// dial waits for a place and dials, which may take the time of full. If the latest dial has failed it waits for the next probe instead, and fails as that does; not for a
// place at a full node, which may take long.
func (h *health) dial(ctx context.Context, raw dialFunc, network, addr string, full time.Duration) (net.Conn, error) {
	hurried := left(ctx) < full*9/10 // go-redis gives a context that ends with full, or with the caller if that is sooner
	for {
		h.mu.Lock()
		failed, verdict := h.dialErr, h.verdict
		h.mu.Unlock()
		if failed == nil {
			break
		}
		if h.refuses() {
			return nil, failed
		}
		h.suspect(time.Now()) // there must be a probe
		if errors.Is(failed, errFull) {
			return nil, failed
		}
		select {
		case <-ctx.Done():
			return nil, failed
		case <-verdict:
		}
		h.mu.Lock()
		failed = h.dialErr
		h.mu.Unlock()
		if failed != nil {
			return nil, failed
		}
	}
	places := h.dialling
	if h.state.Load() != sound {
		places = h.alone
	}
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	case <-ctx.Done():
		return nil, errGivenUp
	}
	h.mu.Lock()
	failed := h.dialErr // of somebody who dialled meanwhile
	h.mu.Unlock()
	if failed != nil {
		return nil, failed
	}
	conn, err := raw(ctx, network, addr)
	switch {
	case err == nil:
	case hurried && left(ctx) <= 0: // its caller had less time than a dial may take, which says nothing about the node to the others
		return nil, errGivenUp
	case lost(err):
		h.suspect(time.Now()) // but the next may hold: if none does, the circuit opens
	default:
		h.dialled(err)
	}
	return conn, err
}

// left is how much time a context has yet; the one of a shared pipe does not say itself that it has ended.
func left(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	switch {
	case ctx.Err() != nil:
		return 0
	case !ok:
		return math.MaxInt64
	}
	return time.Until(deadline)
}

// lost says whether a connection was made and broke. A bad network does that to some of them, and a node must not be out of reach until
// the next probe because of one.
func lost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// dialled notes whether a connection could be made.
func (h *health) dialled(err error) {
	h.mu.Lock()
	h.dialErr = err
	h.mu.Unlock()
	if err != nil {
		h.suspect(time.Now())
	}
}

// probe asks the node for a sign of life: any reply will do, also that a password is needed, but not that it is loading its data.
// The connection is a new one, since the old ones may be dead without knowing it.
func (h *health) probe(ctx context.Context, raw dialFunc, timeout time.Duration) error {
	conn, line, err := greet(ctx, raw, "tcp", h.addr, timeout)
	if err != nil {
		return err
	}
	_ = conn.Close()
	if strings.HasPrefix(line, "-LOADING") || strings.HasPrefix(line, "-MASTERDOWN") {
		return errors.New("the node is not ready")
	}
	return nil
}

// meeting makes connections that have been answered on. A node that has as many clients as it may have, or hangs, takes connections as
// well, and on one of those a command would be lost with an unknown outcome; here nothing of a caller's was sent. It costs a new connection
// one more round trip.
func meeting(raw dialFunc, timeout time.Duration) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, _, err := greet(ctx, raw, network, addr, timeout)
		return conn, err
	}
}

// errFull is an answer too: the connections that there are can go on.
var errFull = errors.New("the node accepts no more connections")

// noPlace begins the line with which a node turns connections down.
const noPlace = "-ERR max number of clients"

// maxGreeting is the longest first line of an answer to PING, in bytes: Redis' errors about it are shorter.
const maxGreeting = 512

// greet connects, asks with PING and returns the answer's line. It reads no byte behind that.
func greet(ctx context.Context, raw dialFunc, network, addr string, timeout time.Duration) (net.Conn, string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := raw(ctx, network, addr)
	if err != nil {
		return nil, "", err
	}
	line, err := ping(ctx, conn)
	if err == nil && strings.HasPrefix(line, noPlace) {
		err = errFull
	}
	if err != nil {
		_ = conn.Close()
		return nil, "", err
	}
	return conn, line, nil
}

func ping(ctx context.Context, conn net.Conn) (string, error) {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "*1\r\n$4\r\nPING\r\n"); err != nil {
		return "", err
	}
	var line []byte
	for b := make([]byte, 64); ; {
		n, err := conn.Read(b)
		line = append(line, b[:n]...)
		if bytes.HasSuffix(line, []byte("\r\n")) {
			return string(line), conn.SetDeadline(time.Time{})
		}
		if err != nil {
			return "", err
		}
		if len(line) > maxGreeting {
			return "", errors.New("the node answers PING with something else")
		}
	}
}

// failedConn is a connection that was never made.
type failedConn struct{ err *dialError }

func (c failedConn) Read([]byte) (int, error)       { return 0, c.err }
func (c failedConn) Write([]byte) (int, error)      { return 0, c.err }
func (failedConn) Close() error                     { return nil }
func (failedConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (failedConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (failedConn) SetDeadline(time.Time) error      { return nil }
func (failedConn) SetReadDeadline(time.Time) error  { return nil }
func (failedConn) SetWriteDeadline(time.Time) error { return nil }
