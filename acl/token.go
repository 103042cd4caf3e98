package acl

import (
	"errors"
	"time"
)

// NewKey makes a key for the app and the token that opens it. The token is in nobody's hands but the caller's: show it once.
func NewKey(secret Secret, app string, now time.Time, expires *time.Time, permissions []string) (token string, key *Key, err error) {
	return "", nil, errors.New("not written yet")
}
