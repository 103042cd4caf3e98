package store

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
)

func TestStoredLength(t *testing.T) {
	text := bytes.Repeat([]byte("compressible "), 100)
	sealed := encodeValue(text, 1)
	with := func(at int, b byte) []byte {
		c := bytes.Clone(sealed)
		c[at] = b
		return c
	}
	for name, c := range map[string]struct {
		stored   []byte
		envelope bool
	}{
		"a compressed value":             {sealed, true},
		"an escaped value":               {encodeRaw([]byte("\xffSGVx")), true},
		"a plain value":                  {text, false},
		"an unknown version":             {with(4, 2), false},
		"an unknown codec":               {with(5, 9), false},
		"a length that does not agree":   {with(13, 1), false},
		"the magic alone":                {[]byte(envelopeMagic), false},
		"a header without its last byte": {sealed[:13], false},
		"a header without a block":       {sealed[:14], false},
		"nothing":                        {nil, false},
	} {
		length, envelope := storedLength(c.stored, int64(len(c.stored)))
		if envelope != c.envelope || !envelope && length != int64(len(c.stored)) {
			t.Errorf("%s: envelope %v of length %d", name, envelope, length)
		}
		if !c.envelope {
			if data, err := decodeValue(c.stored, 1<<20); err != nil || !bytes.Equal(data, c.stored) {
				t.Errorf("%s is not returned as it is: %v", name, err)
			}
		}
	}
}

func TestDamageIsSeen(t *testing.T) {
	sealed := encodeValue(bytes.Repeat([]byte("compressible "), 100), 1)
	for at := envelopeHeaderSize + 3; at < len(sealed); at++ {
		damaged := bytes.Clone(sealed)
		damaged[at] ^= 0x10
		if _, err := decodeValue(damaged, 1<<20); err == nil || err.Code != CodeCorruptValue {
			t.Fatalf("the changed byte %d was not seen: %v", at, err)
		}
	}
}

// 19 bytes claim 4 GiB.
func TestAClaimedLengthIsNotBelieved(t *testing.T) {
	claim := encodeValue(bytes.Repeat([]byte("x"), 100), 1)[:envelopeHeaderSize]
	claim = binary.AppendUvarint(claim, math.MaxUint32)
	sealHeader(claim, codecSnappy, math.MaxUint32)
	if n := testing.AllocsPerRun(1, func() {
		if _, err := decodeValue(claim, 1<<20); err == nil || err.Code != CodeResponseTooLarge {
			t.Fatalf("got %v", err)
		}
	}); n > 10 {
		t.Errorf("%v allocations to refuse it", n)
	}
}

func TestOnlyWhatShrinksByATenthIsCompressed(t *testing.T) {
	for name, data := range map[string][]byte{"below the minimum": bytes.Repeat([]byte("x"), 99), "hardly any": snappyResistant()} {
		if got := encodeValue(data, 100); !bytes.Equal(got, data) {
			t.Errorf("%s: was stored in another form", name)
		}
	}
	if got := encodeValue(bytes.Repeat([]byte("x"), 100), 100); len(got) > 50 {
		t.Errorf("100 equal bytes are stored in %d", len(got))
	}
}

// snappyResistant is a value that Snappy shrinks, but by less than a tenth.
func snappyResistant() []byte {
	data := make([]byte, 2000)
	state := uint32(1)
	for i := range data {
		state = state*1664525 + 1013904223
		data[i] = byte(state >> 24)
	}
	copy(data[1900:], data[:100])
	return data
}

// FuzzEnvelope checks both directions: what is encoded comes back, and no stored bytes, however formed, make decoding
// panic or allocate more than the limit.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte("plain"), 1)
	f.Add(encodeValue(bytes.Repeat([]byte("a"), 1000), 1), 100)
	f.Add(encodeRaw([]byte("\xffSGVx")), 0)
	f.Add([]byte("\xffSGV\x01\x01aaaa\xff\xff\xff\xff\xff\xff\xff\xff\x0f"), 5)
	f.Add([]byte("\xffSGV\x01\x00aaaa\x00\x00\x00\x01b"), 5)
	f.Fuzz(func(t *testing.T, data []byte, compressMin int) {
		const limit = 1 << 16
		sealed := encodeValue(data, compressMin)
		if got, err := decodeValue(sealed, int64(len(data))); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%q came back as %q: %v", data, got, err)
		}
		if length, _ := storedLength(sealed[:min(len(sealed), envelopeProbeSize)], int64(len(sealed))); length != int64(len(data)) {
			t.Fatalf("the head says %d, the value has %d", length, len(data))
		}
		got, err := decodeValue(data, limit)
		if err != nil && err.Code != CodeCorruptValue && err.Code != CodeResponseTooLarge {
			t.Fatal(err)
		}
		if err == nil && len(got) > max(limit, len(data)) {
			t.Fatalf("%d bytes were decoded", len(got))
		}
		again := bytes.Clone(data)
		if hasMagic(data) && len(data) > envelopeHeaderSize {
			// Give it a true sum, so that the block itself is tried.
			binary.BigEndian.PutUint32(again[6:], envelopeSum(again))
			if _, err := decodeValue(again, limit); err != nil && err.Code != CodeCorruptValue && err.Code != CodeResponseTooLarge {
				t.Fatal(err)
			}
		}
	})
}

func BenchmarkEncodeValue(b *testing.B) {
	for name, data := range map[string][]byte{"100B": bytes.Repeat([]byte("x"), 100), "1KB-compressed": bytes.Repeat([]byte("compress "), 114)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = encodeValue(data, 512)
			}
		})
	}
}

func BenchmarkDecodeValue(b *testing.B) {
	for name, data := range map[string][]byte{"100B": bytes.Repeat([]byte("x"), 100), "1KB-compressed": encodeValue(bytes.Repeat([]byte("compress "), 114), 512)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = decodeValue(data, 1<<20)
			}
		})
	}
}
