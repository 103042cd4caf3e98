package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asProgram is the variable that makes the test binary be slotgate itself, for what only a process can show: signals.
const asProgram = "TEST_BINARY_IS_SLOTGATE"

// process starts this binary as slotgate and waits until its stderr has ready in it.
func process(t *testing.T, vars []string, ready string, args ...string) (*exec.Cmd, *lockedBuffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stderr lockedBuffer
	cmd := exec.Command(self, args...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1"), vars...)
	cmd.Stdout, cmd.Stderr = &bytes.Buffer{}, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	eventually(t, func() bool { return strings.Contains(stderr.String(), ready) })
	return cmd, &stderr
}

func signalProcess(t *testing.T, cmd *exec.Cmd, s os.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func TestSignals(t *testing.T) {
	t.Run("SIGTERM ends serve in order", func(t *testing.T) {
		cmd, stderr := process(t, fileVars(t, "apps: []\n"), `"msg":"serving"`, "serve")
		signalProcess(t, cmd, syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, stderr)
		}
		contains(t, "the log", stderr.String(), `"msg":"draining"`, `"msg":"stopped"`)
	})
	t.Run("a second one at once", func(t *testing.T) {
		cmd, stderr := process(t, fileVars(t, "apps: []\n"), `"msg":"serving"`, "serve", "--set", "http.drain_delay_ms=3600000")
		signalProcess(t, cmd, syscall.SIGTERM)
		eventually(t, func() bool { return strings.Contains(stderr.String(), `"msg":"draining"`) })
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		// The handler of the first signal goes away a moment after it: ask until it has.
		eventually(t, func() bool {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			return len(ended) > 0
		})
		var exit *exec.ExitError
		if err := <-ended; !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
			t.Errorf("ended with %v", err)
		}
	})
	t.Run("SIGINT ends a purge with 130", func(t *testing.T) {
		vars := clusterVars(t)
		mustRun(t, vars, "app", "create", "shop")
		cmd, stderr := process(t, vars, "Waiting 1h", "app", "delete", "shop", "--confirm=shop", "--purge", "--settle=1h")
		started := time.Now()
		signalProcess(t, cmd, os.Interrupt)
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted || time.Since(started) > 10*time.Second {
			t.Errorf("ended with %v after %v\n%s", err, time.Since(started), stderr)
		}
	})
}
