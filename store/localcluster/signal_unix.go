//go:build unix

package localcluster

import (
	"os"
	"syscall"
)

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

func pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(p.Pid)
}

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// ownedByMe tells whether a file belongs to this user.
func ownedByMe(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Getuid()
}
