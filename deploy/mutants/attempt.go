package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// kind is what became of a mutant.
type kind string

const (
	caught kind = "caught"
	missed kind = "MISSED"
	broken kind = "BROKEN" // it does not compile, or its test does not exist: nothing was shown
)

type verdict struct {
	kind kind
	took time.Duration
	said string
}

// testTimeout is for a bug that makes a test wait for ever, which is noticed too.
const testTimeout = "120s"

// sound makes sure that the tests of all mutants pass on the real code; one that fails anyway notices nothing.
func sound(ctx context.Context, list []mutant) error {
	byFolder := map[string][]string{}
	for _, m := range list {
		folder, name := m.target()
		byFolder[folder] = append(byFolder[folder], name)
	}
	for _, folder := range slices.Sorted(maps.Keys(byFolder)) {
		names := byFolder[folder]
		slices.Sort(names)
		if out, err := goTest(ctx, folder, slices.Compact(names)); err != nil {
			return fmt.Errorf("a test fails without any mutant: %w\n%s", err, out)
		}
	}
	return nil
}

// goTest runs tests of a package. arguments are for the go command.
func goTest(ctx context.Context, folder string, names []string, arguments ...string) (string, error) {
	arguments = append([]string{"test", "-vet=off", "-count=1", "-timeout=" + testTimeout}, arguments...)
	arguments = append(arguments, "-run=^("+strings.Join(names, "|")+")$", folder)
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go test starts the test, which must not outlive this program
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// test runs the mutant's test with the bug.
func (m mutant) test(ctx context.Context, root string) verdict {
	start := time.Now()
	kind, said := m.attempt(ctx, root)
	return verdict{kind, time.Since(start), said}
}

func (m mutant) attempt(ctx context.Context, root string) (kind, string) {
	work, err := os.MkdirTemp("", "mutant-*")
	if err != nil {
		return broken, err.Error()
	}
	defer func() { _ = os.RemoveAll(work) }()
	overlay, err := m.overlay(root, work)
	if err != nil {
		return broken, err.Error()
	}
	folder, name := m.target()
	out, err := goTest(ctx, folder, []string{name}, "-overlay="+overlay)
	return judge(out, err), out
}

// judge tells by what go test printed. Only a test that ran and failed has noticed.
func judge(out string, err error) kind {
	switch {
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"), strings.Contains(out, "[no tests to run]"):
		return broken
	case err == nil:
		return missed
	case strings.Contains(out, "--- FAIL: "), strings.Contains(out, "\npanic: "), strings.HasPrefix(out, "panic: "):
		return caught
	default:
		return broken
	}
}

// overlay writes the changed file and what tells the compiler to read it.
func (m mutant) overlay(root, work string) (path string, err error) {
	text, err := m.mutate(root)
	real, err2 := filepath.Abs(filepath.Join(root, m.File))
	changed := filepath.Join(work, filepath.Base(m.File))
	path = filepath.Join(work, "overlay.json")
	list, err3 := json.Marshal(map[string]any{"Replace": map[string]string{real: changed}})
	if err := cmp.Or(err, err2, err3); err != nil {
		return "", err
	}
	return path, cmp.Or(os.WriteFile(changed, text, 0o600), os.WriteFile(path, list, 0o600))
}
