package acl_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/acl"
)

func TestSecretNeedsItsLength(t *testing.T) {
	for text, good := range map[string]bool{
		strings.Repeat("s", 32):                           true,
		"\n " + strings.Repeat("s", 32) + "\r\n":          true,
		strings.Repeat("s", 31):                           false,
		strings.Repeat("s", 31) + strings.Repeat("\n", 9): false,
		"": false,
	} {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := acl.LoadSecret(path)
		if (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "32") || !strings.Contains(err.Error(), path)) {
			t.Errorf("%v names neither what is right nor the file", err)
		}
		if direct, err := acl.NewSecret([]byte(strings.TrimSpace(text))); good && (err != nil || !bytes.Equal(direct.Sub("x"), s.Sub("x"))) {
			t.Errorf("%q: white space makes another secret", text)
		}
	}
	if _, err := acl.LoadSecret(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(underlying(err)) {
		t.Errorf("no file: %v", err)
	}
}

func underlying(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		if _, path := err.(*os.PathError); path {
			return err
		}
		err = u.Unwrap()
	}
}

func TestSubKeysTellNothingOfEachOther(t *testing.T) {
	root := "0123456789abcdef0123456789abcdef"
	s, err := acl.NewSecret([]byte(root))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{root: "the secret"}
	for _, label := range []string{acl.LabelKeyHash, acl.LabelCursorMAC, acl.LabelJWTEdDSA, acl.LabelJWTHS256, ""} {
		sub := s.Sub(label)
		if len(sub) != 32 || seen[string(sub)] != "" {
			t.Errorf("sub-key %q is %x, as is that of %q", label, sub, seen[string(sub)])
		}
		seen[string(sub)] = label
	}
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%+v", s), fmt.Sprintf("%#v", s), fmt.Sprintf("%s", struct{ S acl.Secret }{s})} {
		if strings.Contains(text, root[:8]) || strings.Contains(text, fmt.Sprint([]byte(root))[1:12]) {
			t.Errorf("printing shows it: %s", text)
		}
	}
}
