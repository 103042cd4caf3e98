package handlers

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/slotgate/slotgate/store"
)

// readJSON reads the body of a JSON operation. The whole body is in one slice that is never reused, so that what is parsed may
// point into it and stay valid even when a write to Redis outlives the request.
func readJSON(r *http.Request, maxBytes int64) ([]byte, error) {
	if err := jsonContent(r.Header); err != nil {
		return nil, err
	}
	body, err := readBody(r, maxBytes, store.CodePayloadTooLarge)
	if err == nil && len(body) == 0 {
		return nil, store.Unparsable("body", "the body is empty; a JSON object is expected")
	}
	return body, err
}

// readBody reads a body of at most maxBytes; a longer one is refused with the code, before it is read if it says so itself.
func readBody(r *http.Request, maxBytes int64, code store.Code) ([]byte, error) {
	if r.ContentLength > maxBytes {
		return nil, tooLarge(code, "body", maxBytes)
	}
	if r.ContentLength >= 0 {
		body := make([]byte, r.ContentLength)
		_, err := io.ReadFull(r.Body, body)
		return body, readFault(err, r)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBytes+1))
	if int64(len(body)) > maxBytes {
		return nil, tooLarge(code, "body", maxBytes)
	}
	return body, readFault(err, r)
}

// readFault says why a body did not come. Middleware's reader has said it already, but for one that ends before its length.
func readFault(err error, r *http.Request) error {
	if err == nil {
		return nil
	}
	if fault, ok := errors.AsType[*store.Error](err); ok {
		return fault
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(store.CodePayloadTooLarge, "body", large.Limit)
	}
	detail := "the body could not be read to its end"
	if r.ContentLength > 0 && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)) {
		detail = "the body is shorter than its Content-Length of " + strconv.FormatInt(r.ContentLength, 10)
	}
	return store.Unparsable("body", detail).WithCause(err)
}

func tooLarge(code store.Code, pointer string, maxBytes int64) error {
	return faultAt(code, pointer, "must be at most "+strconv.FormatInt(maxBytes, 10)+" bytes")
}

// first is the value of a header that has one line.
func first(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}

// jsonContent refuses everything that does not say it is JSON in UTF-8; without this a form on any web page could write.
func jsonContent(h http.Header) error {
	text := first(h["Content-Type"])
	if text == "application/json" {
		return nil
	}
	kind, parameters, err := mime.ParseMediaType(text)
	charset, given := parameters["charset"]
	if err != nil || kind != "application/json" || given && !strings.EqualFold(charset, "utf-8") {
		return faultAt(store.CodeUnsupportedMediaType, "header:Content-Type", "must be application/json (in UTF-8)")
	}
	return nil
}
