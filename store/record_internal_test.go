package store

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/slot"
)

func TestRecordsAreReadAsTheyAreWritten(t *testing.T) {
	for parts, want := range map[string]scriptReply{
		":1\n":                        {int64(1)},
		":-9223372036854775808\n":     {int64(-1 << 63)},
		"$0\n\n":                      {""},
		"$3\na\nb\n":                  {"a\nb"},
		":1\n:0\n_\n":                 {int64(1), int64(0), nil},
		":1\n$16\n9007199254740995\n": {int64(1), "9007199254740995"},
		"$17\n9007199254740995\n":     nil,
		":1\n$5\nhello\n:2\n":         {int64(1), "hello", int64(2)},
		"":                            nil,
		"\n":                          nil,
		":\n":                         nil,
		":1":                          nil,
		":9223372036854775808\n":      nil,
		"$-1\n\n":                     nil,
		"$1\n\n":                      nil,
		"$2\nabc\n":                   nil,
		"_x\n":                        nil,
		"x\n":                         nil,
		":1\ndamage":                  nil,
	} {
		got, err := parseRecord([]byte(parts))
		if (err == nil) != (want != nil) || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %q, %v; want %q", parts, got, err, want)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	for _, seed := range []string{":1\n", "$3\nabc\n", "_\n", "$9999999999\n\n", ":1\n:2\n$0\n\n_\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, parts string) {
		reply, err := parseRecord([]byte(parts))
		if err != nil {
			return
		}
		written := ""
		for _, part := range reply {
			switch v := part.(type) {
			case int64:
				written = keptInteger(written, v)
			case string:
				if len(v) > maxKept {
					return
				}
				if written, err = keptValue(written, &held{stored: []byte(v)}); err != nil {
					t.Fatal(err)
				}
			default:
				written, _ = keptValue(written, nil)
			}
		}
		again, err := parseRecord([]byte(written))
		if err != nil || !reflect.DeepEqual(again, reply) {
			t.Errorf("%q is %q, which is written as %q and read as %q, %v", parts, reply, written, again, err)
		}
	})
}

func TestRecordsLieInTheSlotOfTheKeyAndApart(t *testing.T) {
	shop, eu := &acl.Identity{App: &acl.App{Namespace: "shop"}}, &acl.Identity{App: &acl.App{Namespace: "shop-eu"}}
	seen := map[string]bool{}
	for _, stored := range []string{"shop:a", "shop:{a", "shop:}{b}", "{shop}:a", "shop:\x00\xff"} {
		for _, id := range []*acl.Identity{shop, eu} {
			for _, key := range []string{"a", "b", strings.Repeat("x", 255), "}{"} {
				record := recordKey(id, stored, key)
				if slot.Of(record) != slot.Of(stored) || seen[record] || len(record) > 41 {
					t.Errorf("%q for %q, slot %d, was there before: %v", record, stored, slot.Of(stored), seen[record])
				}
				seen[record] = true
			}
		}
	}
}

func TestAWriteWithMoreThanAThousandArgumentsIsRefused(t *testing.T) {
	s := new(Store)
	s.KeepRecords(time.Hour)
	d := Delivery{Idempotency: Idempotency{Key: "k"}}
	id := &acl.Identity{App: &acl.App{Namespace: "shop"}}
	if _, err := s.recorded(id, &d, "shop:k", make([]any, 1000)); err != nil {
		t.Error(err)
	}
	if _, err := s.recorded(id, &d, "shop:k", make([]any, 1001)); err == nil {
		t.Error("1,001 arguments are taken")
	}
}
