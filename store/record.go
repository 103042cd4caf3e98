package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/slot"
)

// A record is what Redis keeps of a write that had an Idempotency-Key, so that its repetition has the same answer. It is a string:
//
//	0       version: '1'
//	1..32   the request's fingerprint
//	33..    the reply of the script that did the write, then what the gateway needs beside it; each part is
//	        ":<integer>\n", "$<length>\n<bytes>\n" or "_\n" for nothing
//
// It is written by the script that does the write, and lies in the slot of the written key: both happen, or neither, and both move,
// fail over or are lost together.
const recordVersion = "1"

// recordKey is where the record of a write to the stored key lies. It holds neither the app's key nor the Idempotency-Key, which may
// be long and private. Two namespaces never share a record: a namespace has no zero byte.
func recordKey(id *acl.Identity, stored, key string) string {
	sum := sha256.Sum256([]byte(id.App.Namespace + "\x00" + key))
	// 128 bits: that two of 10^12 keys meet has a probability of 10^-15.
	return "slotgate:i:{" + slot.Sample(slot.Of(stored)) + "}:" + base64.RawURLEncoding.EncodeToString(sum[:16])
}

// recordHead is how a record of the request begins.
func (i Idempotency) recordHead() string { return recordVersion + string(i.Fingerprint[:]) }

// maxKept is the largest stored value that a record keeps, in bytes. A record lives for a day, and 4 KiB are some 20 records of
// writes that answer with no value.
const maxKept = 4 << 10

// keptInteger adds an integer to the parts of a record.
func keptInteger(parts string, n int64) string {
	return parts + ":" + strconv.FormatInt(n, 10) + "\n"
}

// keptValue adds a stored value, or nothing, to the parts of a record. Error: idempotency_unsupported for one over maxKept.
func keptValue(parts string, h *held) (string, error) {
	if h == nil {
		return parts + "_\n", nil
	}
	if len(h.stored) > maxKept {
		return "", NewError(CodeIdempotencyUnsupported, "the answer would hold a value that takes more than "+strconv.Itoa(maxKept)+
			" stored bytes, which is not kept for a repetition; nothing was written. Leave out the value or the Idempotency-Key")
	}
	return parts + "$" + strconv.Itoa(len(h.stored)) + "\n" + string(h.stored) + "\n", nil
}

var errBadRecord = errors.New("store: a record that no gateway has written")

// parseRecord reads the parts of a record: int64, string or nil.
func parseRecord(parts []byte) (scriptReply, error) {
	var reply scriptReply
	for len(parts) > 0 {
		line, rest, ok := bytes.Cut(parts, []byte{'\n'})
		if !ok || len(line) == 0 {
			return nil, errBadRecord
		}
		var part any
		switch kind := line[0]; {
		case kind == '_' && len(line) == 1:
		case kind == ':' || kind == '$':
			n, err := strconv.ParseInt(string(line[1:]), 10, 64)
			if err != nil {
				return nil, errBadRecord
			}
			if part = n; kind == ':' {
				break
			}
			if n < 0 || n >= int64(len(rest)) || rest[n] != '\n' {
				return nil, errBadRecord
			}
			part, rest = string(rest[:n]), rest[n+1:]
		default:
			return nil, errBadRecord
		}
		reply, parts = append(reply, part), rest
	}
	if len(reply) == 0 {
		return nil, errBadRecord
	}
	return reply, nil
}
