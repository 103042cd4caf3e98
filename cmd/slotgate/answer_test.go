package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// Whatever a handler does with its answer, the client sees what it would have seen of net/http alone. The one exception is an
// answer that its handler breaks off, of which TestACorkedAnswerIsOneWrite knows.
func TestOwnHeadersAreThoseOfNetHTTP(t *testing.T) {
	long := strings.Repeat("0123456789", 500)
	cases := map[string]http.HandlerFunc{
		"nothing at all": func(http.ResponseWriter, *http.Request) {},
		"headers and no body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", `"a"`)
			w.Header().Set("X-Request-Id", "1")
		},
		"a body without a status": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Cache-Control"] = []string{"no-store"}
			_, _ = io.WriteString(w, "hello")
		},
		"two values of one field, in their order": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Www-Authenticate"] = []string{"Bearer", "Basic"}
			w.WriteHeader(http.StatusUnauthorized)
		},
		"a type that the body does not look like, which may not show twice": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			_, _ = io.WriteString(w, "<html>\r\nContent-Type: text/html\r\n\r\nContent-Type: x\r\n")
		},
		"no type, against net/http's guess": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "<html>")
		},
		"a type of two values": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{"a/b", "c/d"}
			_, _ = io.WriteString(w, "<html>")
		},
		"a type of what has not changed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Etag", `"a"`)
			w.WriteHeader(http.StatusNotModified)
		},
		"a type of no content": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNoContent)
		},
		"a type, and a flush before the body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "{}\n")
		},
		"a type and a long body without a length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for range 20 {
				_, _ = io.WriteString(w, long)
			}
		},
		"a type and a length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "5000")
			_, _ = io.WriteString(w, long)
		},
		"a long body of parts": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-A", "b")
			for range 20 {
				_, _ = io.WriteString(w, long)
			}
		},
		"a flush between": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-A", "b")
			_, _ = io.WriteString(w, "one")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "two")
		},
		"no body allowed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", `"a"`)
			w.WriteHeader(http.StatusNotModified)
		},
		"no body allowed, and the length it would have": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5000")
			w.WriteHeader(http.StatusNotModified)
		},
		"no content of a length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5000")
			w.WriteHeader(http.StatusNoContent)
		},
		"early hints, then the answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5000")
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, long)
		},
		"a body that is read late": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-A", "b")
			w.WriteHeader(http.StatusOK)
			_, _ = io.Copy(w, r.Body)
		},
		"a header set too late": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.Header().Set("X-Late", "yes")
		},
		"a value with line ends begins no other field": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-A", "b\r\nSet-Cookie: c\nd")
		},
		"the end of the connection": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			w.Header().Set("X-A", "b")
		},
		"a panic": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-A", "b")
			w.WriteHeader(http.StatusOK)
			panic(http.ErrAbortHandler)
		},
		"headers larger than net/http's buffer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-A", long)
			w.Header().Set("X-B", long)
			_, _ = io.WriteString(w, long)
		},
	}
	for name, handler := range cases {
		t.Run(name, func(t *testing.T) {
			for _, method := range []string{"GET", "HEAD", "PUT"} {
				want, got := exchange(t, method, handler, false), exchange(t, method, handler, true)
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s\ngot  %.300q\nwant %.300q", method, got, want)
				}
			}
		})
	}
}

// exchange returns what a client sees of two requests on one connection, without the date.
func exchange(t *testing.T, method string, handler http.HandlerFunc, own bool) (seen []string) {
	t.Helper()
	s := startHTTP(t, own, handler, func(s *http.Server) {
		if own {
			s.Handler, s.ConnContext = ownHeaders(handler), withQuietConn
		}
	})
	c := dialRaw(t, s.addr)
	for range 2 {
		c.send(method + " / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		resp, err := http.ReadResponse(c.Reader, httptest.NewRequest(method, "/", nil))
		if err != nil {
			return append(seen, "ended") // by a close or a reset, as it happens
		}
		body, err := io.ReadAll(resp.Body)
		resp.Header.Del("Date")
		seen = append(seen, fmt.Sprint(resp.StatusCode, resp.Header, resp.ContentLength, resp.TransferEncoding, resp.Close, string(body), err))
		if err != nil {
			return seen
		}
	}
	return seen
}

func TestOwnHeadersAreSortedAndOneWrite(t *testing.T) {
	handler := func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"X-C", "Etag", "X-B", "Cache-Control", "X-A"} {
			w.Header().Set(name, "v")
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "body")
	}
	s := startHTTP(t, true, handler, func(s *http.Server) {
		s.Handler, s.ConnContext = ownHeaders(http.HandlerFunc(handler)), withQuietConn
	})
	c := dialRaw(t, s.addr)
	for range 3 {
		c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		buf := make([]byte, 1000)
		n, err := c.Conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		front := "HTTP/1.1 200 OK\r\nCache-Control: v\r\nContent-Type: text/plain\r\nEtag: v\r\nX-A: v\r\nX-B: v\r\nX-C: v\r\nDate: "
		if got := buf[:n]; !bytes.HasPrefix(got, []byte(front)) || !bytes.HasSuffix(got, []byte("\r\n\r\nbody")) {
			t.Errorf("%q", got)
		}
	}
}

// The answer of a GET with its eight fields, over a real connection, by net/http alone and with own headers.
func BenchmarkHeaders(b *testing.B) {
	etag := []string{`"s1-09ecb6ebc8bcefc733f6f2ec44f791ab"`}
	body := []byte(`{"value":"` + strings.Repeat("x", 100) + `"}`)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		for _, name := range usual {
			h[name] = etag
		}
		h["Content-Type"] = etag
		_, _ = w.Write(body)
	})
	for name, h := range map[string]http.Handler{"net/http": handler, "own": ownHeaders(handler)} {
		b.Run(name, func(b *testing.B) {
			conn := newScript(b.N)
			s := &http.Server{Handler: h, ConnContext: withQuietConn}
			l := quietListener{&oneConn{conn: conn, closed: make(chan struct{})}}
			b.ReportAllocs()
			b.ResetTimer()
			go func() { _ = s.Serve(l) }()
			<-conn.over
			b.StopTimer()
			_ = s.Close()
		})
	}
}

// script is a connection that asks n times, as soon as it is read, and drops the answers.
type script struct {
	net.Conn
	left int
	over chan struct{}
}

func newScript(n int) *script { return &script{left: n, over: make(chan struct{})} }

func (s *script) Read(p []byte) (int, error) {
	if s.left == 0 {
		close(s.over)
		return 0, io.EOF
	}
	s.left--
	return copy(p, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), nil
}

func (s *script) Write(p []byte) (int, error)      { return len(p), nil }
func (s *script) Close() error                     { return nil }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{} }

// oneConn is a listener with one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
