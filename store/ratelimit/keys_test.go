package ratelimit

import (
	"strings"
	"testing"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/slot"
)

func TestKeys(t *testing.T) {
	id := &acl.Identity{App: &acl.App{Namespace: "shop"}}
	for _, c := range []struct{ subject, own, apart string }{
		{"user-42", "slotgate:r:{shop/api}:s:user-42", "slotgate:r:{shop/api|user-42}:s"},
		{"user:42", "slotgate:r:{shop/api}:s:user%3A42", "slotgate:r:{shop/api|user%3A42}:s"},
		{"}x{y|\x00", "slotgate:r:{shop/api}:s:%7Dx%7By%7C%00", "slotgate:r:{shop/api|%7Dx%7By%7C%00}:s"},
		{strings.Repeat("a", 65), "slotgate:r:{shop/api}:s:%%635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0",
			"slotgate:r:{shop/api|%%635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0}:s"},
	} {
		k, p := keysOf(id, "api", c.subject, Atomic), keysOf(id, "api", c.subject, Partitioned)
		if k.subject != c.own || p.subject != c.apart || k.total != "slotgate:r:{shop/api}:t" || p.total != k.total {
			t.Errorf("%q: %+v and %+v", c.subject, k, p)
		}
	}
}

// FuzzSubject: whatever a subject is, its keys stay in the slot that the gateway has chosen, and no other subject has them.
func FuzzSubject(f *testing.F) {
	for _, s := range []string{"u", "{}:%", "a}b{c", "%%", "%7D", strings.Repeat("{", 256), "\x00\xff"} {
		f.Add(s, "u")
	}
	id := &acl.Identity{App: &acl.App{Namespace: "ns"}}
	f.Fuzz(func(t *testing.T, a, b string) {
		k := keysOf(id, "limit", a, Atomic)
		if tag := slot.Tag(k.subject); tag != "ns/limit" {
			t.Errorf("%q lies at the tag %q", a, tag)
		}
		p := keysOf(id, "limit", a, Partitioned)
		for _, key := range []string{k.subject, k.total, p.subject} {
			if r := recordKey(key, b); slot.Of(r) != slot.Of(key) {
				t.Errorf("the record %q is not where %q is", r, key)
			}
			if strings.ContainsAny(key, " \x00\r\n") || len(key) > 200 {
				t.Errorf("the key %q", key)
			}
		}
		if a != b && (encode(a) == encode(b) || p.subject == keysOf(id, "limit", b, Partitioned).subject) {
			t.Errorf("%q and %q are one", a, b)
		}
	})
}
