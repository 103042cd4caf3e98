// Command slotgate is the REST gateway for Redis Cluster: the server, a ready development set-up and the tools for
// apps and keys. This package holds wiring, lifetime and the command line; what a request does is decided elsewhere.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
)

func main() {
	redis.SetLogger(&redisLog)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks to end in order; with the handler gone, a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], env{
		Getenv: os.Getenv, Environ: os.Environ, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}))
}
