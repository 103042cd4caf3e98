package falcon_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/cmd/slotgate/falcon"
)

// keys are n items.
func keys(n int) prometheus.Collector {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "slotgate_redis_node_keys"}, []string{"node"})
	for i := range n {
		v.WithLabelValues(string(rune('a' + i))).Set(1)
	}
	return v
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// listen takes connections and gives each to talk, which returns when the target is done with it.
func listen(t *testing.T, talk func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			talk(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return "http://" + l.Addr().String()
}

// untilGone reads until the other side hangs up.
func untilGone(c net.Conn) {
	buf := make([]byte, 1024)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

func TestBadTargets(t *testing.T) {
	redirected := 0
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { redirected++ })
	for name, c := range map[string]struct {
		url    string
		reason string
	}{
		"one that hangs":                 {listen(t, untilGone), "timeout"},
		"one that refuses":               {"http://127.0.0.1:1/v1/push", "refused"},
		"one that hangs up":              {listen(t, func(net.Conn) {}), "refused"},
		"one that speaks something else": {listen(t, answer("", "-ERR what?\r\n")), "refused"},
		"one that answers 500":           {serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }), "status"},
		"one that answers 404":           {serve(t, http.NotFound), "status"},
		"one that redirects": {serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		}), "status"},
		"one whose header comes byte by byte": {listen(t, answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Padding: 0123456789\r\n\r\n")), "timeout"},
		"one whose body comes byte by byte":   {listen(t, answer("0123456789012345678901234567890123456789", "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n")), "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, falcon.Config{URL: c.url, Chunk: 2, Timeout: 100 * time.Millisecond}, keys(3))
			p.step(t)
			p.wantCounts(t, 0, 3)
			if n := p.counted(t, "slotgate_push_failures_total", c.reason); n != 2 {
				t.Errorf("%v failures for %s, want one for each chunk", n, c.reason)
			}
			if p.next != time.Minute {
				t.Errorf("the next step is in %v", p.next)
			}
			p.step(t) // nothing was kept for later
			p.wantCounts(t, 0, 6)
		})
	}
	if redirected > 0 {
		t.Error("a redirect was followed")
	}
}

// answer reads the request, writes what comes at once, and then the slow text, one byte each 20 ms, as long as somebody listens.
func answer(slow string, atOnce ...string) func(net.Conn) {
	return func(c net.Conn) {
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		for _, text := range atOnce {
			_, _ = io.WriteString(c, text)
		}
		for i := range len(slow) {
			if _, err := c.Write([]byte{slow[i]}); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond) // slowness is what is tested
		}
	}
}

func TestAPushEndsBeforeTheNextStep(t *testing.T) {
	p := start(t, falcon.Config{URL: listen(t, untilGone), Step: 5 * time.Minute, Chunk: 1, Timeout: time.Hour}, keys(5))
	p.stepLate(t, 5*time.Minute-20*time.Millisecond)
	p.wantCounts(t, 0, 5)
	if p.next != 20*time.Millisecond {
		t.Errorf("the next step is in %v", p.next)
	}
	p.stepLate(t, 5*time.Minute-20*time.Millisecond)
	p.wantCounts(t, 0, 10)
}

func TestATargetThatComesBackGetsTheNextChunk(t *testing.T) {
	posts := 0
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if posts++; posts == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	p := start(t, falcon.Config{URL: url, Chunk: 2}, keys(5))
	p.step(t)
	p.wantCounts(t, 3, 2)
}

// The end of a gateway is not held up by a target that hangs, and not counted as its failure.
func TestStoppingEndsAPush(t *testing.T) {
	reached := make(chan struct{})
	p := start(t, falcon.Config{URL: listen(t, func(c net.Conn) { close(reached); untilGone(c) }), Timeout: time.Hour}, keys(5))
	p.advance(p.next)
	p.fire <- p.now()
	<-reached
	p.stop()
	p.wantCounts(t, 0, 0)
}
