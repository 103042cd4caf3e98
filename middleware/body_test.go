package middleware_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store"
)

// unsized hides the length of a body, so that it is sent in chunks.
type unsized struct{ io.Reader }

func putKey(t testing.TB, g *gateway, body io.Reader) answer {
	t.Helper()
	return g.do(t, "PUT", "/v1/strings/a", body, "Authorization: Bearer "+goodKey)
}

func TestBodyLimit(t *testing.T) {
	g := start(t, nil, keyRoutes)
	at, over := strings.Repeat("x", 1024), strings.Repeat("x", 1025)
	for name, c := range map[string]struct {
		body   io.Reader
		status int
	}{
		"declared, at the limit": {strings.NewReader(at), 200},
		"declared, one over":     {strings.NewReader(over), 413},
		"chunked, at the limit":  {unsized{strings.NewReader(at)}, 200},
		"chunked, one over":      {unsized{strings.NewReader(over)}, 413},
		"chunked, far over":      {unsized{strings.NewReader(strings.Repeat("x", 400_000))}, 413},
		"chunked, empty":         {unsized{strings.NewReader("")}, 200},
	} {
		a := putKey(t, g, c.body)
		if a.status != c.status {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if c.status == 413 && (a.code(t) != "payload_too_large" || !strings.Contains(a.body, "1024 bytes")) {
			t.Errorf("%s: %s", name, a.body)
		}
		if c.status == 200 && len(a.body) < 2 {
			t.Errorf("%s: the body did not arrive: %q", name, a.body)
		}
	}
}

// raw sends bytes as they are and gives what comes back.
func raw(t testing.TB, g *gateway, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", g.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func readAnswer(t testing.TB, r *bufio.Reader) answer {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// The refusal comes while the client still waits for "100 Continue": nothing of the body was asked for.
func TestTooLargeIsRefusedBeforeItIsRead(t *testing.T) {
	g := start(t, nil, keyRoutes)
	_, r := raw(t, g, "PUT /v1/strings/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+goodKey+
		"\r\nContent-Length: 5000000\r\nExpect: 100-continue\r\n\r\n")
	if a := readAnswer(t, r); a.status != 413 || a.code(t) != "payload_too_large" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestBodyShorterThanDeclared(t *testing.T) {
	g := start(t, nil, keyRoutes)
	conn, r := raw(t, g, "PUT /v1/strings/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+goodKey+"\r\nContent-Length: 10\r\n\r\nabc")
	_ = conn.(*net.TCPConn).CloseWrite()
	a := readAnswer(t, r)
	if a.status != 400 || a.code(t) != "invalid_request" || !strings.Contains(a.body, "shorter than declared") ||
		!strings.Contains(a.body, `"pointer":"body"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestSlowBodyIsCutOff(t *testing.T) {
	g := start(t, func(c *middleware.Config) {
		c.Deadline = middleware.DeadlineConfig{Default: 10 * time.Millisecond, Body: 50 * time.Millisecond}
	}, keyRoutes)
	_, r := raw(t, g, "PUT /v1/strings/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+goodKey+"\r\nContent-Length: 10\r\n\r\nabc")
	a := readAnswer(t, r)
	if a.status != 400 || !strings.Contains(a.body, "too slowly") {
		t.Errorf("%d %s", a.status, a.body)
	}
	eventually(t, "the bytes are given back", func() bool { return g.cfg.BytesInFlight.Used() == 0 })
}

// A body that takes longer than the deadline does not eat it: the work begins when the body is there.
func TestDeadlineStartsAnewAfterASlowBody(t *testing.T) {
	var left atomic.Int64
	var fault atomic.Value
	g := start(t, func(c *middleware.Config) {
		c.Deadline = middleware.DeadlineConfig{Default: 500 * time.Millisecond}
	}, func(_, v1 gin.IRouter) {
		v1.PUT("/strings/:key", func(c *gin.Context) {
			ctx := c.Request.Context() // as handlers do: taken before the body is read
			if _, err := io.ReadAll(c.Request.Body); err != nil {
				_ = c.Error(err)
				return
			}
			if err := ctx.Err(); err != nil {
				fault.Store(err)
			}
			end, _ := ctx.Deadline()
			left.Store(int64(time.Until(end)))
		})
	})
	conn, r := raw(t, g, "PUT /v1/strings/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+goodKey+"\r\nContent-Length: 2\r\n\r\na")
	time.AfterFunc(600*time.Millisecond, func() { _, _ = io.WriteString(conn, "b") })
	if a := readAnswer(t, r); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if d := time.Duration(left.Load()); fault.Load() != nil || d <= 0 || d > 500*time.Millisecond {
		t.Errorf("%v were left of the deadline of 500ms when the body was there, and the context said %v", d, fault.Load())
	}
}

func TestBytesInFlight(t *testing.T) {
	arrived, leave := make(chan struct{}, 2), make(chan struct{})
	g := start(t, func(c *middleware.Config) { c.BytesInFlight = middleware.NewBytesInFlight(1500) }, func(_, v1 gin.IRouter) {
		v1.PUT("/strings/:key", ok)
		v1.PUT("/slow/:key", func(c *gin.Context) {
			arrived <- struct{}{}
			<-leave
		})
	})
	done := make(chan answer)
	slow := func(body io.Reader) {
		go func() { done <- g.do(t, "PUT", "/v1/slow/a", body, "Authorization: Bearer "+goodKey) }()
		<-arrived
	}
	slow(strings.NewReader(strings.Repeat("x", 1000)))
	if used := g.metric(t, "slotgate_bytes_in_flight", nil); used != 1000 {
		t.Errorf("%v bytes are reserved, want 1000", used)
	}
	a := putKey(t, g, strings.NewReader(strings.Repeat("x", 600)))
	if a.status != 503 || a.code(t) != "overloaded" || a.problem(t)["outcome"] != "not_applied" || a.header.Get("Retry-After") == "" {
		t.Errorf("over the cap: %d %s", a.status, a.body)
	}
	if a := putKey(t, g, unsized{strings.NewReader("x")}); a.status != 503 {
		t.Errorf("chunked, which may become 1024: %d", a.status)
	}
	if a := putKey(t, g, strings.NewReader(strings.Repeat("x", 500))); a.status != 200 {
		t.Errorf("exactly what is left: %d", a.status)
	}
	if a := g.get(t, "/v1/nothing"); a.status != 404 {
		t.Errorf("without a body: %d", a.status)
	}
	leave <- struct{}{}
	<-done
	slow(unsized{strings.NewReader("x")})
	if used := g.cfg.BytesInFlight.Used(); used != 1024 {
		t.Errorf("a chunked body reserves %d, want the limit of 1024", used)
	}
	leave <- struct{}{}
	<-done
	eventually(t, "all bytes are given back", func() bool { return g.cfg.BytesInFlight.Used() == 0 })
}

func TestAnswersReserveBytesInFlight(t *testing.T) {
	held, next := make(chan bool), make(chan struct{})
	g := start(t, func(c *middleware.Config) { c.BytesInFlight = middleware.NewBytesInFlight(1500) }, func(_, v1 gin.IRouter) {
		v1.GET("/large/:key", func(c *gin.Context) {
			r, _ := c.Request.Context().Value(store.ReserverKey()).(store.Reserver)
			held <- r.Reserve(1000) && !r.Reserve(600)
			<-next
			held <- r.Reserve(500)
		})
	})
	done := make(chan answer)
	go func() { done <- g.get(t, "/v1/large/a") }()
	if !<-held || g.cfg.BytesInFlight.Used() != 1000 {
		t.Errorf("%d bytes are reserved, want 1000", g.cfg.BytesInFlight.Used())
	}
	next <- struct{}{}
	if !<-held {
		t.Error("exactly what is left was refused")
	}
	<-done
	eventually(t, "all bytes are given back", func() bool { return g.cfg.BytesInFlight.Used() == 0 })
}

// A late reply of Redis is written to a request that has ended (store/pipe, ErrAbandoned): what it takes nobody would give back.
func TestNothingIsReservedAfterTheRequest(t *testing.T) {
	var late store.Reserver
	g := start(t, func(c *middleware.Config) { c.BytesInFlight = middleware.NewBytesInFlight(1500) }, func(_, v1 gin.IRouter) {
		v1.GET("/large/:key", func(c *gin.Context) {
			late, _ = c.Request.Context().Value(store.ReserverKey()).(store.Reserver)
			late.Reserve(100)
		})
	})
	g.get(t, "/v1/large/a")
	eventually(t, "all bytes are given back", func() bool { return g.cfg.BytesInFlight.Used() == 0 })
	if late.Reserve(1000) || late.Reserve(1000) || g.cfg.BytesInFlight.Used() != 0 {
		t.Errorf("%d bytes are reserved for a request that has ended", g.cfg.BytesInFlight.Used())
	}
}

func TestBytesInFlightBudget(t *testing.T) {
	b := middleware.NewBytesInFlight(10)
	if !b.TryAcquire(10) || b.TryAcquire(1) || !b.TryAcquire(0) || !b.TryAcquire(-5) {
		t.Error("ten of ten, then nothing more, then nothing at all")
	}
	b.Release(-5)
	b.Release(4)
	if b.Used() != 6 || !b.TryAcquire(4) || b.TryAcquire(1<<62) {
		t.Errorf("%d used", b.Used())
	}
	if free := middleware.NewBytesInFlight(0); !free.TryAcquire(1<<40) || free.Used() != 1<<40 {
		t.Error("no limit counts only")
	}
}

// What a handler sees of a refused body, for those who write handlers.
func TestBodyErrorsAreTheStores(t *testing.T) {
	var seen error
	g := start(t, nil, func(_, v1 gin.IRouter) {
		v1.PUT("/strings/:key", func(c *gin.Context) {
			_, seen = io.ReadAll(c.Request.Body)
			_ = c.Error(fmt.Errorf("reading: %w", seen))
		})
	})
	a := putKey(t, g, unsized{strings.NewReader(strings.Repeat("x", 2000))})
	var e *store.Error
	var tooMany *http.MaxBytesError
	if !errors.As(seen, &e) || e.Code != store.CodePayloadTooLarge || !errors.As(seen, &tooMany) || tooMany.Limit != 1024 {
		t.Errorf("got %v", seen)
	}
	if a.status != 413 {
		t.Errorf("%d", a.status)
	}
}
