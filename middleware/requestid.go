package middleware

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"unsafe"

	"github.com/gin-gonic/gin"
)

const (
	headerRequestID = "X-Request-Id" // as net/textproto writes it, so that the maps can be used directly
	maxRequestID    = 128
)

// RequestID takes the client's X-Request-Id when it is safe to log and to echo, else makes a UUIDv7, and puts it in every response.
func RequestID(clock Clock) gin.HandlerFunc {
	clock = clock.orReal()
	return func(c *gin.Context) {
		r := of(c)
		id := ""
		if sent := c.Request.Header[headerRequestID]; len(sent) == 1 && safeRequestID(sent[0]) {
			id = sent[0]
		} else {
			r.madeID = newUUIDv7(r.started(clock).UnixMilli(), rand.Uint64(), rand.Uint64())
			id = unsafe.String(&r.madeID[0], len(r.madeID)) // never written again, and the request is never pooled
		}
		r.event.RequestID = id
		r.idHeader[0] = id
		c.Writer.Header()[headerRequestID] = r.idHeader[:]
	}
}

func safeRequestID(s string) bool {
	if s == "" || len(s) > maxRequestID {
		return false
	}
	for i := range len(s) {
		switch b := s[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '.', b == '_', b == '-':
		default:
			return false
		}
	}
	return true
}

// newUUIDv7 lays out RFC 9562 version 7. The random part comes from math/rand/v2 (ChaCha8): an id must be unique, not secret, and
// google/uuid would read the system's source for each.
func newUUIDv7(unixMilli int64, hi, lo uint64) (s [36]byte) {
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], uint64(unixMilli)<<16|0x7000|hi&0x0fff)
	binary.BigEndian.PutUint64(u[8:], lo&0x3fffffffffffffff|0x8000000000000000)
	hex.Encode(s[0:8], u[0:4])
	hex.Encode(s[9:13], u[4:6])
	hex.Encode(s[14:18], u[6:8])
	hex.Encode(s[19:23], u[8:10])
	hex.Encode(s[24:36], u[10:16])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return s
}
