// Package alive keeps a panic in one piece of work from ending the process, and with it the work of every tenant.
//
// A goroutine that panics ends the process, whoever waits for it: gin's and net/http's recovery are for the goroutine of a request alone.
// So every goroutine of the gateway runs under Once or Loop, or says in this package's test why it need not. The package promises that
// the panic is logged with its stack, and never the text of a value that may have been made of a key.
package alive

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"time"
)

// Once runs work. It is false if work has panicked, which is logged: what names the work.
func Once(log *slog.Logger, what string, work func()) (ok bool) {
	defer func() {
		if v := recover(); v != nil {
			log.Error("panic in the background", "work", what, "panic", Describe(v), "stack", string(debug.Stack()))
		}
	}()
	work()
	return true
}

// pause is how long work that has panicked rests: what panics at once each time is logged once a second.
const pause = time.Second

// Loop runs work, which lasts until ctx ends, and begins it anew a second after a panic. It returns when work does.
func Loop(ctx context.Context, log *slog.Logger, what string, work func(context.Context)) {
	for !Once(log, what, func() { work(ctx) }) {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// Describe gives the text of the runtime's own errors only. Any other may have been formatted from a key or a value, which no log may
// hold; its type and the stack find the line.
func Describe(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", v)
}
