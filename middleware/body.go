package middleware

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/store"
)

// DefaultRequestMaxBytes bounds the body of an identity that says nothing: the gateway's documented default.
const DefaultRequestMaxBytes = 8 << 20

// Body bounds what a request holds in memory: its answer, for which store reserves of inFlight, and its body: 415 for an encoded one, 413 by its declared length before any of it is read, and 503 overloaded when
// the gateway holds as many bytes as it may. What passes is read through a reader that fails with a *store.Error (413 for a
// chunked body over the limit, 400 for one that breaks off or comes too slowly), so a handler only reports what reading returned.
func Body(inFlight *BytesInFlight) gin.HandlerFunc {
	return func(c *gin.Context) {
		r := of(c)
		req := c.Request // behind of: it may be another one now
		if enc := req.Header["Content-Encoding"]; len(enc) > 0 && !(len(enc) == 1 && enc[0] == "identity") {
			refuse(c, store.NewError(store.CodeUnsupportedMediaType, "a request body with a Content-Encoding is not accepted; send it plain"))
			return
		}
		r.answer.inFlight = inFlight
		defer r.answer.release()
		if req.ContentLength == 0 || req.Body == nil || req.Body == http.NoBody {
			c.Next()
			return
		}
		limit := r.requestLimit()
		if req.ContentLength > limit {
			refuse(c, tooLarge(limit))
			return
		}
		reserve := req.ContentLength
		if reserve < 0 { // chunked: more is reserved as it comes
			reserve = min(chunkedReserve, limit)
		}
		if !inFlight.TryAcquire(reserve) {
			refuse(c, overloaded())
			return
		}
		r.body = &body{src: req.Body, left: limit, limit: limit, declared: req.ContentLength, reserved: reserve, r: r}
		defer r.body.release(inFlight)
		req.Body = r.body
		c.Next()
	}
}

// chunkedReserve is what a body without a length reserves at first, and is doubled whenever that much has come. It holds all but large
// ones; the whole limit for each would let 32 callers with next to nothing to say turn all others away.
const chunkedReserve = 64 << 10

func overloaded() error {
	return store.NewError(store.CodeOverloaded, "the gateway holds as many bytes of requests as it may")
}

func (r *request) requestLimit() int64 {
	if id := r.event.Identity; id != nil && id.Sizes.RequestMaxBytes > 0 {
		return id.Sizes.RequestMaxBytes
	}
	return DefaultRequestMaxBytes
}

func tooLarge(limit int64) *store.Error {
	return store.NewError(store.CodePayloadTooLarge, "the request body is larger than the limit of "+strconv.FormatInt(limit, 10)+" bytes").
		WithCause(&http.MaxBytesError{Limit: limit})
}

// body is http.MaxBytesReader with our errors and a count, and tells the deadline when the last byte is in.
type body struct {
	src         io.ReadCloser
	left, limit int64
	declared    int64 // -1: chunked
	read        int64
	reserved    int64 // of the bytes in flight
	err         error // sticky
	pace        *pace // nil: nobody looks at its speed
	r           *request
}

// bytes is how many have been read.
func (b *body) bytes() int64 {
	if b == nil {
		return 0
	}
	return b.read
}

// release gives back what was reserved.
func (b *body) release(inFlight *BytesInFlight) { inFlight.Release(b.reserved) }

// grow reserves for what of a chunked body is still to come, when as much has come as is reserved.
func (b *body) grow() error {
	more := min(b.reserved, b.limit-b.reserved)
	if !b.r.answer.inFlight.TryAcquire(more) {
		b.r.refused = true // the handler only asked for the body
		return overloaded()
	}
	b.reserved += more
	return nil
}

func (b *body) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	if int64(len(p))-1 > b.left { // one more than may come, to see whether there is more
		p = p[:b.left+1]
	}
	n, err := b.src.Read(p)
	b.read += int64(n)
	switch {
	case int64(n) > b.left:
		n, b.err = int(b.left), tooLarge(b.limit)
	case err == io.EOF: //nolint:errorlint // a Reader returns the value itself
		b.err = io.EOF
	case err != nil:
		b.err = bodyError(err)
	}
	b.left -= int64(n)
	if b.err == nil {
		if b.declared < 0 && b.read >= b.reserved {
			b.err = b.grow()
		}
		if b.pace != nil && b.read != b.declared {
			b.pace.on(b.read)
		}
	}
	if b.err == io.EOF || b.read == b.declared { //nolint:errorlint // as above; HTTP/2 tells the end one Read later
		b.r.timing.bodyRead(b.r)
	}
	return n, b.err
}

func (b *body) Close() error { return b.src.Close() }

func bodyError(err error) error {
	detail := "the body could not be read to its end"
	var tooMany *http.MaxBytesError
	switch {
	case errors.As(err, &tooMany): // a cap of the server itself
		return tooLarge(tooMany.Limit)
	case errors.Is(err, io.ErrUnexpectedEOF):
		detail = "the body is shorter than declared"
	case errors.Is(err, os.ErrDeadlineExceeded):
		detail = "the body came too slowly"
	}
	return store.Unparsable("body", detail).WithCause(err)
}
