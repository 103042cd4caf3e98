package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExportAndImport(t *testing.T) {
	vars := clusterVars(t)
	mustRun(t, vars, "app", "create", "shop", "--permission", "*", "--limit", "id=rps,limit=100,period_ms=1000")
	token := tokenForm.FindString(mustRun(t, vars, "key", "create", "shop").stdout)
	mustRun(t, vars, "app", "create", "gone")
	mustRun(t, vars, "app", "delete", "gone", "--confirm=gone")
	text := mustRun(t, vars, "export").stdout
	lacks(t, "the export", text, token)
	file := filepath.Join(t.TempDir(), "apps.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	vars = clusterVars(t) // empty again
	dry := mustRun(t, vars, "import", file, "--dry-run")
	contains(t, "import --dry-run", dry.stdout, "create_app shop", "create_key "+keyID(token)+" of shop", "delete_app gone", "4 changes would be made.")
	lacks(t, "app list", mustRun(t, vars, "app", "list").stdout, "shop")
	contains(t, "import", mustRun(t, vars, "import", file).stdout, "4 changes made.")
	contains(t, "import again", mustRun(t, vars, "import", file).stdout, "Nothing to change.")
	if again := mustRun(t, vars, "export").stdout; again != text {
		t.Errorf("it is\n%s\nand was\n%s", again, text)
	}
	g := startGateway(t, vars)
	g.waitReady(t)
	expect(t, call(t, "GET", g.api+"/v1/whoami", token, ""), 200, `"shop"`)
	contains(t, "audit", mustRun(t, vars, "audit").stdout, "delete_app")

	onFile := fileVars(t, "apps: []\n")
	got := mustRun(t, onFile, "import", file)
	if body := strings.TrimPrefix(got.stdout, "# the whole new file\n"); body != text {
		t.Errorf("for a file it is\n%s", body)
	}
	contains(t, "stderr", got.stderr, "nothing was changed", "create_app shop")

	for name, c := range map[string]struct {
		text string
		code int
		want string
	}{
		"no YAML":                {"apps: [", 2, "reading "},
		"an empty file":          {"", 2, "it is empty"},
		"a misspelt field":       {"apps: [{id: a1, namespce: a1}]", 2, "line 1: field namespce is not known here"},
		"a taken namespace":      {"apps: [{id: a1, namespace: gone}]", 3, `namespace "gone" belongs to app "gone", for ever`},
		"a cluster nobody knows": {"apps: [{id: a1, namespace: a1, cluster: mars}]", 3, `there is no cluster "mars"`},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := slotgate(t, vars, "import", file); got.code != c.code || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%s: code %d, %s", name, got.code, got.stderr)
		}
	}
	if got := slotgate(t, vars, "import", file+".none"); got.code != exitUsage {
		t.Errorf("no file: %+v", got)
	}
}
