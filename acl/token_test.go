package acl_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
)

func TestTokensHaveTheirForm(t *testing.T) {
	scanner := regexp.MustCompile(acl.TokenPattern)
	ids, digits := map[string]bool{}, map[rune]bool{}
	for range 200 {
		token, k := key(t, "shop", nil)
		if len(token) != 65 || scanner.FindString("x = "+token+";") != token {
			t.Fatalf("%s is not a token", token)
		}
		if k.ID != token[3:15] || k.Last4 != token[61:] || ids[k.ID] {
			t.Fatalf("token %s has the key %+v", token, k)
		}
		ids[k.ID] = true
		for _, r := range token[16:59] {
			digits[r] = true
		}
		if sum := base62Value(token[59:]); sum != uint64(crc32.ChecksumIEEE([]byte(token[:59]))) {
			t.Fatalf("the checksum of %s is %d", token, sum)
		}
		m := hmac.New(sha256.New, acltest.Secret(t).Sub(acl.LabelKeyHash))
		m.Write([]byte(token[3:15] + token[16:59]))
		if k.Hash != hex.EncodeToString(m.Sum(nil)) {
			t.Fatalf("the hash of %s is not HMAC-SHA256", token)
		}
	}
	if len(digits) != 62 {
		t.Errorf("200 secrets use %d digits, want all 62", len(digits))
	}
}

func base62Value(s string) (v uint64) {
	for _, r := range s {
		v = v*62 + uint64(strings.IndexRune("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", r))
	}
	return v
}

// withChecksum makes a token well formed again, so that what is wrong with it lies deeper.
func withChecksum(body string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum, text := crc32.ChecksumIEEE([]byte(body)), ""
	for range 6 {
		text = string(digits[sum%62]) + text
		sum /= 62
	}
	return body + text
}

func swapCase(s string, i int) string {
	c := s[i]
	switch {
	case c >= 'a' && c <= 'z':
		c -= 'a' - 'A'
	case c >= 'A' && c <= 'Z':
		c += 'a' - 'A'
	default:
		c = '0' + '9' - c // another digit: 9 has no middle
	}
	return s[:i] + string(c) + s[i+1:]
}

func TestEveryBadTokenGetsTheSameAnswer(t *testing.T) {
	past := acltest.Start.Add(-time.Hour)
	good, k := key(t, "shop", nil)
	other, ok := key(t, "shop", nil)
	expired, ek := key(t, "shop", func(k *acl.Key) { k.ExpiresAt = &acltest.Start })
	revoked, rk := key(t, "shop", func(k *acl.Key) { k.RevokedAt = &past })
	orphan, nk := key(t, "nobody", nil)
	ofDeleted, dk := key(t, "gone", nil)
	both, bk := key(t, "asleep", func(k *acl.Key) { k.RevokedAt = &past })
	damaged, hk := key(t, "shop", func(k *acl.Key) { k.Hash = k.Hash[:62] })
	unhashed, zk := key(t, "shop", func(k *acl.Key) { k.Hash = "" })
	apps := []*acl.App{
		app("shop", nil),
		app("gone", func(a *acl.App) { a.State = acl.Deleted }),
		app("asleep", func(a *acl.App) { a.State = acl.Suspended }),
	}
	d := newDirectory(t, &fake{set: setOf("1", apps, k, ok, ek, rk, nk, dk, bk, hk, zk)}, newClock(), nil)
	if err := d.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if id, err := d.Authenticate(good); err != nil || id.Key != k {
		t.Fatalf("the good token: %v, %v", id, err)
	}

	bad := map[string]string{
		"nothing": "", "a letter": "a", "a word": "abc", "the prefix": "sg_",
		"one character less":         good[:64],
		"three characters more":      good + "123",
		"a space before":             " " + good,
		"a space after":              good + " ",
		"a line end":                 good + "\n",
		"a NUL":                      good + "\x00",
		"another prefix":             "sk" + good[2:],
		"an upper-case prefix":       "SG_" + good[3:],
		"a dash for the underscore":  good[:15] + "-" + good[16:],
		"a dash, checksum made good": withChecksum(good[:15] + "-" + good[16:59]),
		"a wrong checksum":           swapCase(good, 62),
		"not base62":                 withChecksum(good[:20] + "!" + good[21:59]),
		"not ASCII":                  withChecksum(good[:20] + "é" + good[22:59]),
		"all zeros":                  withChecksum("sg_" + strings.Repeat("0", 12) + "_" + strings.Repeat("0", 43)),
		"an unknown id":              withChecksum("sg_ABCDEFGHIJKL" + good[15:59]),
		"the secret of another key":  withChecksum(good[:16] + other[16:59]),
		"expired this moment":        expired, "revoked": revoked, "no app": orphan, "app deleted": ofDeleted,
		"revoked and suspended": both, "a damaged hash": damaged, "no hash": unhashed,
		"very long": strings.Repeat(good, 1000),
	}
	for i := 16; i < 59; i++ {
		bad[fmt.Sprintf("character %d changed", i)] = withChecksum(swapCase(good[:59], i))
	}
	for i := 3; i < 15; i++ {
		bad[fmt.Sprintf("character %d changed", i)] = withChecksum(swapCase(good[:59], i))
	}
	for name, token := range bad {
		if id, err := d.Authenticate(token); id != nil || err != acl.ErrUnauthenticated {
			t.Errorf("%s: %v, %v", name, id, err)
		}
	}
}

func TestAKeyWithBadParameters(t *testing.T) {
	past := acltest.Start.Add(-time.Second)
	for _, row := range []struct {
		app         string
		expires     *time.Time
		permissions []string
		field       string
	}{
		{"Shop!", nil, nil, "app"},
		{"shop", &past, nil, "expires_at"},
		{"shop", nil, []string{"cats:read"}, "permissions[0]"},
		{"shop", nil, []string{}, "permissions"},
	} {
		_, _, err := acl.NewKey(acltest.Secret(t), row.app, acltest.Start, row.expires, row.permissions)
		if fields := faultFields(err); len(fields) != 1 || fields[0] != row.field {
			t.Errorf("%+v: %v, want a fault of %s", row, err, row.field)
		}
	}
}

func FuzzAuthenticate(f *testing.F) {
	good, k := key(f, "shop", nil)
	f.Add("")
	f.Add("sg_")
	f.Add(good[:64])
	f.Add(good + "0")
	f.Add(withChecksum("sg_ABCDEFGHIJKL_" + strings.Repeat("z", 43)))
	f.Add(strings.Repeat("\xff", 65))
	f.Add(strings.Replace(good, "_", "/", 1))
	d := newDirectory(f, &fake{set: setOf("1", []*acl.App{app("shop", nil)}, k)}, newClock(), nil)
	if err := d.Refresh(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, token string) {
		id, err := d.Authenticate(token)
		if (err == nil) != (token == good) || (id == nil) == (err == nil) {
			t.Fatalf("%q: %v, %v", token, id, err)
		}
		if err != nil && !errors.Is(err, acl.ErrUnauthenticated) {
			t.Fatalf("%q: %v", token, err)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	good, k := key(b, "shop", nil)
	keys := []*acl.Key{k}
	for range 10_000 {
		_, other := key(b, "shop", nil)
		keys = append(keys, other)
	}
	d := acl.NewDirectory(&fake{set: setOf("1", []*acl.App{app("shop", nil)}, keys...)}, acltest.Secret(b), acl.Defaults{}, slog.New(slog.DiscardHandler), time.Now)
	if err := d.Refresh(b.Context()); err != nil {
		b.Fatal(err)
	}
	for name, token := range map[string]string{
		"good": good, "malformed": good[:64], "unknown": withChecksum("sg_ABCDEFGHIJKL" + good[15:59]),
		"wrong": withChecksum(swapCase(good[:59], 30)),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = d.Authenticate(token)
			}
		})
	}
}
