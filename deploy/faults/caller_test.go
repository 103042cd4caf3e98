package faults

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
)

// caller is one client of a gateway with a key or token. It repeats nothing. Safe for concurrent use.
type caller struct {
	base, credential string
	http             *http.Client
}

// newCaller makes a client that ends with the test.
func newCaller(t *testing.T, base, credential string) *caller {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{base, credential, &http.Client{Transport: transport, Timeout: clientTimeout}}
}

// reply is a response, read, or the error of who got none.
type reply struct {
	status  int
	header  http.Header
	body    []byte
	took    time.Duration
	err     error  // no answer
	code    string // of a problem
	outcome string // of a problem
}

// call sends one request; a header is "Name: value".
func (c *caller) call(ctx context.Context, method, path, body string, headers ...string) (a reply) {
	start := time.Now()
	defer func() { a.took = time.Since(start) }()
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+c.credential)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	a = reply{status: resp.StatusCode, header: resp.Header}
	if a.body, a.err = io.ReadAll(resp.Body); a.status >= 400 {
		var p struct{ Code, Outcome string }
		_ = json.Unmarshal(a.body, &p)
		a.code, a.outcome = p.Code, p.Outcome
	}
	return a
}

// must fails unless the answer has the status.
func (c *caller) must(t testing.TB, status int, method, path, body string, headers ...string) reply {
	t.Helper()
	a := c.call(t.Context(), method, path, body, headers...)
	if a.err != nil || a.status != status {
		t.Fatalf("%s %s: status %d, want %d: %s %v", method, path, a.status, status, a.body, a.err)
	}
	return a
}

// eventually repeats the request until the answer has the status.
func (c *caller) eventually(t *testing.T, status int, method, path, body string, headers ...string) (a reply) {
	t.Helper()
	eventually(t, method+" "+path, func() bool {
		a = c.call(t.Context(), method, path, body, headers...)
		return a.err == nil && a.status == status
	})
	return a
}

// told is what the answer says of a write.
func (a reply) told() outcome {
	switch {
	case a.err != nil:
		return unknown
	case a.status < 300, a.outcome == "applied":
		return acked
	case a.status < 500, a.outcome == "not_applied":
		return notApplied
	}
	return unknown
}

// must gives a value or fails the test.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// keysOn are caller's keys in the slots of a node.
func keysOn(t *testing.T, n *localcluster.Node, prefix string, count int) []string {
	t.Helper()
	of := bySlot(t, n)
	var keys []string
	for i := 0; len(keys) < count; i++ {
		if key := prefix + strconv.Itoa(i); of(key) == "hit" {
			keys = append(keys, key)
		}
	}
	return keys
}

// incompressible is text of so many bytes that stays as long as it is.
func incompressible(n int) string {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('0' + random.IntN(64))
		if b[i] == '\\' {
			b[i] = '.'
		}
	}
	return string(b)
}
