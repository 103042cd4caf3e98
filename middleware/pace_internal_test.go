package middleware

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/slotgate/slotgate/store"
)

// toldWriter notes the deadlines that its connection is given.
type toldWriter struct {
	*httptest.ResponseRecorder
	deadlines []time.Duration // from begun
	begun     time.Time
}

func (w *toldWriter) SetReadDeadline(t time.Time) error {
	w.deadlines = append(w.deadlines, t.Sub(w.begun))
	return nil
}

func TestOnlyLargeBodiesArePaced(t *testing.T) {
	cfg := &DeadlineConfig{Body: 10 * time.Second, BodyRate: 64 << 10}
	const first = 2*time.Second + 250*time.Millisecond // the grace and the time of one step
	for why, c := range map[string]struct {
		declared int64
		rate     int64
		want     time.Duration
	}{
		"a small one has the time of any body": {64<<10 - 1, 64 << 10, 10 * time.Second},
		"a large one must begin soon":          {64 << 10, 64 << 10, first},
		"one without a length too":             {-1, 64 << 10, first},
		"none without a rate":                  {8 << 20, 0, 10 * time.Second},
		"none beyond the time of any body":     {8 << 20, 1, 10 * time.Second},
	} {
		cfg.BodyRate = c.rate
		if got := (&body{declared: c.declared}).paced(nil, time.Time{}, cfg); got != c.want {
			t.Errorf("%s: %v, want %v", why, got, c.want)
		}
	}
}

func TestALargeBodyEarnsTimeByComing(t *testing.T) {
	begun := time.Unix(1000, 0)
	w := &toldWriter{ResponseRecorder: httptest.NewRecorder(), begun: begun}
	data := bytes.Repeat([]byte("x"), 80<<10)
	b := &body{src: io.NopCloser(iotest.HalfReader(bytes.NewReader(data))), declared: int64(len(data)), left: 1 << 20, limit: 1 << 20, r: &request{http: &http.Request{}}}
	b.paced(w, begun, &DeadlineConfig{Body: 3 * time.Second, BodyRate: 64 << 10})
	for part := make([]byte, 32<<10); b.err == nil; { // 16 KiB are read at a time
		_, _ = b.Read(part)
		if b.read == b.declared {
			break
		}
	}
	second := time.Second
	want := []time.Duration{5 * second / 2, 11 * second / 4, 3 * second, 3 * second} // never later than any body's
	if !slices.Equal(w.deadlines, want) {
		t.Errorf("the connection was told %v, want %v", w.deadlines, want)
	}
}

// A body without a length reserves as it comes.
func TestChunkedBodiesReserveByAndBy(t *testing.T) {
	const limit = 1 << 20
	read := func(size int, budget int64) (r *request, inFlight *BytesInFlight, err error) {
		inFlight, r = NewBytesInFlight(budget), &request{http: &http.Request{}}
		r.answer.inFlight = inFlight
		inFlight.TryAcquire(chunkedReserve)
		r.http.Method = "PUT"
		r.body = &body{src: io.NopCloser(bytes.NewReader(make([]byte, size))), declared: -1, left: limit, limit: limit, reserved: chunkedReserve, r: r}
		_, err = io.Copy(io.Discard, r.body)
		return r, inFlight, err
	}
	for _, c := range []struct{ size, reserved int64 }{{0, 64 << 10}, {64<<10 - 1, 64 << 10}, {64 << 10, 128 << 10}, {300 << 10, 512 << 10}, {limit, limit}} {
		r, inFlight, err := read(int(c.size), 0)
		if err != nil || inFlight.Used() != c.reserved {
			t.Errorf("%d bytes reserve %d, want %d (%v)", c.size, inFlight.Used(), c.reserved, err)
		}
		if r.body.release(inFlight); inFlight.Used() != 0 {
			t.Errorf("%d bytes are not given back", inFlight.Used())
		}
	}
	r, inFlight, err := read(300<<10, 256<<10)
	if e, ok := errors.AsType[*store.Error](err); !ok || e.Code != store.CodeOverloaded || !r.refused {
		t.Errorf("over the budget: %v", err)
	}
	if r.body.release(inFlight); inFlight.Used() != 0 {
		t.Errorf("%d bytes are not given back after a refusal", inFlight.Used())
	}
	_, _, err = read(limit+1, 0)
	if e, ok := errors.AsType[*store.Error](err); !ok || e.Code != store.CodePayloadTooLarge {
		t.Errorf("over the limit: %v", err)
	}
}
