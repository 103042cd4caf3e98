package store

import (
	"errors"
	"net/http"
	"time"
)

// Outcome says what became of a write that did not succeed. Every 5xx to a write carries one.
type Outcome string

// The outcomes. NoOutcome is that of reads and of requests refused before anything was sent.
const (
	NoOutcome  Outcome = ""
	Applied    Outcome = "applied"     // Redis has executed it; only the answer was lost
	NotApplied Outcome = "not_applied" // Redis has certainly not executed it
	Unknown    Outcome = "unknown"     // it may or may not have been executed
)

// FieldError points at one bad part of a request. Pointer is a JSON pointer into the body ("/items/3/key") or names the place:
// "path", "path:key", "query:ttl_ms", "header:If-Match", "body".
type FieldError struct {
	Pointer string `json:"pointer"`
	Code    string `json:"code"`
	Detail  string `json:"detail"`
}

// ItemOutcome is one item of a batch that was not wholly written. Key is as the caller sent it.
type ItemOutcome struct {
	Key     string  `json:"key"`
	Outcome Outcome `json:"outcome"`
}

// Error is every failure a client gets to see. It is written by middleware's one renderer and by handlers for the items of a
// batch. Everything in it is safe to send except the cause, which only goes to the log; Redis' own text is never in it.
type Error struct {
	Code       Code
	Detail     string // one sentence for the client; empty is fine
	Fields     []FieldError
	Outcome    Outcome
	RetryAfter time.Duration // 0 = no Retry-After header
	RedisError string        // the prefix of Redis' error only, "WRONGTYPE"
	ETag       string        // precondition_failed: the current one, quoted; "" when the key is absent
	Items      []ItemOutcome // batch_incomplete
	Policies   []string      // quota_exceeded: the ids of the limits that were hit
	Allow      string        // method_not_allowed: the value of the Allow header
	cause      error
}

// NewError makes an error of a code with a detail that is safe to send.
func NewError(code Code, detail string) *Error { return &Error{Code: code, Detail: detail} }

// Invalid is 422 validation_failed with one field: the request was parsed, but this part of it means nothing.
func Invalid(pointer, detail string) *Error {
	return fieldError(CodeValidationFailed, pointer, detail)
}

// Unparsable is 400 invalid_request with one field: this part of the request could not be read.
func Unparsable(pointer, detail string) *Error {
	return fieldError(CodeInvalidRequest, pointer, detail)
}

func fieldError(code Code, pointer, detail string) *Error {
	return &Error{Code: code, Detail: detail, Fields: []FieldError{{Pointer: pointer, Code: string(code), Detail: detail}}}
}

// WithCause attaches what really happened, for the log, and returns e.
func (e *Error) WithCause(err error) *Error { e.cause = err; return e }

// withOutcome gives a 5xx that has no outcome yet the one of the operation that it ends, and returns it.
func withOutcome(err error, o Outcome) error {
	var e *Error
	if errors.As(err, &e) && e.Status() >= http.StatusInternalServerError && e.Outcome == NoOutcome {
		told := *e // the error may be shared
		told.Outcome = o
		return &told
	}
	return err
}

// NotDone is err as the error of an operation that it has kept from being sent at all: whatever became of what came before, the operation was
// not applied.
func NotDone(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Outcome == NoOutcome {
		return err
	}
	as := *e
	as.Outcome = NotApplied
	return &as
}

// Error is the text for logs; it contains the cause.
func (e *Error) Error() string {
	s := string(e.Code)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// Unwrap returns the cause, so that errors.Is sees a context's end or a driver's sentinel behind the code.
func (e *Error) Unwrap() error { return e.cause }

// Status is the HTTP status. A batch with an item of unknown outcome is 504 instead of 503, as a single write is.
func (e *Error) Status() int {
	if e.Code != CodeBatchIncomplete {
		return e.Code.Status()
	}
	for i := range e.Items {
		if e.Items[i].Outcome == Unknown {
			return http.StatusGatewayTimeout
		}
	}
	return e.Code.Status()
}

// Retryable reports whether a program may send the same request again unseen. A write that was or may have been applied may be
// repeated only when repeating it does no harm (idempotent); an incomplete batch always may: setting twice is setting once. A quota that
// does not say when never lets the request pass, because it costs more than the whole.
func (e *Error) Retryable(idempotent bool) bool {
	switch {
	case !e.Code.Retryable(), e.Code == CodeQuotaExceeded && e.RetryAfter == 0:
		return false
	case e.Code == CodeBatchIncomplete, idempotent:
		return true
	default:
		return e.Outcome == NoOutcome || e.Outcome == NotApplied
	}
}
