package handlers

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"strings"

	"github.com/slotgate/slotgate/store"
)

// idempotent is what a write with an Idempotency-Key carries. A repetition is known by the key and by its fingerprint, of all that
// makes the request what it is: what else the caller sends (who it is, a deadline, how it likes the answer) may differ.
type idempotent struct {
	key     string
	body    []byte         // as it was sent
	receipt *store.Receipt // nil until the write is sent
	none    bool           // it was answered, but nothing was written and so nothing kept
}

const (
	idempotencyHeader  = "Idempotency-Key"
	idempotencyPointer = "header:" + idempotencyHeader
	maxIdempotencyKey  = 255
)

// once runs a write of one key whose request has an Idempotency-Key.
func (r request) once(lines []string, op operation) error {
	key, err := parseIdempotencyKey(lines)
	if err != nil {
		return err
	}
	records := store.RecorderFrom(r.ctx)
	if records != nil {
		if err := records.TakeRecord(); err != nil {
			return err
		}
	}
	r.idempotent = &idempotent{key: key}
	err = op(r)
	if records != nil && (r.idempotent.replayed() || r.idempotent.none || leftNothing(err)) {
		records.GiveBackRecord()
	}
	return err
}

func (i *idempotent) replayed() bool { return i.receipt != nil && i.receipt.Replayed }

// leftNothing says whether a write has failed without leaving a record.
func leftNothing(err error) bool {
	e, ok := errors.AsType[*store.Error](err)
	return ok && (e.Outcome == store.NoOutcome || e.Outcome == store.NotApplied)
}

// refuseIdempotencyKey is for everything but writes of one key: ignoring the header would promise what is not kept.
func (r *request) refuseIdempotencyKey() error {
	if len(r.Request.Header[idempotencyHeader]) == 0 {
		return nil
	}
	return faultAt(store.CodeIdempotencyUnsupported, idempotencyPointer,
		"Idempotency-Key works on writes of one key, takes and refunds of one limit, and allocations and completions of pools; it is not for this operation")
}

// parseIdempotencyKey reads the lines of the header: one String of RFC 8941, as the draft of the header wants it, or the same without
// quotes, as most clients send it. Both forms of a key are one key.
func parseIdempotencyKey(lines []string) (string, error) {
	if len(lines) != 1 {
		return "", store.Unparsable(idempotencyPointer, "must appear once")
	}
	text := strings.Trim(lines[0], " \t")
	read := bareKey
	if strings.HasPrefix(text, `"`) {
		read = quotedKey
	}
	key, fault := read(text)
	switch {
	case fault != "":
	case key == "":
		fault = "must not be empty"
	case len(key) > maxIdempotencyKey:
		fault = "must be at most 255 characters"
	}
	if fault != "" {
		return "", store.Unparsable(idempotencyPointer, fault)
	}
	return key, nil
}

// quotedKey is a String (RFC 8941, 3.3.3), without parameters.
func quotedKey(text string) (key, fault string) {
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && i == len(text)-1:
			return b.String(), ""
		case c == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
			b.WriteByte(text[i])
		case c == '"' || c == '\\':
			return "", `must be one string: a quote or backslash in it is written as \" or \\`
		case c < ' ' || c > '~':
			return "", notVisible
		default:
			b.WriteByte(c)
		}
	}
	return "", "must end with a quote, as it begins with one"
}

const notVisible = "must be of visible ASCII characters"

// bareKey is a key without quotes. A comma is refused: it is how two headers look that somebody on the way has joined.
func bareKey(text string) (key, fault string) {
	for i := range len(text) {
		switch c := text[i]; {
		case c <= ' ' || c > '~':
			return "", notVisible + " and, with spaces, in double quotes"
		case c == '"' || c == '\\' || c == ',':
			return "", "must be in double quotes when it has a quote, backslash or comma"
		}
	}
	return text, ""
}

// fingerprint is the same for two requests that are one and the same write.
func (i *idempotent) fingerprint(r *request) (sum [32]byte) {
	h := sha256.New()
	for _, part := range [...]string{r.Request.Method, r.FullPath(), r.key, r.Request.URL.RawQuery} {
		addPart(h, part)
	}
	for _, name := range [...]string{"If-Match", "If-None-Match"} {
		addPart(h, strings.Join(r.Request.Header[name], ","))
	}
	addPart(h, i.body)
	h.Sum(sum[:0])
	return sum
}

// addPart adds a part behind its length, so that nothing moves from one part to the next.
func addPart[T ~string | ~[]byte](h hash.Hash, part T) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(part)))
	h.Write(size[:])
	h.Write([]byte(part))
}
