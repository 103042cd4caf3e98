package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// policy is the Content-Security-Policy of the pages: nothing but this gateway, no inline script, no inline style sheet. Pictures may be
// data: URLs, since Swagger UI's style sheet has its icons in that form.
const policy = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is one thing to serve, in both forms, made once.
type file struct {
	mediaType     string
	plain, packed []byte
	etag          string
}

func newFile(mediaType string, content []byte) *file {
	var buf bytes.Buffer
	// BestCompression is paid once per start, and a bytes.Buffer never fails.
	zw, _ := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	_, _ = zw.Write(content)
	_ = zw.Close()
	return &file{mediaType, content, buf.Bytes(), etag(content)}
}

// newPackedFile takes content that is compressed already.
func newPackedFile(mediaType string, packed []byte) (*file, error) {
	zr, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(zr)
	if err != nil {
		return nil, err
	}
	return &file{mediaType, content, packed, etag(content)}, nil
}

func etag(content []byte) string {
	sum := sha256.Sum256(content)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// ServeHTTP answers GET and HEAD. The copy may be kept but must be checked each time (no-cache): a new build is seen at once.
func (f *file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Security-Policy", policy)
	h.Set("ETag", f.etag)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Vary", "Accept-Encoding")
	h.Set("X-Content-Type-Options", "nosniff")
	if anyTag(r.Header.Values("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := f.plain
	if acceptsGzip(r.Header.Values("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		body = f.packed
	}
	h.Set("Content-Type", f.mediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that went away needs no answer
	}
}

// anyTag compares weakly (RFC 9110, 13.1.2): both forms of the file are the same document.
func anyTag(lines []string, tag string) bool {
	for _, line := range lines {
		for one := range strings.SplitSeq(line, ",") {
			one = strings.TrimSpace(one)
			if one == "*" || strings.TrimPrefix(one, "W/") == tag {
				return true
			}
		}
	}
	return false
}

// acceptsGzip reads Accept-Encoding (RFC 9110, 12.5.3): gzip or *, unless with a weight of zero.
func acceptsGzip(lines []string) bool {
	accepted := false
	for _, line := range lines {
		for one := range strings.SplitSeq(line, ",") {
			coding, weight, weighted := strings.Cut(strings.ReplaceAll(strings.ToLower(one), " ", ""), ";q=")
			q, err := strconv.ParseFloat(weight, 64)
			good := !weighted || err == nil && q > 0
			switch coding {
			case "gzip":
				return good
			case "*":
				accepted = good
			}
		}
	}
	return accepted
}
