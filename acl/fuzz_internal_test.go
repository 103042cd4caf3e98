package acl

import (
	"bytes"
	"strings"
	"testing"
)

func FuzzSecrets(f *testing.F) {
	one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
	for _, seed := range []string{
		"", one, one + "\n", one + "\r\n" + two, "- " + one, "- '" + one + "'\n- \"" + two + "\"\n", "- " + one + "\n- " + one, "- short\n- " + one,
		"- |\n  " + one + "\n- {a: " + one + "}", "- &a " + one + "\n- *a\n", "- [" + one + "]", "- !!binary " + one, "-" + one, "- " + one + "\n---\n- " + two,
		"- #00", "-\n- " + one, "- # later\n- " + one, "- a\n- b\n- c\n- d", "- \x00" + one, "- ",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSecrets(data)
		if err != nil {
			for line := range strings.Lines(string(data)) {
				if line = strings.TrimSpace(line); len(line) >= 20 && strings.Contains(err.Error(), line) {
					t.Fatalf("%v tells what is in the file", err)
				}
			}
			return
		}
		all := append([]Secret{s}, s.Others()...)
		if len(all) > maxSecrets {
			t.Fatalf("%d secrets", len(all))
		}
		for i, s := range all {
			if len(s.root) < MinSecretBytes {
				t.Fatalf("a secret of %d bytes", len(s.root))
			}
			for _, before := range all[:i] {
				if bytes.Equal(before.root, s.root) {
					t.Fatal("a secret is there twice")
				}
			}
		}
	})
}

// What was read can be written, and reads as the same.
func FuzzParseExport(f *testing.F) {
	hash := strings.Repeat("a", 64)
	for _, seed := range []string{
		"", "apps: []", "apps: []\n---\napps: []", "apps: [{id: shop, namespace: shop}]", "apps: &a [{id: a, namespace: a, name: *a}]",
		"clusters: [{name: eu, addrs: ['10.0.0.1:6379'], tls: {enabled: true, ca_file: /a/ca.pem, server_name: redis.example}}]\napps: []",
		"apps: [{id: shop, namespace: shop, cluster: eu, layout: together, permissions: ['*'], max_ttl_ms: 1000, created_at: 2026-01-01T00:00:00Z}]",
		"apps: [{id: shop, namespace: shop, limits: [{id: rps, per: app, of: requests, limit: 5000, period_ms: 1000, burst: 100}], name: \"\\x01\"}]",
		"apps: [{id: shop, namespace: shop}]\nkeys: [{id: 4fTq0aXw9LmZ, app: shop, hash: " + hash + ", revoked_at: 2026-01-01T00:00:00+02:00}]",
		"apps: [{id: shop, namespace: shop, permissions: ['*']}]\nkeys: [{id: 4fTq0aXw9LmZ, app: shop, hash: " + hash + ", permissions: ['strings:read']}]",
		"apps: {a: 1}", "apps: [1]", "apps: null", "apps: [{id: 1e999}]", "<<: {apps: []}", "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := ParseExport(bytes.NewReader(data))
		if err != nil {
			return
		}
		var first, second bytes.Buffer
		if err := Export(&first, set); err != nil {
			t.Fatal(err)
		}
		again, err := ParseExport(bytes.NewReader(first.Bytes()))
		if err != nil {
			t.Fatalf("the export of what was read: %v\n%s", err, first.String())
		}
		if err := Export(&second, again); err != nil {
			t.Fatal(err)
		}
		if first.String() != second.String() {
			t.Fatalf("exported\n%s\nand then\n%s", first.String(), second.String())
		}
	})
}
