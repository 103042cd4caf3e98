package localcluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// spawner starts processes from one thread that lives until close. Linux sends the signal of Pdeathsig when the THREAD that
// made the child ends, not the process; started from ordinary goroutines the servers would die at the runtime's whim.
type spawner struct {
	work       chan func()
	quit, done chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for {
			select {
			case f := <-s.work:
				f()
			case <-s.quit:
				return
			}
		}
	}()
	return s
}

func (s *spawner) close() {
	close(s.quit)
	<-s.done
}

// process is one started server. done is closed when it has ended and been waited for.
type process struct {
	pid  int
	cmd  *exec.Cmd
	done chan struct{}
}

// start runs a server with its output in the file log.
func (s *spawner) start(log string, binary string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = childAttributes()
	started := make(chan error, 1)
	select {
	case s.work <- func() { started <- cmd.Start() }:
	case <-s.quit:
		return nil, errors.New("the cluster is closed")
	}
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", binary, err)
	}
	p := &process{pid: cmd.Process.Pid, cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how a server ends is told by its log
		close(p.done)
	}()
	return p, nil
}

// alive tells whether the process has not ended yet.
func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}
