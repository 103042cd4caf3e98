package main

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// The exit codes are a promise to scripts: see `slotgate --help`.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitCheck       = 3
	exitUnreachable = 4
	exitDenied      = 5
	exitInterrupted = 130
)

// usageError marks a mistake in the command's arguments.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// checkError marks a check that ran well and found problems.
type checkError struct{ error }

func (e checkError) Unwrap() error { return e.error }

// deniedError marks what somebody else has refused because of who asked.
type deniedError struct{ error }

func (e deniedError) Unwrap() error { return e.error }

// unreachableError marks a check that met nobody.
type unreachableError struct{ error }

func (e unreachableError) Unwrap() error { return e.error }

// exitCode is the one place where an error becomes a code. serve and dev end by a signal without an error; any other
// command that a signal stopped has not done what it was asked to.
func exitCode(ctx context.Context, err error) int {
	var (
		usage  usageError
		check  checkError
		denied deniedError
		dial   *net.OpError
		away   unreachableError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &check):
		return exitCheck
	case errors.As(err, &away):
		return exitUnreachable
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &denied), redis.IsAuthError(err), redis.IsPermissionError(err):
		return exitDenied
	case errors.As(err, &dial) && dial.Op == "dial", redis.IsClusterDownError(err), errors.Is(err, context.DeadlineExceeded):
		return exitUnreachable
	}
	return exitFailure
}
