package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestO06HTTP2 resets streams as fast as it can, and sends header blocks that never end or are too large.
func TestO06HTTP2(t *testing.T) {
	scenario(t)
	in := floodCluster(t)
	storeEcho(t, in.redis(t))
	// The server is the one that TLS leads to. Empty frames cost what they are and no more, so net/http lets them come; the connection then
	// ends as an idle one.
	g := in.serve(t, "http.h2c=true", "http.idle_timeout_ms=3000")
	before := warm(t, in, g)
	l := in.citizen(t, g)
	l.enter("quiet")
	pause(t, 2*time.Second)
	l.enter("flood")
	w := g.watch(t)

	const conns = 10
	lasts := time.Duration(times(4, 20)) * time.Second
	var resets, ended atomic.Int64
	end := time.Now().Add(lasts)
	var group sync.WaitGroup
	for range conns {
		group.Go(func() {
			for time.Now().Before(end) {
				if h := dialH2(g); h != nil {
					resets.Add(h.reset(in.token, end))
					h.close()
					ended.Add(1)
				}
			}
		})
	}
	group.Wait()
	results.add(row{id: "O-06", done: fmt.Sprintf("streams begun and reset at once on %d connections for %v", conns, lasts),
		counted: fmt.Sprintf("%d resets (%.0f a second), on %d connections one after the other, as the gateway ends those that reset too fast", resets.Load(),
			float64(resets.Load())/lasts.Seconds(), ended.Load()),
		target: "100,000 a second offered, as many as this machine sends; the connection ends", verdict: ""})
	if resets.Load() == 0 {
		t.Error("nothing was reset: nothing was tested")
	}

	for what, send := range map[string]func(h *h2) error{
		"CONTINUATION frames without end": func(h *h2) error { return h.continued([]byte("x"), 1<<20) },
		"empty CONTINUATION frames":       func(h *h2) error { return h.continued(nil, 100_000) },
		"a header of 1 MB":                func(h *h2) error { return h.request(in.token, "x-large", strings.Repeat("a", 1<<20)) },
		"10,000 headers":                  func(h *h2) error { return h.request(in.token, manyHeaders(10_000)...) },
	} {
		h := dialH2(g)
		if h == nil {
			t.Fatal("no connection")
		}
		begun := time.Now()
		_ = send(h) // an error says that the gateway has ended it
		got := h.end()
		if got != "431" && got != "the connection ended" {
			t.Errorf("%s: %s", what, got)
		}
		results.add(row{id: "O-06", done: what, counted: fmt.Sprintf("%s, after %v", got, ms(time.Since(begun))), target: "431 or the connection ends", verdict: met(got == "431" || got == "the connection ended")})
		h.close()
	}
	others := unharmed(t, l)
	admin := w.answered(t)
	results.add(row{id: "O-06", done: "beside and after them", counted: others + "; " + admin + "; " + g.flat(t, before), target: "0 errors, as before",
		verdict: met(!t.Failed())})
}

func manyHeaders(n int) []string {
	all := make([]string, 0, 2*n)
	for i := range n {
		all = append(all, fmt.Sprint("x-", i), "a")
	}
	return all
}

// h2 is a client of HTTP/2 that keeps to no rule but the framing.
type h2 struct {
	close  func()
	framer *http2.Framer
	block  bytes.Buffer
	coder  *hpack.Encoder
	next   uint32 // stream
	api    string
}

// dialH2 connects by prior knowledge. nil when the gateway does not take it.
func dialH2(g *gateway) *h2 {
	conn := dial(g)
	if conn == nil {
		return nil
	}
	h := &h2{close: func() { conn.Close() }, framer: http2.NewFramer(conn, conn), next: 1, api: g.api}
	h.coder = hpack.NewEncoder(&h.block)
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		conn.Close()
		return nil
	}
	_ = h.framer.WriteSettings()
	return h
}

// fields is a header block of GET /v1/whoami with others behind.
func (h *h2) fields(token string, others ...string) []byte {
	h.block.Reset()
	all := append([]string{":method", "GET", ":scheme", "http", ":authority", h.api, ":path", "/v1/whoami", "authorization", "Bearer " + token}, others...)
	for i := 0; i < len(all); i += 2 {
		_ = h.coder.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]}) // into memory
	}
	return h.block.Bytes()
}

// reset begins streams and resets them until the gateway ends the connection or the time is over, and counts them.
func (h *h2) reset(token string, end time.Time) (n int64) {
	over := make(chan struct{})
	go func() { // what comes back is dropped, or both sides would wait
		defer close(over)
		for {
			if _, err := h.framer.ReadFrame(); err != nil {
				return
			}
		}
	}()
	defer func() { h.close(); <-over }()
	for ; time.Now().Before(end); n++ {
		headers := http2.HeadersFrameParam{StreamID: h.next, BlockFragment: h.fields(token), EndStream: true, EndHeaders: true}
		if h.framer.WriteHeaders(headers) != nil || h.framer.WriteRSTStream(h.next, http2.ErrCodeCancel) != nil {
			return n
		}
		h.next += 2
	}
	return n
}

// request sends one request, its headers in as many frames as they need.
func (h *h2) request(token string, others ...string) error {
	const frame = 16 << 10 // the largest that every server takes
	block := h.fields(token, others...)
	first := block[:min(len(block), frame)]
	block = block[len(first):]
	err := h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: h.next, BlockFragment: first, EndStream: true, EndHeaders: len(block) == 0})
	for len(block) > 0 && err == nil {
		part := block[:min(len(block), frame)]
		block = block[len(part):]
		err = h.framer.WriteContinuation(h.next, len(block) == 0, part)
	}
	return err
}

// continued begins a header block and sends n more pieces of it, of which none is the last.
func (h *h2) continued(piece []byte, n int) error {
	if err := h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: h.next, BlockFragment: h.fields("x"), EndStream: true}); err != nil {
		return err
	}
	for range n {
		if err := h.framer.WriteContinuation(h.next, false, piece); err != nil {
			return err
		}
	}
	return errors.New("the gateway read all of it")
}

// end reads until a status or the end of the connection.
func (h *h2) end() string {
	status := ""
	decoder := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			status = f.Value
		}
	})
	for {
		frame, err := h.framer.ReadFrame()
		if os.IsTimeout(err) {
			return "neither an answer nor an end"
		}
		if err != nil {
			return "the connection ended"
		}
		switch f := frame.(type) {
		case *http2.HeadersFrame:
			_, _ = decoder.Write(f.HeaderBlockFragment())
			if status != "" {
				return status
			}
		case *http2.GoAwayFrame:
			return "the connection ended"
		}
	}
}
