//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// loader is the load generator's process.
type loader struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
}

func startLoader(s *stage) (*loader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l := &loader{cmd: exec.Command(self, "load")}
	l.cmd.Stderr = os.Stderr
	// Those who send in time have threads of their own. On one core Go would let each of them wait until all answers that have come are read; with
	// more processors than there are, the kernel wakes them at once.
	l.cmd.Env = append(os.Environ(), "GOMAXPROCS=8")
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	in, err := l.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := l.cmd.Start(); err != nil {
		return nil, err
	}
	l.in, l.out = json.NewEncoder(in), json.NewDecoder(out)
	s.closers = append(s.closers, func() {
		_ = l.cmd.Process.Kill() // it holds nothing worth a farewell
		_ = l.cmd.Wait()
	})
	return l, nil
}

func (l *loader) pids() []int { return []int{l.cmd.Process.Pid} }

// do sends an order and waits for the report; when ctx ends, the generator is killed.
func (l *loader) do(ctx context.Context, o order) (report, error) {
	defer context.AfterFunc(ctx, func() { _ = l.cmd.Process.Kill() })()
	if err := l.in.Encode(o); err != nil {
		return report{}, errors.Join(context.Cause(ctx), err)
	}
	var r report
	if err := l.out.Decode(&r); err != nil {
		return report{}, errors.Join(context.Cause(ctx), fmt.Errorf("the load generator: %w", err))
	}
	if r.Failed != "" {
		return r, fmt.Errorf("%s %s: %s", o.Do, o.Row, r.Failed)
	}
	return r, nil
}

// open connects the callers of a door.
func (l *loader) open(ctx context.Context, w *workload, o options, s scenario, d *door) error {
	order := order{
		Do: "open", Row: d.name, Addrs: d.addrs, Conns: s.Conns, Requests: w.requests(d, s), Expect: w.expect(d, s),
	}
	if d.h2c {
		order.Streams = o.Streams
	}
	_, err := l.do(ctx, order)
	return err
}

func (l *loader) close(ctx context.Context, d *door) error {
	_, err := l.do(ctx, order{Do: "close", Row: d.name})
	return err
}
