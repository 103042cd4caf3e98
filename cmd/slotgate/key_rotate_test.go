package main

import (
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
)

type listedKey struct {
	acl.Key
	State string `json:"state"`
}

func TestKeyRotate(t *testing.T) {
	vars := clusterVars(t)
	mustRun(t, vars, "app", "create", "shop", "--permission", "*")
	first := tokenForm.FindString(mustRun(t, vars, "key", "create", "shop", "--permission", "strings:read").stdout)

	got := mustRun(t, vars, "key", "rotate", first) // somebody in a hurry pastes the whole key
	second := tokenForm.FindString(got.stdout)
	contains(t, "key rotate", got.stdout, "The old key "+keyID(first)+" opens until ", "the only time it is shown")
	keys := decode[[]listedKey](t, mustRun(t, vars, "key", "list", "shop", "-o", "json").stdout)
	byID := map[string]listedKey{}
	for _, k := range keys {
		byID[k.ID] = k
	}
	was, is := byID[keyID(first)], byID[keyID(second)]
	if left := time.Until(*was.ExpiresAt); left > 24*time.Hour || left < 23*time.Hour || was.State != keyActive || was.ReplacedBy != is.ID {
		t.Errorf("the old key: %+v", was)
	}
	if len(is.Permissions) != 1 || is.Permissions[0] != "strings:read" || is.ExpiresAt != nil {
		t.Errorf("the new key: %+v", is)
	}
	contains(t, "key list --expiring", mustRun(t, vars, "key", "list", "--expiring", "7d").stdout, keyID(first))
	lacks(t, "key list --expiring", mustRun(t, vars, "key", "list", "--expiring", "7d").stdout, keyID(second))
	lacks(t, "key list --expiring", mustRun(t, vars, "key", "list", "--expiring", "1h").stdout, keyID(first))

	r := decode[struct {
		Token    string
		Key, Old listedKey
	}](t, mustRun(t, vars, "key", "rotate", keyID(second), "--overlap", "0", "-o", "json").stdout)
	if r.Old.State != keyRevoked || r.Key.State != keyActive || !tokenForm.MatchString(r.Token) {
		t.Errorf("%+v", r)
	}
	for args, want := range map[string]string{
		"key rotate":                                       "accepts 1 arg(s)",
		"key rotate " + keyID(first):                       "rotate " + keyID(second) + ", which replaced it",
		"key rotate " + r.Key.ID + " --overlap 31d":        "overlap: 744h0m0s must be 0",
		"key rotate " + r.Key.ID + " --overlap -1h":        "overlap: -1h0m0s must be 0",
		"key rotate " + r.Key.ID + " --overlap soon":       "write a time such as 1h, 24h or 7d, or 0",
		"key rotate " + r.Key.ID + " --expires 2001-01-01": "write a time such as",
		"key list --expiring x":                            "write a time such as 12h or 7d",
		"key list --expiring -1h":                          "write a time such as 12h or 7d",
	} {
		if got := slotgate(t, vars, strings.Fields(args)...); got.code != exitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("slotgate %s: code %d, %s", args, got.code, got.stderr)
		}
	}
	if got := slotgate(t, vars, "key", "rotate", "0123456789ab"); got.code != exitFailure {
		t.Errorf("an unknown key: %+v", got)
	}
}

func TestKeyRotateOnAFile(t *testing.T) {
	vars := fileVars(t, "apps:\n- id: shop\n  namespace: shop\nkeys:\n- id: 4fTq0aXw9LmZ\n  app: shop\n  hash: "+strings.Repeat("a", 64)+"\n")
	got := mustRun(t, vars, "key", "rotate", "4fTq0aXw9LmZ")
	contains(t, "stdout", got.stdout, "add the first entry and replace 4fTq0aXw9LmZ by the second", "replaced_by: ")
	lacks(t, "stdout", got.stdout, "sg_")
	contains(t, "stderr", got.stderr, "nothing was changed", "sg_", "The old key 4fTq0aXw9LmZ opens until")
}
