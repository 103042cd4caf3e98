//go:build !unix

package localcluster

import (
	"errors"
	"os"
	"syscall"
)

// Redis has no server for these systems; the package only has to compile for the embedded cluster.

func childAttributes() *syscall.SysProcAttr { return nil }

// startTime cannot tell two processes with the same number apart here, only whether there is one.
func startTime(pid int) string {
	p, err := os.FindProcess(pid)
	if err != nil {
		return ""
	}
	_ = p.Release()
	return "running"
}

func commandLine(int) string { return "" }

func terminate(p *os.Process) error { return p.Kill() }

func pause(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return nil }

func ownedByMe(os.FileInfo) bool { return true }
