package handlers

import (
	"math"
	"testing"
)

func TestRanges(t *testing.T) {
	for header, want := range map[string]byteRange{
		"bytes=0-0": {0, 0}, "bytes=2-5": {2, 5}, "bytes=3-": {3, -1}, "bytes=-4": {-4, -1}, "BYTES = 1-2 ": {1, 2},
		"bytes=0-99999999999999999999": {0, math.MaxInt64}, "bytes=99999999999999999999-": {math.MaxInt64, -1},
	} {
		got, nothing, ok := parseRange(header)
		if !ok || nothing || got != want {
			t.Errorf("%q is %+v, %v, %v; want %+v", header, got, nothing, ok, want)
		}
	}
	if _, nothing, ok := parseRange("bytes=-0"); !ok || !nothing {
		t.Error("bytes=-0 asks for nothing")
	}
}

// What is not one range of bytes is no range: the answer is the whole value.
func TestOtherRangesAreIgnored(t *testing.T) {
	for _, header := range []string{
		"", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=1", "bytes=1-2,4-5", "bytes=1-2-3", "items=0-5", "bytes=5-2", "bytes=--5",
		"bytes=+1-2", "bytes=1- 2", "bytes=0x1-2", "0-5",
	} {
		if r, _, ok := parseRange(header); ok {
			t.Errorf("%q is %+v", header, r)
		}
	}
}

func TestRangesAreResolved(t *testing.T) {
	for _, row := range []struct {
		r           byteRange
		total       int64
		first, last int64
		ok          bool
	}{
		{byteRange{0, 0}, 1, 0, 0, true},
		{byteRange{2, 5}, 10, 2, 5, true},
		{byteRange{2, 50}, 10, 2, 9, true},
		{byteRange{3, -1}, 10, 3, 9, true},
		{byteRange{-4, -1}, 10, 6, 9, true},
		{byteRange{-40, -1}, 10, 0, 9, true},
		{byteRange{0, math.MaxInt64}, 10, 0, 9, true},
		{byteRange{-math.MaxInt64, -1}, 10, 0, 9, true},
		{byteRange{10, -1}, 10, 0, 0, false},
		{byteRange{10, 12}, 10, 0, 0, false},
		{byteRange{math.MaxInt64, -1}, 10, 0, 0, false},
		{byteRange{0, -1}, 0, 0, 0, false},
		{byteRange{-1, -1}, 0, 0, 0, false},
	} {
		first, last, ok := row.r.resolve(row.total)
		if ok != row.ok || ok && (first != row.first || last != row.last) {
			t.Errorf("%+v of %d is %d-%d, %v", row.r, row.total, first, last, ok)
		}
	}
	if s := contentRange(2, 5, 10); s != "bytes 2-5/10" {
		t.Error(s)
	}
	if s := unsatisfied(10); s != "bytes */10" {
		t.Error(s)
	}
}

func FuzzRange(f *testing.F) {
	for _, seed := range []string{"bytes=0-5", "bytes=-5", "bytes=5-", "bytes=-0", "bytes=1-2,3-4", "items=1-2", "bytes=5-1"} {
		f.Add(seed, int64(10))
	}
	f.Fuzz(func(t *testing.T, header string, total int64) {
		if total < 0 {
			return
		}
		r, nothing, ok := parseRange(header)
		if !ok || nothing {
			return
		}
		first, last, ok := r.resolve(total)
		if ok && (first < 0 || last < first || last >= total) {
			t.Fatalf("%q of %d is %d-%d", header, total, first, last)
		}
		if !ok && total > 0 && r.start < total {
			t.Fatalf("%q of %d gets nothing", header, total)
		}
	})
}
