package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// httpServer is a server with all its timeouts, as newServer makes it, on a listener with or without quiet connections.
type httpServer struct {
	*http.Server
	addr  string
	ended chan error
}

func startHTTP(t *testing.T, quiet bool, handler http.HandlerFunc, adjust func(*http.Server)) *httpServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &httpServer{ended: make(chan error, 1), addr: l.Addr().String(), Server: newServer(defaultConfig().HTTP, newLogger(Log{}, io.Discard))}
	s.WriteTimeout, s.Handler = 30*time.Second, handler
	if adjust != nil {
		adjust(s.Server)
	}
	if quiet {
		l = quietListener{l}
	}
	go func() { s.ended <- serveUntilShutdown(s.Server, l) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-s.ended
	})
	return s
}

// onBoth runs a test on net/http's own connections and on quiet ones, which must not be told apart.
func onBoth(t *testing.T, f func(t *testing.T, quiet bool)) {
	for name, quiet := range map[string]bool{"plain": false, "quiet": true} {
		t.Run(name, func(t *testing.T) { t.Parallel(); f(t, quiet) })
	}
}

// rawConn is a client that decides what is sent when.
type rawConn struct {
	net.Conn
	*bufio.Reader
	t *testing.T
}

func dialRaw(t *testing.T, addr string) *rawConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &rawConn{c, bufio.NewReader(c), t}
}

func (c *rawConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

func (c *rawConn) send(text string) {
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Error(err)
	}
}

func (c *rawConn) answer() string {
	c.t.Helper()
	resp, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", string(body))
}

// echo answers the path and the body, sometimes before it has been given time to run beside it.
func echo(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/unread") {
		fmt.Fprint(w, r.URL.Path)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(400)
		return
	}
	if len(body)%3 == 1 {
		time.Sleep(time.Millisecond)
	}
	fmt.Fprint(w, r.URL.Path, " ", string(body))
}

// Requests of every kind, sent in pieces of any size and not waiting for answers, are answered in their order.
func TestConnPipelines(t *testing.T) {
	onBoth(t, func(t *testing.T, quiet bool) {
		s := startHTTP(t, quiet, echo, nil)
		for seed := range uint64(6) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			var stream bytes.Buffer
			var want []string
			for i := range 150 {
				text, answer := randomRequest(rnd, i)
				stream.WriteString(text)
				want = append(want, "200 "+answer)
			}
			c := dialRaw(t, s.addr)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for stream.Len() > 0 {
					c.send(string(stream.Next(1 + rnd.IntN([]int{2, 50, 5000}[rnd.IntN(3)]))))
					if rnd.IntN(8) == 0 {
						time.Sleep(100 * time.Microsecond)
					}
				}
			}()
			for i, w := range want {
				if got := c.answer(); got != w {
					t.Fatalf("seed %d, answer %d is %.80q, want %.80q", seed, i, got, w)
				}
			}
			<-sent
		}
	})
}

func randomRequest(rnd *rand.Rand, i int) (text, answer string) {
	path := fmt.Sprint("/", i)
	head := " HTTP/1.1\r\nHost: x\r\n"
	if rnd.IntN(5) == 0 { // around the size of net/http's buffer, where it reads single bytes too
		head += "X-Long: " + strings.Repeat("l", 4020+rnd.IntN(40)) + "\r\n"
	}
	body := strings.Repeat("b", rnd.IntN(3000))
	switch rnd.IntN(5) {
	case 0:
		return "POST " + path + head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body), path + " " + body
	case 1:
		at := rnd.IntN(len(body) + 1)
		return "PUT " + path + head + "Transfer-Encoding: chunked\r\n\r\n" + chunk(body[:at]) + chunk(body[at:]) + "0\r\n\r\n", path + " " + body
	case 2:
		path = "/unread" + path
		return "PUT " + path + head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body), path
	default:
		return "GET " + path + head + "\r\n", path + " "
	}
}

func chunk(data string) string {
	if data == "" {
		return ""
	}
	return fmt.Sprintf("%x\r\n%s\r\n", len(data), data)
}

func TestConnExpectContinue(t *testing.T) {
	onBoth(t, func(t *testing.T, quiet bool) {
		c := dialRaw(t, startHTTP(t, quiet, echo, nil).addr)
		for range 3 {
			c.send("PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
			if line, err := c.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
				t.Fatalf("%q, %v", line, err)
			}
			_, _ = c.ReadString('\n')
			c.send("o")
			c.send("k")
			if got := c.answer(); got != "200 /a ok" {
				t.Error(got)
			}
		}
	})
}

func TestConnHijacked(t *testing.T) {
	onBoth(t, func(t *testing.T, quiet bool) {
		got := make(chan string, 1)
		s := startHTTP(t, quiet, func(w http.ResponseWriter, _ *http.Request) {
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = conn.Write([]byte("yours\n"))
			var text []byte
			rest, _ := buffered.Peek(buffered.Reader.Buffered())
			text = append(text, rest...)
			for one := make([]byte, 1); len(text) < 6; { // a byte at a time, as the background read
				n, err := conn.Read(one)
				if text = append(text, one[:n]...); err != nil {
					t.Error(err)
					break
				}
				if n == 0 {
					t.Error("a hijacked connection read nothing")
				}
			}
			got <- string(text)
		}, nil)
		c := dialRaw(t, s.addr)
		c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if line, _ := c.ReadString('\n'); line != "yours\n" {
			t.Errorf("%q", line)
		}
		c.send("abcdef")
		if text := <-got; text != "abcdef" {
			t.Errorf("read %q", text)
		}
	})
}

// ends waits until the server closes the connection and returns how long it took.
func (c *rawConn) ends() time.Duration {
	c.t.Helper()
	began := time.Now()
	if data, err := io.ReadAll(c.Reader); errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("the connection stayed open after %q", data)
	}
	return time.Since(began)
}

const short = 150 * time.Millisecond

func TestConnTimeouts(t *testing.T) {
	cut := func(t *testing.T, took time.Duration) {
		t.Helper()
		if took < short-20*time.Millisecond || took > short+10*time.Second {
			t.Errorf("cut off after %v, want %v", took, short)
		}
	}
	onBoth(t, func(t *testing.T, quiet bool) {
		t.Run("headers", func(t *testing.T) {
			s := startHTTP(t, quiet, echo, func(s *http.Server) { s.ReadHeaderTimeout = short })
			c := dialRaw(t, s.addr)
			c.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
			c.answer()
			time.Sleep(2 * short) // being idle is not slow
			c.send("GET /b HTTP/1.1\r\nHo")
			cut(t, c.ends())
		})
		t.Run("idle", func(t *testing.T) {
			s := startHTTP(t, quiet, echo, func(s *http.Server) { s.IdleTimeout = short })
			c := dialRaw(t, s.addr)
			for range 20 { // longer than the timeout in sum
				c.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
				c.answer()
				time.Sleep(short / 10)
			}
			cut(t, c.ends()+short/10)
		})
		t.Run("body", func(t *testing.T) {
			failed := make(chan error, 1)
			s := startHTTP(t, quiet, func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(short))
				_, err := io.ReadAll(r.Body)
				failed <- err
			}, nil)
			c := dialRaw(t, s.addr)
			for range 3 {
				c.send("PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
				c.answer()
				if err := <-failed; err != nil {
					t.Error(err)
				}
			}
			began := time.Now()
			c.send("PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nab")
			if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("reading a slow body ended with %v", err)
			}
			cut(t, time.Since(began))
		})
		t.Run("writing", func(t *testing.T) {
			failed := make(chan error, 1)
			s := startHTTP(t, quiet, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/small" {
					return
				}
				_, err := w.Write(make([]byte, 64<<20)) // more than the kernel takes
				failed <- err
			}, func(s *http.Server) { s.WriteTimeout = short })
			c := dialRaw(t, s.addr)
			for range 20 {
				c.send("GET /small HTTP/1.1\r\nHost: x\r\n\r\n")
				c.answer()
				time.Sleep(short / 10)
			}
			began := time.Now()
			c.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
			if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("writing to a client that does not read ended with %v", err)
			}
			cut(t, time.Since(began))
		})
		t.Run("a long answer is not cut by an earlier deadline", func(t *testing.T) {
			long := bytes.Repeat([]byte("0123456789abcde"), 1<<20) // more than the kernel takes at once
			s := startHTTP(t, quiet, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/first" { // so that the socket has the server's deadline
					return
				}
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(30 * time.Second))
				if _, err := w.Write(long); err != nil {
					t.Error(err)
				}
			}, func(s *http.Server) { s.WriteTimeout = 2 * short })
			c := dialRaw(t, s.addr)
			c.send("GET /first HTTP/1.1\r\nHost: x\r\n\r\n")
			c.answer()
			c.send("GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
			time.Sleep(3 * short) // the first deadline passes in the middle of the write
			if got := c.answer(); got != "200 "+string(long) {
				t.Errorf("%d bytes came, or others", len(got))
			}
		})
	})
}

func TestConnShutdown(t *testing.T) {
	onBoth(t, func(t *testing.T, quiet bool) {
		arrived, leave := make(chan struct{}), make(chan struct{})
		s := startHTTP(t, quiet, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				arrived <- struct{}{}
				<-leave
			}
			fmt.Fprint(w, "done")
		}, nil)
		idle, busy := dialRaw(t, s.addr), dialRaw(t, s.addr)
		idle.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		idle.answer()
		busy.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
		<-arrived
		down := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			down <- s.Shutdown(ctx)
		}()
		idle.ends()
		close(leave)
		if got := busy.answer(); got != "200 done" {
			t.Error(got)
		}
		if err := <-down; err != nil {
			t.Error(err)
		}
	})
}

// A client that half-closes after its request still gets its answer, and the connection ends.
func TestConnHalfClosed(t *testing.T) {
	onBoth(t, func(t *testing.T, quiet bool) {
		c := dialRaw(t, startHTTP(t, quiet, echo, nil).addr)
		c.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
		_ = c.Conn.(*net.TCPConn).CloseWrite()
		if got := c.answer(); got != "200 /a " {
			t.Error(got)
		}
		c.ends()
	})
}

// What a quiet connection gives up: a request learns late, or never, that its client has left. The server does.
func TestConnClientLeaves(t *testing.T) {
	onBoth(t, func(t *testing.T, quiet bool) {
		arrived, ended := make(chan struct{}), make(chan error, 1)
		s := startHTTP(t, quiet, func(_ http.ResponseWriter, r *http.Request) {
			close(arrived)
			select {
			case <-r.Context().Done():
			case <-time.After(2 * short):
			}
			ended <- r.Context().Err()
		}, nil)
		c := dialRaw(t, s.addr)
		c.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
		<-arrived
		c.Close()
		if err := <-ended; (err == nil) != quiet {
			t.Errorf("the request's context ended with %v", err)
		}
	})
}

// A deadline that comes while a read or write runs holds at once.
func TestLazyDeadlineOfWhatRuns(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	q := &quietConn{Conn: server}
	q.read.set, q.write.set = server.SetReadDeadline, server.SetWriteDeadline
	for name, f := range map[string]func([]byte) (int, error){"read": q.Read, "write": q.Write} {
		failed := make(chan error, 1)
		go func() {
			_, err := f(make([]byte, 10))
			failed <- err
		}()
		time.Sleep(time.Millisecond)
		_ = q.SetDeadline(time.Unix(1, 0))
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		_ = q.SetDeadline(time.Time{})
	}
	q.Close()
	for name, f := range map[string]func([]byte) (int, error){"read": q.Read, "write": q.Write} {
		if _, err := f(make([]byte, 10)); err == nil {
			t.Errorf("%s of a closed connection succeeded", name)
		}
	}
}
