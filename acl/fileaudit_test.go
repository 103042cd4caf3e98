package acl_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
)

func TestALineOfTheAuditThatWasCutOffHidesNoOther(t *testing.T) {
	path := tempFile(t, fmt.Sprintf(oneApp, "shop", "shop"))
	admin := acltest.Admin(t, acl.NewFile(path, 0))
	if err := os.WriteFile(path+".audit.jsonl", []byte(`{"at":"2026-0`), 0o600); err != nil { // and its end with it
		t.Fatal(err)
	}
	if _, err := admin.SuspendApp(t.Context(), "shop"); !errors.Is(err, acl.ErrReadOnly) {
		t.Fatal(err)
	}
	if entries, err := admin.Audit(t.Context(), 10); err != nil || len(entries) != 1 || entries[0].Target != "app:shop" {
		t.Errorf("%+v, %v", entries, err)
	}
}

func TestTheAuditOfAFile(t *testing.T) {
	path := tempFile(t, fmt.Sprintf(oneApp, "shop", "shop"))
	admin := acltest.Admin(t, acl.NewFile(path, 0))
	if entries, err := admin.Audit(t.Context(), 10); err != nil || len(entries) != 0 {
		t.Errorf("before any change: %v, %v", entries, err)
	}
	if _, err := admin.SuspendApp(t.Context(), "shop"); !errors.Is(err, acl.ErrReadOnly) {
		t.Fatal(err)
	}
	audit := path + ".audit.jsonl"
	info, err := os.Stat(audit)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the audit is %v, %v", info, err)
	}
	file, err := os.OpenFile(audit, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(file, "{\"at\":\"2026-0\n") // a line that a full disk cut off
	file.Close()
	if _, err := admin.SuspendApp(t.Context(), "shop"); !errors.Is(err, acl.ErrReadOnly) {
		t.Fatal(err)
	}
	entries, err := admin.Audit(t.Context(), 10)
	if err != nil || len(entries) != 2 || !entries[1].Prepared || entries[1].Target != "app:shop" {
		t.Errorf("%+v, %v", entries, err)
	}

	if err := errors.Join(os.Remove(audit), os.Mkdir(audit, 0o700)); err != nil {
		t.Fatal(err)
	}
	_, err = admin.SuspendApp(t.Context(), "shop")
	if err == nil || errors.Is(err, acl.ErrReadOnly) || !strings.Contains(err.Error(), "the audit cannot be written, so nothing is changed") {
		t.Errorf("without an audit: %v", err)
	}
	if _, _, err := admin.CreateKey(t.Context(), "shop", acl.KeyOptions{}); err == nil || errors.Is(err, acl.ErrReadOnly) {
		t.Errorf("a key without an audit: %v", err)
	}
	if _, err := admin.Audit(t.Context(), 1); err == nil {
		t.Error("an audit that cannot be read is an empty one")
	}
}
