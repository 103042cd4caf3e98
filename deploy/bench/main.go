//go:build linux

// Command bench measures the gateway beside webdis, nginx+Lua and a bare Gin hello, in one alternating run on this machine.
//
// It promises: loopback only; bounded in time; every answer checked before anything is measured; a run with a failed request is
// marked invalid; everything it starts is stopped by pid, also on Ctrl-C. It refuses to compare figures of different runs: what
// counts is the median of per-round ratios to webdis, because two runs on shared cores differ by 15 %.
//
// One binary plays four parts: "bench" starts the servers and measures, "bench load" is the load generator (a process of its own, so
// that its work is never counted as a server's), "bench hello" is the bare Gin server, "bench ladder" a naive one on a cluster. Linux
// only: CPU times come from /proc.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // "bench | head" must still stop its servers
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		switch {
		case errors.Is(err, flag.ErrHelp):
			return
		case ctx.Err() != nil:
			fmt.Fprintln(os.Stderr, "bench: interrupted; what it had started is stopped")
			os.Exit(130)
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "load":
			return serveLoad(os.Stdin, stdout)
		case "hello":
			return serveHello(ctx, args[1:])
		case "ladder":
			return serveLadder(ctx, args[1:])
		case "overload":
			return runOverload(ctx, args[1:], stdout, stderr)
		}
	}
	o, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.longest(), errors.New("the run took far longer than its rounds; stopped"))
	defer cancel()
	raiseFileLimit()
	// The kernel ends a child when the thread that started it ends; the main thread lives as long as bench.
	runtime.LockOSThread()
	s, err := openStage()
	if err != nil {
		return err
	}
	defer s.close()
	res, err := s.measureAll(ctx, o, stdout, stderr)
	if err != nil {
		return err
	}
	return res.publish(o)
}
