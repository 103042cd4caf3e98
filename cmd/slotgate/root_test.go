package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

func TestExitCodes(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want int
	}{
		{"no error is ok", t.Context(), nil, 0},
		{"any error is a failure", t.Context(), errors.New("boom"), 1},
		{"a bad argument is usage", t.Context(), usageError{errors.New("boom")}, 2},
		{"a bad argument, wrapped, is usage", t.Context(), fmt.Errorf("x: %w", usageError{errors.New("boom")}), 2},
		{"found problems are 3", t.Context(), checkError{errors.New("boom")}, 3},
		{"a refused connection is 4", t.Context(), fmt.Errorf("x: %w", dial), 4},
		{"a signal is 130", canceled, fmt.Errorf("x: %w", context.Canceled), 130},
		{"a cancel that no signal caused is a failure", t.Context(), context.Canceled, 1},
		{"a failure that only met a signal is a failure", canceled, errors.New("boom"), 1},
	} {
		if got := exitCode(c.ctx, c.err); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

func TestUsageMistakes(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"serv", `unknown command "serv" for "slotgate"; did you mean serve?`},
		{"config chek", `unknown command "chek" for "slotgate config"; did you mean check?`},
		{"config zzz", `unknown command "zzz" for "slotgate config"`},
		{"version extra", `unknown command "extra"`},
		{"version --nope", "unknown flag: --nope"},
		{"version -o xml", "write table or json"},
		{"config print --set nonsense", `--set "nonsense": write path=value`},
	} {
		got := slotgate(t, nil, strings.Fields(c.args)...)
		if got.code != 2 {
			t.Errorf("slotgate %s: code %d, want 2", c.args, got.code)
		}
		contains(t, "slotgate "+c.args, got.stderr, c.want, "--help` for what it takes.")
		if got.stdout != "" {
			t.Errorf("slotgate %s writes to stdout: %s", c.args, got.stdout)
		}
	}
}

func TestHelpPutsExamplesFirst(t *testing.T) {
	var walk func(path ...string)
	walk = func(path ...string) {
		got := slotgate(t, nil, append(path, "--help")...)
		if got.code != 0 || !strings.HasPrefix(got.stdout, "Examples:\n") {
			t.Errorf("help of slotgate %v: code %d, starts %.60q", path, got.code, got.stdout)
		}
		cmd, _, err := newRootCommand(testEnv(nil, nil, nil)).Find(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, sub := range cmd.Commands() {
			walk(append(path[:len(path):len(path)], sub.Name())...)
		}
	}
	walk()
	contains(t, "the root's help", slotgate(t, nil, "--help").stdout, exitCodesHelp)
}

func TestVersion(t *testing.T) {
	contains(t, "version", slotgate(t, nil, "version").stdout, "slotgate ", "revision", "go1.")
	contains(t, "version -o json", slotgate(t, nil, "version", "-o", "json").stdout, `"version": "`, `"revision": "`, `"go": "go1.`)
}
