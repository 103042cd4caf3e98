package middleware_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store"
)

// held is a gateway with a fixed number of places, whose /hold takes one until the test lets go.
type held struct {
	*gateway
	overload *middleware.Overload
	arrived  chan struct{}
	leave    chan struct{}
	over     chan struct{} // closed at the end of the test, for those who are held when it fails
	done     chan answer
	holding  int
}

// fixedPlaces is a gateway with n places, and with an app for each class: "critical", "normal" and "bulk" are keys.
func fixedPlaces(t *testing.T, n int, adjust func(*middleware.OverloadConfig)) *held {
	t.Helper()
	cfg := middleware.OverloadConfig{Initial: n, Min: n, Max: n}
	if adjust != nil {
		adjust(&cfg)
	}
	h := &held{overload: middleware.NewOverload(cfg), arrived: make(chan struct{}), leave: make(chan struct{}),
		over: make(chan struct{}), done: make(chan answer, 100)}
	h.gateway = start(t, func(c *middleware.Config) { c.Overload, c.Clock = h.overload, cfg.Clock }, func(public, v1 gin.IRouter) {
		public.GET("/readyz", ok)
		keyRoutes(public, v1)
		v1.GET("/hold", func(*gin.Context) { h.arrive(); h.wait(h.leave) })
		v1.POST("/batch/:key", func(c *gin.Context) {
			n, _ := strconv.ParseInt(c.Param("key"), 10, 64)
			if err := store.Charge(c.Request.Context(), n-1); err != nil {
				_ = c.Error(err)
				return
			}
			ok(c)
		})
		v1.GET("/panic", func(*gin.Context) { panic("boom") })
		v1.GET("/abort", func(*gin.Context) { panic(http.ErrAbortHandler) })
		v1.GET("/gone", func(c *gin.Context) {
			h.arrived <- struct{}{}
			<-c.Request.Context().Done()
			_ = c.Error(c.Request.Context().Err())
		})
	})
	t.Cleanup(func() { close(h.over) })
	for _, p := range []acl.Priority{acl.Critical, acl.Normal, acl.Bulk} {
		h.app(string(p), string(p), p)
	}
	return h
}

func (h *held) arrive() {
	select {
	case h.arrived <- struct{}{}:
	case <-h.over:
	}
}

func (h *held) wait(until <-chan struct{}) {
	select {
	case <-until:
	case <-h.over:
	}
}

func (h *held) app(key, id string, p acl.Priority) {
	who := identity(id)
	who.App.Priority = p
	h.auth[key] = who
}

// hold takes n places for the key's app until release.
func (h *held) hold(t *testing.T, key string, n int) {
	t.Helper()
	for range n {
		go func() { h.done <- h.do(t, "GET", "/v1/hold", nil, "Authorization: Bearer "+key) }()
		select {
		case <-h.arrived:
			h.holding++
		case a := <-h.done:
			t.Fatalf("%s was refused at %d places: %s", key, h.holding, a.body)
		}
	}
}

func (h *held) release(t *testing.T) {
	t.Helper()
	for ; h.holding > 0; h.holding-- {
		select {
		case h.leave <- struct{}{}:
			<-h.done
		case <-time.After(10 * time.Second):
			t.Fatalf("%d requests that should run do not", h.holding)
		}
	}
	h.wantNothingInFlight(t)
}

func (h *held) wantNothingInFlight(t *testing.T) {
	t.Helper()
	eventually(t, "all places are given back", func() bool { return h.metric(t, "slotgate_overload_in_flight", nil) == 0 })
}

func (h *held) as(t *testing.T, key, path string, headers ...string) answer {
	t.Helper()
	return h.do(t, "GET", path, nil, append(headers, "Authorization: Bearer "+key)...)
}

func (h *held) wantServed(t *testing.T, key string, headers ...string) {
	t.Helper()
	if a := h.as(t, key, "/v1/strings/a", headers...); a.status != 200 {
		t.Errorf("%s %v with %d places taken: %d %s", key, headers, h.holding, a.status, a.body)
	}
}

func (h *held) wantRefused(t *testing.T, key string, headers ...string) {
	t.Helper()
	a := h.as(t, key, "/v1/strings/a", headers...)
	if a.status != 503 || a.code(t) != "overloaded" {
		t.Errorf("%s %v with %d places taken: %d %s", key, headers, h.holding, a.status, a.body)
		return
	}
	if n, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || n < 1 || n > 3 {
		t.Errorf("Retry-After %q, want 1 to 3", a.header.Get("Retry-After"))
	}
}

func (h *held) shed(t *testing.T, reason, class string) float64 {
	t.Helper()
	return h.metric(t, "slotgate_overload_shed_total", map[string]string{"reason": reason, "class": class})
}

func TestAFullGatewayRefusesTheLeastImportantFirst(t *testing.T) {
	h := fixedPlaces(t, 20, nil)
	for _, c := range []struct {
		taken           int
		served, refused []string
	}{
		{0, []string{"critical", "normal", "bulk"}, nil},
		{11, []string{"critical", "normal", "bulk"}, nil},
		{12, []string{"critical", "normal"}, []string{"bulk"}},
		{16, []string{"critical", "normal"}, []string{"bulk"}},
		{17, []string{"critical"}, []string{"bulk", "normal"}},
		{19, []string{"critical"}, []string{"bulk", "normal"}},
		{20, nil, []string{"bulk", "normal", "critical"}},
	} {
		h.hold(t, "critical", c.taken-h.holding)
		for _, key := range c.served {
			h.wantServed(t, key)
			eventually(t, "the place is given back", func() bool { return h.metric(t, "slotgate_overload_in_flight", nil) == float64(c.taken) })
		}
		for _, key := range c.refused {
			h.wantRefused(t, key)
		}
	}
	if bulk, normal, critical := h.shed(t, "full", "bulk"), h.shed(t, "full", "normal"), h.shed(t, "full", "critical"); bulk != 5 || normal != 3 || critical != 1 {
		t.Errorf("counted %v bulk, %v normal, %v critical; want 5, 3, 1", bulk, normal, critical)
	}
	if a := h.do(t, "GET", "/readyz", nil); a.status != 200 {
		t.Errorf("readiness is refused: %d", a.status)
	}
	h.release(t)
	h.wantServed(t, "bulk")
}

func TestTheFloodOfOneAppDoesNotRefuseAnother(t *testing.T) {
	h := fixedPlaces(t, 20, nil)
	h.app("flood", "flood", acl.Normal)
	h.app("quiet", "quiet", acl.Normal)
	h.hold(t, "flood", 17)
	h.wantServed(t, "quiet") // the first time that both are seen
	h.wantRefused(t, "flood")
	h.wantServed(t, "quiet")
	h.hold(t, "quiet", 4)
	h.wantRefused(t, "flood")
	h.release(t)
}

// What a slow shard keeps waiting must not refuse the requests of the others when the gateway has few places, because it is busy.
func TestRequestsThatWaitForASlowShardLeaveTheirPlaces(t *testing.T) {
	now := &atomic.Int64{}
	h := fixedPlaces(t, 20, func(c *middleware.OverloadConfig) {
		c.Max, c.Clock = 1000, func() time.Time { return time.Unix(1000, now.Load()) }
	})
	busy := func(passes time.Duration) { // and so no place comes back
		now.Add(int64(passes))
		h.overload.Feel(middleware.Pressure{CPUWait: 2 * time.Millisecond})
	}
	for range 3 { // it takes so many to be believed
		busy(0)
	}
	h.hold(t, "normal", 17)
	h.wantRefused(t, "normal")
	busy(0)
	busy(199 * time.Millisecond) // so long a request may take while goroutines wait so long
	h.wantRefused(t, "normal")
	busy(time.Millisecond)
	h.wantServed(t, "normal")
	if n := h.metric(t, "slotgate_overload_waiting", nil); n != 17 {
		t.Errorf("%v wait, not 17", n)
	}
	h.release(t)
	if n := h.metric(t, "slotgate_overload_waiting", nil); n != 0 {
		t.Errorf("%v wait at the end", n)
	}
}

func TestTheHeaderOnlyLowersTheClass(t *testing.T) {
	for _, c := range []struct {
		taken     int // of 20: from 12 on there is no room for bulk, from 17 on none for normal
		key, asks string
		served    bool
	}{
		{12, "normal", "normal", true},
		{12, "normal", "critical", true},
		{12, "normal", "bulk", false},
		{12, "critical", "bulk", false},
		{12, "bulk", "normal", false},
		{12, "bulk", "critical", false},
		{17, "normal", "critical", false},
		{17, "critical", "normal", false},
		{17, "critical", "critical", true},
	} {
		h := fixedPlaces(t, 20, nil)
		h.app("others", "others", acl.Critical)
		h.hold(t, "others", c.taken)
		if header := "X-Request-Priority: " + c.asks; c.served {
			h.wantServed(t, c.key, header)
		} else {
			h.wantRefused(t, c.key, header)
		}
		h.release(t)
	}
}

// The limits of the nodes go by the class, too, also while the gateway's own are off.
func TestTheStoreIsToldTheClass(t *testing.T) {
	for _, off := range []bool{false, true} {
		o := middleware.NewOverload(middleware.OverloadConfig{Off: off})
		g := start(t, func(c *middleware.Config) { c.Overload = o }, func(_, v1 gin.IRouter) {
			v1.GET("/class", func(c *gin.Context) { c.String(200, "%v", c.Request.Context().Value(store.ClassKey())) })
		})
		if a := g.get(t, "/v1/class"); a.body != "normal" {
			t.Errorf("without the header: %s", a.body)
		}
		if a := g.get(t, "/v1/class", "X-Request-Priority: bulk"); a.body != "bulk" {
			t.Errorf("with bulk: %s", a.body)
		}
	}
	g := start(t, nil, func(_, v1 gin.IRouter) {
		v1.GET("/class", func(c *gin.Context) { c.String(200, "%v", c.Request.Context().Value(store.ClassKey())) })
	})
	if a := g.get(t, "/v1/class"); a.body != "<nil>" {
		t.Errorf("where nobody looks at classes: %s", a.body)
	}
}

func TestBadPriorities(t *testing.T) {
	for name, headers := range map[string][]string{
		"a word that is none": {"X-Request-Priority: urgent"},
		"an empty one":        {"X-Request-Priority: "},
		"capitals":            {"X-Request-Priority: BULK"},
		"two":                 {"X-Request-Priority: bulk", "X-Request-Priority: bulk"},
	} {
		for _, off := range []bool{false, true} { // the nodes' limits go by the class, too
			h := fixedPlaces(t, 20, func(c *middleware.OverloadConfig) { c.Off = off })
			a := h.as(t, "critical", "/v1/strings/a", headers...)
			if a.status != 400 || a.code(t) != "invalid_request" || !strings.Contains(a.body, "X-Request-Priority") {
				t.Errorf("%s, off %v: %d %s", name, off, a.status, a.body)
			}
		}
	}
}

func TestOffNothingIsRefused(t *testing.T) {
	h := fixedPlaces(t, 4, func(c *middleware.OverloadConfig) { c.MemoryMax, c.Off = 100, true })
	if h.overload.Feel(middleware.Pressure{Memory: 100}) {
		t.Error("short of memory, but off")
	}
	h.hold(t, "bulk", 10)
	h.overload.Switch(true)
	h.wantRefused(t, "bulk")
	h.overload.Switch(false)
	h.wantServed(t, "bulk")
	h.release(t)
}

func TestShortOfMemory(t *testing.T) {
	h := fixedPlaces(t, 20, func(c *middleware.OverloadConfig) { c.MemoryMax = 1000 })
	for _, c := range []struct {
		used int64
		gone []string // of "bulk", "body" (normal with a body), "normal"
	}{
		{0, nil},
		{799, nil},
		{800, []string{"bulk"}},
		{899, []string{"bulk"}},
		{900, []string{"bulk", "body"}},
		{949, []string{"bulk", "body"}},
		{950, []string{"bulk", "body", "normal"}},
		{2000, []string{"bulk", "body", "normal"}},
		{10, nil},
	} {
		if short := h.overload.Feel(middleware.Pressure{Memory: c.used}); short != (c.gone != nil) {
			t.Errorf("%d of 1000: short is %v", c.used, short)
		}
		gone := map[string]bool{}
		for what, a := range map[string]answer{
			"bulk":          h.as(t, "bulk", "/v1/strings/a"),
			"normal":        h.as(t, "normal", "/v1/strings/a"),
			"body":          h.do(t, "PUT", "/v1/strings/a", strings.NewReader("x"), "Authorization: Bearer normal"),
			"critical":      h.as(t, "critical", "/v1/strings/a"),
			"critical body": h.do(t, "PUT", "/v1/strings/a", strings.NewReader("x"), "Authorization: Bearer critical"),
		} {
			if a.status != 200 {
				gone[what] = true
				if a.code(t) != "overloaded" {
					t.Errorf("%s: %s", what, a.body)
				}
			}
		}
		for _, what := range c.gone {
			if !gone[what] {
				t.Errorf("%d of 1000: %s is served", c.used, what)
			}
		}
		if len(gone) != len(c.gone) {
			t.Errorf("%d of 1000: refused %v, want %v", c.used, gone, c.gone)
		}
	}
	if h.shed(t, "memory", "bulk") != 6 || h.metric(t, "slotgate_overload_memory_max_bytes", nil) != 1000 || h.metric(t, "slotgate_overload_memory_bytes", nil) != 10 {
		t.Error("the metrics tell something else")
	}
	free := fixedPlaces(t, 20, nil)
	if free.overload.Feel(middleware.Pressure{Memory: 1 << 60}) {
		t.Error("there is a ceiling where none was set")
	}
	free.wantServed(t, "bulk")
}

// watchedBody is a body that notes whether anybody has read it.
type watchedBody struct {
	io.Reader
	read atomic.Bool
}

func (b *watchedBody) Read(p []byte) (int, error) { b.read.Store(true); return b.Reader.Read(p) }

// service has the gateway learn that each request keeps it busy for 1 ms: that many end in a window of 100 ms, while it is slow.
func (h *held) service(t *testing.T, clock *fakeClock) {
	t.Helper()
	for range 2 {
		h.overload.Feel(middleware.Pressure{CPUWait: time.Microsecond}) // as it was before
		clock.advance(100 * time.Millisecond)
	}
	for range 4 {
		for range 100 {
			h.wantServed(t, "normal")
		}
		eventually(t, "they have ended", func() bool { return h.metric(t, "slotgate_overload_in_flight", nil) == float64(h.holding) })
		clock.advance(100 * time.Millisecond)
		h.overload.Feel(middleware.Pressure{CPUWait: time.Second})
	}
}

func TestAHopelessRequestIsRefusedBeforeItsBodyIsRead(t *testing.T) {
	clock := newClock()
	h := fixedPlaces(t, 40, func(c *middleware.OverloadConfig) { c.Clock = clock.now })
	h.Client().Transport.(*http.Transport).ExpectContinueTimeout = 10 * time.Second // else it sends the body unasked
	h.hold(t, "critical", 20)
	h.service(t, clock)
	put := func(deadline int) (answer, *watchedBody) {
		body := &watchedBody{Reader: strings.NewReader("12345")}
		req, _ := http.NewRequest("PUT", h.URL+"/v1/strings/a", body)
		req.ContentLength = 5
		req.Header = http.Header{"Authorization": {"Bearer critical"}, "X-Request-Deadline-Ms": {strconv.Itoa(deadline)}, "Expect": {"100-continue"}}
		return h.send(t, req), body
	}
	a, body := put(15) // 20 requests of 1 ms are 20 ms
	if a.status != 503 || a.code(t) != "overloaded" || a.problem(t)["outcome"] != "not_applied" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if body.read.Load() {
		t.Error("the body was asked for")
	}
	if a, body := put(30); a.status != 200 || !body.read.Load() {
		t.Errorf("one that has the time: %d %s", a.status, a.body)
	}
	if n := h.shed(t, "deadline", "critical"); n != 1 {
		t.Errorf("%v counted", n)
	}
	h.release(t)
}

func TestABadDeadlineIsNoOverload(t *testing.T) {
	h := fixedPlaces(t, 1, nil)
	if a := h.as(t, "normal", "/v1/strings/a", "X-Request-Deadline-Ms: soon"); a.status != 400 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestAConnectionOutlivesARefusal(t *testing.T) {
	h := fixedPlaces(t, 20, nil)
	h.hold(t, "critical", 12)
	reused := false
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	for i := range 3 {
		req, _ := http.NewRequestWithContext(ctx, "PUT", h.URL+"/v1/strings/a", strings.NewReader(strings.Repeat("x", 1000)))
		req.Header.Set("Authorization", "Bearer bulk")
		if a := h.send(t, req); a.status != 503 || a.header.Get("Connection") != "" {
			t.Fatalf("%d %v", a.status, a.header)
		}
		if i > 0 && !reused {
			t.Error("a new connection was opened")
		}
	}
	h.release(t)
}

func TestABatchTakesAPlaceForEachTenKeys(t *testing.T) {
	h := fixedPlaces(t, 100, nil)
	h.hold(t, "critical", 50)
	batch := func(key string, n int) answer {
		return h.do(t, "POST", fmt.Sprint("/v1/batch/", n), strings.NewReader("x"), "Authorization: Bearer "+key)
	}
	for _, c := range []struct {
		key    string
		n      int
		served bool
	}{
		{"bulk", 1, true},
		{"bulk", 90, true},
		{"bulk", 130, false},
		{"normal", 300, true},
		{"normal", 390, false},
		{"critical", 480, true},
	} {
		a := batch(c.key, c.n)
		if served := a.status == 200; served != c.served {
			t.Errorf("%s of %d: %d %s", c.key, c.n, a.status, a.body)
		}
		if !c.served && (a.code(t) != "overloaded" || a.problem(t)["outcome"] != "not_applied") {
			t.Errorf("%s of %d: %s", c.key, c.n, a.body)
		}
		eventually(t, "its places are given back", func() bool { return h.metric(t, "slotgate_overload_in_flight", nil) == 50 })
	}
	h.release(t)
}

func TestPlacesComeBackOnEveryWayOut(t *testing.T) {
	h := fixedPlaces(t, 4, nil)
	for range 3 { // more than there are places
		for _, path := range []string{"/v1/panic", "/v1/abort", "/v1/strings/a", "/v1/strings/%00?x", "/v1/nothing"} {
			req, _ := http.NewRequest("GET", h.URL+path, nil)
			req.Header.Set("Authorization", "Bearer normal")
			if resp, err := h.Client().Do(req); err == nil {
				resp.Body.Close()
				if resp.StatusCode == 503 {
					t.Errorf("%s: refused", path)
				}
			}
			h.wantNothingInFlight(t)
		}
		ctx, cancel := context.WithCancel(context.Background())
		req, _ := http.NewRequestWithContext(ctx, "GET", h.URL+"/v1/gone", nil)
		req.Header.Set("Authorization", "Bearer normal")
		ended := make(chan error)
		go func() { _, err := h.Client().Do(req); ended <- err }()
		<-h.arrived
		cancel()
		<-ended
		h.wantNothingInFlight(t)

		go func() { h.done <- h.as(t, "normal", "/v1/gone", "X-Request-Deadline-Ms: 20") }()
		<-h.arrived
		if a := <-h.done; a.status != 504 {
			t.Errorf("timed out: %d %s", a.status, a.body)
		}
		h.wantNothingInFlight(t)
	}
}

// A crowd of all kinds, over every bound at once, while readings come and the switch is turned: no place is lost.
func TestNoPlaceIsLostInACrowd(t *testing.T) {
	h := fixedPlaces(t, 8, func(c *middleware.OverloadConfig) { c.Min, c.MemoryMax = 2, 1000 })
	h.app("second", "second", acl.Normal)
	h.app("third", "third", acl.Bulk)
	stop := make(chan struct{})
	var readings, crowd sync.WaitGroup
	readings.Go(func() {
		for i := int64(0); ; i++ {
			select {
			case <-stop:
				h.overload.Switch(true)
				return
			default:
				h.overload.Feel(middleware.Pressure{CPUWait: time.Duration(i%5) * time.Millisecond, Memory: i * 97 % 1000})
				h.overload.Switch(i%7 != 0)
			}
		}
	})
	requests := []struct{ method, path string }{
		{"GET", "/v1/strings/a"}, {"PUT", "/v1/strings/a"}, {"GET", "/v1/panic"}, {"GET", "/v1/abort"}, {"POST", "/v1/batch/1"},
		{"POST", "/v1/batch/35"}, {"POST", "/v1/batch/4000"}, {"GET", "/v1/nothing"},
	}
	for worker, key := range []string{"critical", "normal", "second", "bulk", "third", "normal", "critical", "bulk"} {
		crowd.Go(func() {
			for i := range 100 {
				r := requests[(worker+i)%len(requests)]
				ctx, cancel := context.WithCancel(context.Background())
				req, _ := http.NewRequestWithContext(ctx, r.method, h.URL+r.path, strings.NewReader("x"))
				req.Header.Set("Authorization", "Bearer "+key)
				if i%9 == 0 {
					go cancel()
				}
				if resp, err := h.Client().Do(req); err == nil {
					resp.Body.Close()
				}
				cancel()
			}
		})
	}
	crowd.Wait()
	close(stop)
	readings.Wait()
	h.wantNothingInFlight(t)
	h.overload.Feel(middleware.Pressure{})
	h.hold(t, "critical", 2)
	h.release(t)
}

// A slow Redis is no reason to take places away, a gateway that waits for processors is.
func TestPlacesFollowTheGatewaysOwnSlowness(t *testing.T) {
	clock := newClock()
	h := fixedPlaces(t, 1000, func(c *middleware.OverloadConfig) { c.Min, c.Max, c.Clock = 10, 2000, clock.now })
	limit := func() float64 { return h.metric(t, "slotgate_overload_limit", nil) }
	feel := func(wait time.Duration, times int) {
		for range times {
			clock.advance(100 * time.Millisecond)
			h.overload.Feel(middleware.Pressure{CPUWait: wait})
		}
	}
	h.hold(t, "critical", 9) // slow answers
	feel(0, 10)
	feel(5*time.Microsecond, 10)
	feel(900*time.Microsecond, 100) // busy, but not slow
	feel(time.Second, 2)            // a pause
	feel(0, 1)
	if got := limit(); got != 1000 {
		t.Errorf("%v places in a gateway that is well, want 1000", got)
	}
	feel(3*time.Millisecond, 50)
	if got := limit(); got != 10 {
		t.Errorf("%v places after 5 s with waits of 3 ms, want the least, 10", got)
	}
	for range 6000 { // whatever place there is, somebody takes it
		feel(3*time.Millisecond, 1)
		if h.metric(t, "slotgate_overload_in_flight", nil) < math.Floor(limit()) && h.holding < 40 {
			h.hold(t, "critical", 1)
		}
	}
	if got := limit(); got > 20 {
		t.Errorf("%v places after ten minutes of overload: it is taken for the normal state", got)
	}
	if got := h.metric(t, "slotgate_overload_cpu_wait_seconds", nil); got != .003 {
		t.Errorf("the wait is told as %v s", got)
	}
	feel(20*time.Microsecond, 20)
	if got := limit(); got < 17 {
		t.Errorf("%v places 2 s after the overload, want those in use and some", got)
	}
	h.release(t)
}
