package tokens_test

import (
	"runtime"
	"testing"

	"github.com/slotgate/slotgate/acl/tokens"
)

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// A token that was seen before is to cost about as much as an app key, and nothing on the heap.
func BenchmarkAuthenticate(b *testing.B) {
	w := newWorld(b)
	made := w.issue(b, "strings:read").Token
	w.opens(b, made)
	for name, token := range map[string]string{"key": w.key, "token": made} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.verifier.Authenticate(token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("key without tokens", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := w.directory.Authenticate(w.key); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What a token costs the first time, and what a bad one costs every time.
func BenchmarkVerify(b *testing.B) {
	for _, algorithm := range []string{tokens.EdDSA, tokens.HS256} {
		b.Run(algorithm, func(b *testing.B) {
			w := newWorldWith(b, algorithm, nil)
			made := w.issue(b).Token
			last := byte('A')
			if made[len(made)-20] == last {
				last = 'B'
			}
			bad := made[:len(made)-20] + string(last) + made[len(made)-19:]
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.verifier.Authenticate(bad); err == nil {
					b.Fatal("let in")
				}
			}
		})
	}
}

func BenchmarkIssue(b *testing.B) {
	w := newWorld(b)
	id := w.identity(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.issuer.Issue(id, tokens.DefaultTTL, nil); err != nil {
			b.Fatal(err)
		}
	}
}
