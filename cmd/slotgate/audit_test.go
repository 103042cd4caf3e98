package main

import (
	"os"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/acl"
)

func TestAudit(t *testing.T) {
	vars := append(clusterVars(t), "SLOTGATE_ACTOR=alice\x07 of CI")
	mustRun(t, vars, "app", "create", "shop", "--permission", "*")
	token := tokenForm.FindString(mustRun(t, vars, "key", "create", "shop").stdout)
	mustRun(t, vars, "app", "set", "shop", "--name", "The shop")
	slotgate(t, vars, "app", "create", "shop") // refused
	mustRun(t, vars[:len(vars)-1], "app", "suspend", "shop")

	got := mustRun(t, vars, "audit")
	contains(t, "audit", got.stdout, "TIME", "alice? of CI", "create_app", "app:shop", "key:"+keyID(token), `name: "shop" → "The shop"`, `state: "active" → "suspended"`)
	lacks(t, "audit", got.stdout+got.stderr, token, "hash", "SLOTGATE_ACTOR")
	entries := decode[[]acl.AuditEntry](t, mustRun(t, vars, "audit", "-n", "2", "-o", "json").stdout)
	if len(entries) != 2 || entries[0].By != "alice? of CI" || entries[1].By == "" || entries[1].By == entries[0].By {
		t.Errorf("%+v", entries)
	}
	for _, n := range []string{"0", "-1", "10001", "x"} {
		if got := slotgate(t, vars, "audit", "-n", n); got.code != exitUsage {
			t.Errorf("-n %s: code %d, %s", n, got.code, got.stderr)
		}
	}
	if got := slotgate(t, vars, "config", "check"); got.code != 0 {
		t.Errorf("SLOTGATE_ACTOR is taken for a setting: %s", got.stderr)
	}
}

func TestAuditOfAFile(t *testing.T) {
	vars := fileVars(t, "apps:\n- id: shop\n  namespace: shop\n")
	file := strings.TrimPrefix(vars[1], "SLOTGATE_CONTROL_FILE=")
	if got := mustRun(t, vars, "audit", "-o", "json"); strings.TrimSpace(got.stdout) != "[]" {
		t.Errorf("before any change: %s", got.stdout)
	}
	mustRun(t, vars, "app", "suspend", "shop")
	contains(t, "audit", mustRun(t, vars, "audit").stdout, "update_app (prepared)", `state: "active" → "suspended"`)

	if err := os.Remove(file + ".audit.jsonl"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file+".audit.jsonl", 0o700); err != nil {
		t.Fatal(err)
	}
	got := slotgate(t, vars, "key", "create", "shop")
	if got.code != exitFailure || got.stdout != "" || tokenForm.MatchString(got.stderr) {
		t.Errorf("a key without an audit: %+v", got)
	}
	contains(t, "stderr", got.stderr, "the audit cannot be written, so nothing is changed")
}
