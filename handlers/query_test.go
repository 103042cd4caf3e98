package handlers

import (
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store"
)

var knownForTests = []string{"ttl_ms", "expires_at", "keep_ttl", "encoding", "key_encoding", "offset", "prefix"}

func TestQueryIsRead(t *testing.T) {
	q, err := parseQuery("prefix=a+b%2Bc%FF&&encoding=base64&offset=-7&keep_ttl", knownForTests)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := q.get("prefix"); !ok || v != "a b+c\xff" {
		t.Errorf("prefix is %q, %v", v, ok)
	}
	if v, ok := q.get("keep_ttl"); !ok || v != "" {
		t.Errorf("keep_ttl is %q, %v", v, ok)
	}
	if word, err := q.word("encoding", "utf8", "base64"); err != nil || word != "base64" {
		t.Errorf("encoding is %q, %v", word, err)
	}
	_, err = q.word("encoding", "utf8")
	wantFault(t, err, store.CodeValidationFailed, "query:encoding")
	if n, err := q.integer("offset", 3); err != nil || n != -7 {
		t.Errorf("offset is %d, %v", n, err)
	}
	if n, err := q.integer("start", 3); err != nil || n != 3 {
		t.Errorf("absent start is %d, %v", n, err)
	}
}

func TestQueryIsRefused(t *testing.T) {
	for raw, want := range map[string]struct {
		code    store.Code
		pointer string
	}{
		"ttl=60":                             {store.CodeValidationFailed, "query:ttl"},
		"TTL_MS=60":                          {store.CodeValidationFailed, "query:TTL_MS"},
		"ttl_ms=1&ttl_ms=2":                  {store.CodeValidationFailed, "query:ttl_ms"},
		"prefix=%zz":                         {store.CodeInvalidRequest, "query:prefix"},
		"%zz=1":                              {store.CodeInvalidRequest, "query"},
		"%ff=1":                              {store.CodeInvalidRequest, "query"},
		"ttl_ms=1;encoding=utf8":             {store.CodeInvalidRequest, "query"},
		strings.Repeat("é", 200) + "=1":      {store.CodeValidationFailed, "query:" + strings.Repeat("é", 64) + "…"},
		"a" + strings.Repeat("é", 200) + "=": {store.CodeValidationFailed, "query:a" + strings.Repeat("é", 63) + "…"},
	} {
		_, err := parseQuery(raw, knownForTests)
		t.Run(raw, func(t *testing.T) { wantFault(t, err, want.code, want.pointer) })
	}
}

func TestIntegerParameter(t *testing.T) {
	for text, code := range map[string]store.Code{
		"": store.CodeInvalidRequest, "abc": store.CodeInvalidRequest, "1.5": store.CodeInvalidRequest, "+1": store.CodeInvalidRequest,
		" 1": store.CodeInvalidRequest, "0x10": store.CodeInvalidRequest, "1_000": store.CodeInvalidRequest, "-": store.CodeInvalidRequest,
		"9223372036854775808": store.CodeValidationFailed, "99999999999999999999999": store.CodeValidationFailed,
	} {
		_, err := query{{"offset", text}}.integer("offset", 0)
		t.Run(text, func(t *testing.T) { wantFault(t, err, code, "query:offset") })
	}
	if n, err := (query{{"offset", "-9223372036854775808"}}).integer("offset", 0); err != nil || n != -1<<63 {
		t.Errorf("the smallest integer is %d, %v", n, err)
	}
}

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

func TestExpiryInQuery(t *testing.T) {
	for raw, want := range map[string]store.Expiry{
		"":                                       {},
		"ttl_ms=1":                               {Mode: store.ExpireIn, Millis: 1},
		"ttl_ms=3155760000000":                   {Mode: store.ExpireIn, Millis: maxTTLMillis},
		"expires_at=2030-01-02T12:00:00.001Z":    {Mode: store.ExpireAt, Millis: noon.UnixMilli() + 1},
		"expires_at=2030-01-02T14:00:00%2B01:00": {Mode: store.ExpireAt, Millis: noon.UnixMilli() + 3600_000},
		"keep_ttl=true":                          {Mode: store.KeepExpiry},
		"keep_ttl=false":                         {},
		"keep_ttl=false&ttl_ms=5":                {Mode: store.ExpireIn, Millis: 5},
	} {
		q, err := parseQuery(raw, knownForTests)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := q.expiry(noon); err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", raw, got, err, want)
		}
	}
}

func TestExpiryInQueryIsRefused(t *testing.T) {
	for raw, want := range map[string]struct {
		code    store.Code
		pointer string
	}{
		"ttl_ms=0":                                 {store.CodeValidationFailed, "query:ttl_ms"},
		"ttl_ms=-1":                                {store.CodeValidationFailed, "query:ttl_ms"},
		"ttl_ms=3155760000001":                     {store.CodeValidationFailed, "query:ttl_ms"},
		"ttl_ms=9223372036854775807":               {store.CodeValidationFailed, "query:ttl_ms"},
		"ttl_ms=9223372036854775808":               {store.CodeValidationFailed, "query:ttl_ms"},
		"ttl_ms=1.5":                               {store.CodeInvalidRequest, "query:ttl_ms"},
		"ttl_ms=1s":                                {store.CodeInvalidRequest, "query:ttl_ms"},
		"expires_at=tomorrow":                      {store.CodeInvalidRequest, "query:expires_at"},
		"expires_at=2030-01-02T14:00:00+01:00":     {store.CodeInvalidRequest, "query:expires_at"},
		"expires_at=2030-01-02T12:00:00Z":          {store.CodeValidationFailed, "query:expires_at"},
		"expires_at=1970-01-01T00:00:00Z":          {store.CodeValidationFailed, "query:expires_at"},
		"expires_at=9999-12-31T23:59:59Z":          {store.CodeValidationFailed, "query:expires_at"},
		"keep_ttl=1":                               {store.CodeValidationFailed, "query:keep_ttl"},
		"ttl_ms=5&keep_ttl=true":                   {store.CodeValidationFailed, "query:ttl_ms"},
		"ttl_ms=5&expires_at=2031-01-01T00:00:00Z": {store.CodeValidationFailed, "query:ttl_ms"},
	} {
		q, err := parseQuery(raw, knownForTests)
		if err != nil {
			t.Fatal(err)
		}
		_, err = q.expiry(noon)
		t.Run(raw, func(t *testing.T) { wantFault(t, err, want.code, want.pointer) })
	}
}

func TestExclusiveExpiriesAreAllNamed(t *testing.T) {
	q, _ := parseQuery("keep_ttl=true&expires_at=2031-01-01T00:00:00Z&ttl_ms=5", knownForTests)
	_, err := q.expiry(noon)
	e := err.(*store.Error)
	if len(e.Fields) != 3 || e.Fields[0].Pointer != "query:ttl_ms" || e.Fields[1].Pointer != "query:expires_at" || e.Fields[2].Pointer != "query:keep_ttl" {
		t.Errorf("names %+v", e.Fields)
	}
}
