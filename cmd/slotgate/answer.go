package main

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ownAnswer is a response on a quiet connection whose header lines the gateway writes itself. net/http copies and sorts the
// header map of every response and makes both maps anew: for the eight fields of ours that was 13 % of the CPU of a GET.
// Here the map is kept for the next request, and the lines go past net/http to the connection, which puts them behind the
// status line. Fields that steer net/http (framing, date, connection) still go through it: they cost it two maps. The type does not, although
// net/http then guesses one from the body: the connection leaves that line out (cork.typed).
//
// An answer whose body is long and has a Content-Length goes out in one write: net/http would take two, which is a fifth of
// the cost of an mget of 50.
type ownAnswer struct {
	w      http.ResponseWriter
	conn   *quietConn
	header http.Header
	head   bool // a HEAD request
	sent   bool // the header is out
}

var answers = sync.Pool{New: func() any { return &ownAnswer{header: http.Header{}} }}

type quietConnKey struct{}

// withQuietConn lets the requests of a quiet connection find it.
func withQuietConn(ctx context.Context, c net.Conn) context.Context {
	if q, ok := c.(*quietConn); ok {
		return context.WithValue(ctx, quietConnKey{}, q)
	}
	return ctx
}

// ownHeaders serves requests of quiet connections with answers, all others as they are.
func ownHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, ok := r.Context().Value(quietConnKey{}).(*quietConn)
		if !ok || r.ProtoMajor != 1 {
			next.ServeHTTP(w, r)
			return
		}
		a := answers.Get().(*ownAnswer)
		a.w, a.conn, a.head, a.sent = w, conn, r.Method == http.MethodHead, false
		next.ServeHTTP(a, r)
		if !a.sent {
			a.WriteHeader(http.StatusOK)
		}
		clear(a.header)
		a.w, a.conn = nil, nil
		answers.Put(a) // not after a panic: it ends the connection
	})
}

// Header implements http.ResponseWriter.
func (a *ownAnswer) Header() http.Header { return a.header }

// Unwrap is for http.ResponseController.
func (a *ownAnswer) Unwrap() http.ResponseWriter { return a.w }

// Flush implements http.Flusher.
func (a *ownAnswer) Flush() {
	if !a.sent {
		a.WriteHeader(http.StatusOK)
	}
	if f, ok := a.w.(http.Flusher); ok {
		f.Flush()
	}
}

// Write implements http.ResponseWriter.
func (a *ownAnswer) Write(p []byte) (int, error) {
	if !a.sent {
		a.WriteHeader(http.StatusOK)
	}
	return a.w.Write(p)
}

// Bodies between these sizes in bytes go out in one write. net/http has a buffer of 2 KiB for the body and one of 4 KiB for all,
// and so takes one write below; above, a copy costs more than a write.
const (
	corkFrom = 2 << 10
	corkTo   = 64 << 10
)

// WriteHeader implements http.ResponseWriter.
func (a *ownAnswer) WriteHeader(status int) {
	if a.sent || status < 200 { // net/http complains of a second one, and knows what to do with the informational ones
		a.w.WriteHeader(status)
		return
	}
	a.sent = true
	body := 0
	bodyless := a.head || status == http.StatusNoContent || status == http.StatusNotModified
	if length := a.header["Content-Length"]; len(length) == 1 && !bodyless {
		if n, err := strconv.Atoi(length[0]); err == nil && n >= corkFrom && n < corkTo {
			body = n
		}
	}
	lines := a.conn.cork.put(body)
	*lines = a.appendLines(*lines, status)
	a.w.WriteHeader(status)
}

// usual are the fields of most answers, in the order of the alphabet.
var usual = [...]string{"Cache-Control", contentType, "Etag", "Ratelimit", "Ratelimit-Policy", "Retry-After", "X-Content-Type-Options", "X-Request-Id"}

// appendLines adds the gateway's own fields, the usual ones first, then others sorted, and gives net/http the rest.
func (a *ownAnswer) appendLines(dst []byte, status int) []byte {
	left := len(a.header)
	for _, name := range usual { // a look for each costs less than going through the map and sorting
		values, ok := a.header[name]
		if !ok {
			continue
		}
		left--
		if name == contentType {
			if status == http.StatusNotModified {
				continue // has none, as net/http has it
			}
			a.conn.cork.typed = true
		}
		dst = appendLine(dst, name, values)
	}
	if left == 0 {
		return dst
	}
	var others []string
	for name, values := range a.header {
		switch {
		case slices.Contains(usual[:], name):
		case steers(name):
			a.w.Header()[name] = values
		default:
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for _, name := range others {
		dst = appendLine(dst, name, a.header[name])
	}
	return dst
}

const contentType = "Content-Type"

// steers says whether net/http looks at the field or may write it itself.
func steers(name string) bool {
	switch name {
	case "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection", "Date", "Trailer", "Upgrade":
		return true
	}
	return strings.HasPrefix(name, http.TrailerPrefix)
}

// appendLine adds a field, a line for each value. Line ends in a value become spaces, as in net/http: a value must not begin
// another field.
func appendLine(dst []byte, name string, values []string) []byte {
	for _, value := range values {
		dst = append(dst, name...)
		dst = append(dst, ": "...)
		from := len(dst)
		dst = append(dst, value...)
		for i, c := range dst[from:] {
			if c == '\r' || c == '\n' {
				dst[from+i] = ' '
			}
		}
		dst = append(dst, "\r\n"...)
	}
	return dst
}
