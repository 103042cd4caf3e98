package faultproxy

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// pair is a client's connection and the proxy's own to the server.
type pair struct {
	client, server net.Conn
	done           chan struct{} // closed by end
	ending         sync.Once

	mu      sync.Mutex
	replies []time.Time // that the server still owes, and before when none may go on; zero: at once
	lose    int         // how many of them go through before one is lost; -1: none is lost
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		abort(client)
		return
	}
	c := &pair{client: client, server: server, done: make(chan struct{}), lose: -1}
	p.mu.Lock()
	p.pairs[c] = struct{}{}
	unwanted := p.refusing || p.closed
	p.mu.Unlock()
	if unwanted {
		c.reset()
	}
	var replies sync.WaitGroup
	replies.Go(func() {
		defer c.close()
		p.passReplies(c)
	})
	p.passRequests(c)
	c.close()
	replies.Wait()
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
}

func (p *Proxy) passRequests(c *pair) {
	from := bufio.NewReaderSize(c.client, 64<<10)
	for {
		raw, command, err := readRequest(from)
		if err != nil || !p.awaitSound(c.done) {
			return
		}
		c.expect(p.loseReply(command), p.turn(command, time.Now()))
		if _, err := c.server.Write(raw); err != nil {
			return
		}
	}
}

func (p *Proxy) passReplies(c *pair) {
	from := bufio.NewReaderSize(c.server, 64<<10)
	for {
		raw, err := readReply(from)
		if err != nil {
			return
		}
		raw = announced(&p.swaps, raw)
		lost, due := c.lost()
		if lost {
			c.end(p.resets())
			return
		}
		if !c.sleep(p.replyDelay()) || !p.awaitTurn(due, c.done) || !p.awaitSound(c.done) {
			return
		}
		through, hard := p.cut(len(raw))
		if _, err := c.client.Write(raw[:through]); err != nil {
			return
		}
		if through < len(raw) {
			c.end(hard)
			return
		}
	}
}

// sleep waits, and tells whether the connection is still there.
func (c *pair) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-c.done:
		return false
	}
}

// expect notes that a request goes to the server, whether its reply is to be lost, and when it is due.
func (c *pair) expect(lose bool, due time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lose && c.lose < 0 {
		c.lose = len(c.replies)
	}
	c.replies = append(c.replies, due)
}

// lost notes a reply of the server and tells whether it is the one to be lost, and when it is due. Messages of subscriptions count as replies
// as well: on such connections the wrong one may be lost.
func (c *pair) lost() (lost bool, due time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.replies) > 0 {
		due = c.replies[0]
		c.replies = c.replies[1:]
	}
	if c.lose < 0 {
		return false, due
	}
	c.lose--
	return c.lose < 0, due
}

// close ends both connections in the ordinary way, reset as a crash would.
func (c *pair) close() { c.end(false) }

func (c *pair) reset() { c.end(true) }

func (c *pair) end(hard bool) {
	c.ending.Do(func() {
		close(c.done)
		if hard {
			abort(c.client)
		} else {
			_ = c.client.Close()
		}
		_ = c.server.Close()
	})
}

// abort closes a connection with RST.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
