package store

import (
	"fmt"
	"strconv"
	"time"

	"github.com/slotgate/slotgate/acl"
)

// Expiry says what a write does to the lifetime of a key. The zero value sets none; the app's default then applies.
type Expiry struct {
	Mode   ExpiryMode
	Millis int64 // ExpireIn: milliseconds from now, 1 or more; ExpireAt: unix milliseconds
}

// ExpiryMode is the form of an Expiry.
type ExpiryMode uint8

// The forms.
const (
	NoExpiry   ExpiryMode = iota
	ExpireIn              // after a duration
	ExpireAt              // at a point in time
	KeepExpiry            // as the key had it; a new key gets the app's default
)

// check holds an expiry against the app's maximum. Errors: ttl_too_long, ttl_required. A kept one is checked where the
// key is, by the script.
func (e Expiry) check(app *acl.App, now time.Time) *Error {
	limit := app.MaxTTLMS
	if limit == 0 {
		return nil
	}
	var ms int64
	switch e.Mode {
	case KeepExpiry:
		return nil
	case ExpireIn:
		ms = e.Millis
	case ExpireAt:
		ms = e.Millis - now.UnixMilli()
	case NoExpiry:
		if app.DefaultTTLMS > 0 {
			return nil
		}
		return ttlProblem(statusTTLRequired, app)
	}
	if ms > limit {
		return ttlProblem(statusTTLTooLong, app)
	}
	return nil
}

// words are those of SET and GETEX for the expiry; the app's default stands in for none.
func (e Expiry) words(app *acl.App) []string {
	switch {
	case e.Mode == ExpireIn:
		return []string{"PX", strconv.FormatInt(e.Millis, 10)}
	case e.Mode == ExpireAt:
		return []string{"PXAT", strconv.FormatInt(e.Millis, 10)}
	case e.Mode == KeepExpiry:
		return []string{"KEEPTTL"}
	case app.DefaultTTLMS > 0:
		return []string{"PX", strconv.FormatInt(app.DefaultTTLMS, 10)}
	}
	return nil
}

// script are the mode and milliseconds as the scripts take them.
func (e Expiry) script() (mode, ms string) {
	modes := [...]string{NoExpiry: "none", ExpireIn: "px", ExpireAt: "pxat", KeepExpiry: "keep"}
	return modes[e.Mode], strconv.FormatInt(e.Millis, 10)
}

// remaining is the lifetime in milliseconds that a write with e gives a new key; 0 = none or not known here.
func (e Expiry) remaining(app *acl.App, now time.Time) int64 {
	switch e.Mode {
	case ExpireIn:
		return e.Millis
	case ExpireAt:
		return max(e.Millis-now.UnixMilli(), 1)
	case NoExpiry:
		return app.DefaultTTLMS
	}
	return 0
}

// hasTTLPolicy says whether keeping a lifetime needs the script.
func hasTTLPolicy(app *acl.App) bool { return app.DefaultTTLMS > 0 || app.MaxTTLMS > 0 }

// ttlProblem is the error for a script status, nil for the others.
func ttlProblem(status int64, app *acl.App) *Error {
	switch status {
	case statusTTLRequired:
		return fieldError(CodeTTLRequired, "ttl_ms", fmt.Sprintf(
			"keys of this app must expire: give ttl_ms or expires_at, at most %d ms from now", app.MaxTTLMS))
	case statusTTLTooLong:
		return fieldError(CodeTTLTooLong, "ttl_ms", fmt.Sprintf(
			"keys of this app may live for %d ms at most", app.MaxTTLMS))
	}
	return nil
}
