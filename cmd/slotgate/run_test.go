package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"testing"
)

// result is what a finished run left: its code and what it wrote.
type result struct {
	code           int
	stdout, stderr string
}

// slotgate runs the program with these variables ("NAME=value") and arguments to its end.
func slotgate(t *testing.T, vars []string, args ...string) result {
	t.Helper()
	return slotgateContext(t.Context(), vars, args...)
}

func slotgateContext(ctx context.Context, vars []string, args ...string) result {
	var stdout, stderr lockedBuffer
	code := run(ctx, args, testEnv(vars, &stdout, &stderr))
	return result{code, stdout.String(), stderr.String()}
}

func testEnv(vars []string, stdout, stderr *lockedBuffer) env {
	return env{
		Getenv: func(name string) string {
			for _, pair := range vars {
				if n, value, _ := strings.Cut(pair, "="); n == name {
					return value
				}
			}
			return ""
		},
		Environ: func() []string { return vars },
		Stdout:  stdout,
		Stderr:  stderr,
	}
}

// lockedBuffer is a buffer that a server's goroutines may write while a test reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func contains(t *testing.T, what, text string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			t.Errorf("%s lacks %q:\n%s", what, w, text)
		}
	}
}

func lacks(t *testing.T, what, text string, unwanted ...string) {
	t.Helper()
	for _, u := range unwanted {
		if strings.Contains(text, u) {
			t.Errorf("%s has %q:\n%s", what, u, text)
		}
	}
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// copyFile replaces a file as tools that renew something do.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.WriteFile(to+".new", mustRead(t, from), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(to+".new", to); err != nil {
		t.Fatal(err)
	}
}
