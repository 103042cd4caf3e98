//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// compare starts everything, measures one operation after the other and prints what came out.
func compare(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	// The kernel ends a child when the thread that started it ends; the main thread lives as long as bench.
	runtime.LockOSThread()
	s, err := openStage(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	doors, err := s.doors(ctx, o, stderr)
	if err != nil {
		return err
	}
	w := newWorkload(o)
	if err := seedAll(ctx, w, doors); err != nil {
		return err
	}
	load, err := startLoader(s)
	if err != nil {
		return err
	}
	res := newResults(o)
	for _, op := range o.Ops {
		rows, err := measure(ctx, w, load, op, doors, stderr)
		if err != nil {
			return err
		}
		res.Rows = append(res.Rows, rows...)
	}
	res.summarize()
	res.print(stdout)
	if o.Save != "" {
		if err := res.save(o.Save); err != nil {
			return err
		}
	}
	if o.Readme != "" {
		return res.writeReadme(o.Readme)
	}
	return res.invalid()
}

// doors starts the servers and returns the ways in, webdis first.
func (s *stage) doors(ctx context.Context, o options, stderr io.Writer) ([]*door, error) {
	single := s.single.pids
	wanted := func(name string) bool { return name == baseDoor || strings.Contains(name, o.Only) }
	var doors []*door
	add := func(d *door, p *process, backend func() []int) {
		d.server, d.backend = p.pids, backend
		if wanted(d.name) {
			doors = append(doors, d)
		}
	}
	p, addr, err := s.startWebdis(ctx)
	if err != nil {
		return nil, err
	}
	add(webdisDoor(addr), p, single)
	if p, addr, err = s.startNginx(ctx); err != nil {
		return nil, err
	}
	add(nginxDoor(addr), p, single)
	if p, addr, err = s.startHello(ctx, o); err != nil {
		return nil, err
	}
	add(helloDoor(addr), p, func() []int { return nil })
	if len(o.Gateways) == 0 {
		fmt.Fprintln(stderr, "no -gateway-bin: the gateway is not measured")
		return doors, nil
	}
	if err := s.startCluster(ctx); err != nil {
		return nil, err
	}
	for i, binary := range o.Gateways {
		name := gatewayName(i, len(o.Gateways))
		g, err := s.startGateway(ctx, name, binary)
		if err != nil {
			return nil, err
		}
		add(gatewayJSON(name, g.addr, g.token), g.process, s.clusterPIDs)
		add(gatewayBytes(name, g.addr, g.token), g.process, s.clusterPIDs)
	}
	return doors, nil
}

// gatewayName is "slotgate", or "slotgate-A", "slotgate-B"… in the order of the -gateway-bin flags.
func gatewayName(i, n int) string {
	if n == 1 {
		return "slotgate"
	}
	return "slotgate-" + string(rune('A'+i))
}

// firstBuild is the name of the first build's row that a build's row is compared with; "" for other rows.
func firstBuild(row string) string {
	build, door, ok := strings.Cut(row, " ")
	if !ok || !strings.HasPrefix(build, "slotgate-") {
		return ""
	}
	return gatewayName(0, 2) + " " + door
}

// seedAll writes the keys once to each Redis: doors that share one share the values too, gateways share an app.
func seedAll(ctx context.Context, w *workload, doors []*door) error {
	single, cluster := false, false
	for _, d := range doors {
		seeded := &cluster
		switch {
		case d.value == nil:
			continue
		case d.name == baseDoor || strings.HasPrefix(d.name, "nginx"):
			seeded = &single
		}
		if *seeded {
			continue
		}
		if err := w.seed(ctx, d); err != nil {
			return err
		}
		*seeded = true
	}
	return nil
}

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

// measure runs one operation on all doors that offer it, in rounds of which each visits the doors in another order.
func measure(ctx context.Context, w *workload, l *loader, op string, all []*door, stderr io.Writer) ([]*rowResult, error) {
	var doors []*door
	var rows []*rowResult
	for _, d := range all {
		if !d.offers(op) {
			continue
		}
		if err := open(ctx, w, l, op, d); err != nil {
			return nil, err
		}
		doors = append(doors, d)
		rows = append(rows, &rowResult{Op: op, Name: d.name})
	}
	shuffle := rand.New(rand.NewPCG(w.Seed, 4))
	for round := range w.Rounds {
		fmt.Fprintf(stderr, "%s: round %d of %d\n", op, round+1, w.Rounds)
		for _, i := range shuffle.Perm(len(doors)) {
			one, err := measureRound(ctx, w, l, doors[i])
			if err != nil {
				return nil, err
			}
			rows[i].Rounds = append(rows[i].Rounds, one)
		}
	}
	for _, d := range doors {
		if _, err := l.do(ctx, order{Do: "close", Row: d.name}); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// open checks the door's answers, connects the callers and warms the door up.
func open(ctx context.Context, w *workload, l *loader, op string, d *door) error {
	if err := w.verify(ctx, d, op); err != nil {
		return err
	}
	conns := w.Conns
	if op == opMGet || op == opMSet {
		conns = w.BatchConns
	}
	o := order{Do: "open", Row: d.name, Addr: d.addr, Conns: conns, Requests: w.requests(d, op), Expect: w.expect(d, op)}
	if _, err := l.do(ctx, o); err != nil {
		return err
	}
	if w.Warm == 0 {
		return nil
	}
	_, err := l.do(ctx, order{Do: "run", Row: d.name, Duration: w.Warm})
	return err
}

func measureRound(ctx context.Context, w *workload, l *loader, d *door) (roundResult, error) {
	groups := [][]int{d.server(), d.backend(), {l.cmd.Process.Pid}}
	before, err := cpuTimes(groups)
	if err != nil {
		return roundResult{}, err
	}
	r, err := l.do(ctx, order{Do: "run", Row: d.name, Duration: w.Round})
	if err != nil {
		return roundResult{}, err
	}
	after, err := cpuTimes(groups)
	if err != nil {
		return roundResult{}, err
	}
	return newRound(r, before, after), nil
}

func cpuTimes(groups [][]int) ([]time.Duration, error) {
	times := make([]time.Duration, len(groups))
	for i, pids := range groups {
		var err error
		if times[i], err = cpuTime(pids); err != nil {
			return nil, err
		}
	}
	return times, nil
}
