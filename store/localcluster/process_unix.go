//go:build unix && !linux

package localcluster

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// childAttributes keeps the terminal's Ctrl-C from the servers. Only Linux can also make them die with this program.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// startTime tells two processes with the same number apart. It is empty if there is no such process.
func startTime(pid int) string { return ps(pid, "lstart=") }

// commandLine returns how a process was started, or "" if there is none.
func commandLine(pid int) string { return ps(pid, "command=") }

func ps(pid int, column string) string {
	out, _ := exec.Command("ps", "-ww", "-o", column, "-p", strconv.Itoa(pid)).Output()
	return strings.TrimSpace(string(out))
}

func awaitStopped(int) error { return nil }
