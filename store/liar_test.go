package store_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/slotgate/slotgate/store"
)

// liar is a node that poses as a cluster of one and says what a test wants to every command that is not about the connection or the
// cluster itself.
type liar struct {
	net.Listener
	say   atomic.Pointer[func(c net.Conn, command string)] // writes what it says to a command, and may close the connection
	slots atomic.Pointer[string]                           // what it says to CLUSTER SLOTS; nil = all are its own

	mu   sync.Mutex
	open map[net.Conn]bool
	done sync.WaitGroup
}

func newLiar(t testing.TB) *liar {
	t.Helper()
	l := &liar{open: map[net.Conn]bool{}}
	var err error
	if l.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	l.says("-ERR nothing to say\r\n")
	l.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			l.mu.Lock()
			l.open[c] = true
			l.mu.Unlock()
			l.done.Go(func() { l.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		l.mu.Lock()
		for c := range l.open {
			_ = c.Close()
		}
		l.mu.Unlock()
		l.done.Wait()
	})
	return l
}

// store is a gateway's store on the liar's cluster.
func (l *liar) store(t testing.TB) *store.Store {
	t.Helper()
	return openStore(t, store.Config{
		Clusters:  map[string]store.ClusterConfig{"default": {Addrs: []string{l.Addr().String()}}},
		CursorKey: []byte(strings.Repeat("k", 32)),
	})
}

// says makes it answer every command with these bytes.
func (l *liar) says(reply string) {
	l.does(func(c net.Conn, _ string) { _, _ = io.WriteString(c, reply) })
}

func (l *liar) does(f func(c net.Conn, command string)) { l.say.Store(&f) }

// port is its own, as CLUSTER SLOTS tells it.
func (l *liar) port() int { return l.Addr().(*net.TCPAddr).Port }

func (l *liar) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		l.mu.Lock()
		delete(l.open, c)
		l.mu.Unlock()
	}()
	r := bufio.NewReader(c)
	for {
		words, err := readWords(r)
		if err != nil {
			return
		}
		reply := ""
		switch name := strings.ToUpper(words[0]); name {
		case "HELLO":
			reply = "-ERR unknown command\r\n"
		case "CLIENT", "READONLY", "ASKING", "AUTH":
			reply = "+OK\r\n"
		case "PING":
			reply = "+PONG\r\n"
		case "COMMAND":
			reply = "*0\r\n"
		case "CLUSTER":
			if s := l.slots.Load(); s != nil {
				reply = *s
			} else {
				reply = fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$40\r\n%040d\r\n", l.port(), 1)
			}
		default:
			(*l.say.Load())(c, name)
			continue
		}
		if _, err := io.WriteString(c, reply); err != nil {
			return
		}
	}
}

// readWords reads a command.
func readWords(r *bufio.Reader) ([]string, error) {
	n, err := readCount(r)
	if err != nil {
		return nil, err
	}
	words := make([]string, n)
	for i := range words {
		size, err := readCount(r)
		if err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, err
		}
		words[i] = string(word[:size])
	}
	return words, nil
}

func readCount(r *bufio.Reader) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
