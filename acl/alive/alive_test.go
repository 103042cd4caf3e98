package alive_test

import (
	"bytes"
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slotgate/slotgate/acl/alive"
)

func TestAPanicIsLoggedAndEndsNothing(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	if alive.Once(log, "counting", func() { panic("the key user:1") }) {
		t.Error("a panic is taken for an end")
	}
	if text := out.String(); !strings.Contains(text, "counting") || !strings.Contains(text, "alive_test.go") || strings.Contains(text, "user:1") {
		t.Errorf("logged %s", text)
	}
	if !alive.Once(log, "counting", func() {}) {
		t.Error("an end is taken for a panic")
	}
	if text := alive.Describe(func() (v any) {
		defer func() { v = recover() }()
		var m map[string]int
		m["a"] = 1
		return nil
	}()); !strings.Contains(text, "nil map") {
		t.Errorf("the runtime's text is not told: %s", text)
	}
}

func TestWorkThatPanickedBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, start := 0, time.Now()
		alive.Loop(t.Context(), slog.New(slog.DiscardHandler), "work", func(context.Context) {
			if begun++; begun < 4 {
				panic("again")
			}
		})
		if begun != 4 || time.Since(start) != 3*time.Second {
			t.Errorf("begun %d times in %v", begun, time.Since(start))
		}
		ctx, stop := context.WithCancel(t.Context())
		begun = 0
		alive.Loop(ctx, slog.New(slog.DiscardHandler), "work", func(context.Context) { begun++; stop(); panic("at the end") })
		if begun != 1 {
			t.Errorf("begun %d times after its time", begun)
		}
	})
}

// bare are the functions that start goroutines outside of Once and Loop, by file, and why a panic there ends nothing or may.
var bare = map[string]string{
	"acl/acltest":                    "tests",
	"store/localcluster":             "tests and dev",
	"store/pipe/pipe.go Start":       "run guards the driver, and what it does beside that is its own few lines",
	"store/pipe/pipe.go wake":        "as Start",
	"store/pipe/pipe.go alone":       "as Start",
	"store/batch.go run":             "lane guards each chunk, and settles its items",
	"store/batchfrom.go askSomebody": "guarded by the batch; what was not answered is asked of the primaries",
	"store/batch.go wave":            "guarded by the batch, which settles the items",
	"cmd/slotgate/servers.go run":    "the servers: net/http recovers in each request; without them there is nothing to keep alive",
	"cmd/slotgate/main.go main":      "gives the signals back",
	"cmd/slotgate/systemd.go":        "tells systemd, once, at the end",
	"cmd/slotgate/dev.go":            "a developer's own process",
	"cmd/slotgate/doctor":            "a command line tool",
	"cmd/slotgate/doctor_cmd.go":     "a command line tool",
}

// TestEveryGoroutineIsKeptFromEndingTheProcess reads the source: a new "go" statement, or what stands for one, is under Once or Loop, or in
// the list.
func TestEveryGoroutineIsKeptFromEndingTheProcess(t *testing.T) {
	const root = "../.."
	used := map[string]bool{}
	for _, folder := range []string{"acl", "store", "middleware", "handlers", "openapi", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name, _ := filepath.Rel(root, path)
			for _, place := range starts(t, path) {
				where := filepath.ToSlash(name) + " " + place
				listed := false
				for prefix := range bare {
					if strings.HasPrefix(where, prefix) {
						used[prefix], listed = true, true
					}
				}
				if !listed {
					t.Errorf("%s starts a goroutine that neither alive.Once nor alive.Loop keeps from ending the process", where)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for prefix := range bare {
		if !used[prefix] {
			t.Errorf("nothing is started in %s any more: take it off the list", prefix)
		}
	}
}

// starts names the functions of a file in which a goroutine is started that is not guarded, one for each.
func starts(t *testing.T, path string) (places []string) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				if !guarded(n.Call) {
					places = append(places, f.Name.Name)
				}
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && (s.Sel.Name == "Go" || s.Sel.Name == "AfterFunc") && !guarded(n) {
					places = append(places, f.Name.Name)
				}
			}
			return true
		})
	}
	return places
}

// guarded says whether a call of alive is among what is started.
func guarded(start ast.Node) (found bool) {
	ast.Inspect(start, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if s, ok := call.Fun.(*ast.SelectorExpr); ok {
				if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "alive" {
					found = true
				}
			}
		}
		return true
	})
	return found
}
