package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The list must not grow old unnoticed: each line to be changed is there once, and each test exists.
func TestTheListFitsTheCode(t *testing.T) {
	list, err := load("deploy/mutants/mutants.yaml", "../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 25 {
		t.Errorf("only %d mutants", len(list))
	}
	for _, m := range list {
		folder, name := m.target()
		if !declared(t, filepath.Join("../..", folder), name) {
			t.Errorf("mutant %q: %s has no test %s", m.Name, folder, name)
		}
	}
}

func declared(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ = strings.Cut(name, "/")
	pattern := regexp.MustCompile(`(?m)^func ` + name + `\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if pattern.Match(text) {
			return true
		}
	}
	return false
}

func TestBadLists(t *testing.T) {
	good := "- {name: n, file: code.go, old: return a, new: return b, test: ./p TestX, why: w}\n"
	for name, c := range map[string]struct{ list, fault string }{
		"a line that is not there":     {strings.ReplaceAll(good, "return a", "return c"), "has 0 lines"},
		"a line that is there twice":   {strings.ReplaceAll(good, "return a", "return twice"), "has 2 lines"},
		"a file that is not there":     {strings.ReplaceAll(good, "code.go", "other.go"), "other.go"},
		"a field that does not exist":  {strings.ReplaceAll(good, "why", "reason"), "reason"},
		"a field that is missing":      {strings.ReplaceAll(good, ", why: w", ""), "every field"},
		"two with one name":            {good + good, "two mutants"},
		"a test that is not a test":    {strings.ReplaceAll(good, "TestX", "BenchmarkX"), "not of the form"},
		"a package outside the module": {strings.ReplaceAll(good, "./p", "../p"), "not of the form"},
		"no list":                      {"", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "list.yaml"), c.list)
			write(t, filepath.Join(root, "code.go"), "\treturn a\n\treturn twice\n\t\treturn twice\n")
			if _, err := load("list.yaml", root); err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%v, want %q", err, c.fault)
			}
		})
	}
}

func TestOnlyATestThatRanAndFailedHasNoticed(t *testing.T) {
	failed := errors.New("exit status 1")
	for name, c := range map[string]struct {
		out  string
		err  error
		want kind
	}{
		"the test passes":                 {"ok  \tp\t0.1s\n", nil, missed},
		"the test fails":                  {"--- FAIL: TestX (0.00s)\nFAIL\tp\t0.1s\n", failed, caught},
		"the test panics":                 {"panic: boom\n\nFAIL\tp\t0.1s\n", failed, caught},
		"the test never ends":             {"x\npanic: test timed out after 2m0s\n", failed, caught},
		"it does not compile":             {"./x.go:1: undefined\nFAIL\tp [build failed]\n", failed, broken},
		"it cannot be set up":             {"FAIL\tp [setup failed]\n", failed, broken},
		"there is no such test":           {"ok  \tp\t0.1s [no tests to run]\n", nil, broken},
		"something else has gone wrong":   {"go: no space left\n", failed, broken},
		"a cluster that could not be had": {"closing the shared cluster: x\nFAIL\tp\t0.1s\n", failed, broken},
	} {
		if got := judge(c.out, c.err); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
