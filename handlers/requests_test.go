package handlers

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store"
)

func testTerms() terms {
	return terms{now: noon, keyMaxBytes: 64, valueMaxBytes: 100, maxKeys: 5}
}

// refusal is one bad body: the status class it belongs to and the place it must name.
type refusal struct {
	body    string
	code    store.Code
	pointer string
}

const (
	unparsable = store.CodeInvalidRequest
	invalid    = store.CodeValidationFailed
)

// refusedByAll are bodies that no JSON operation takes.
var refusedByAll = map[string]refusal{
	"not JSON":                   {`hello`, unparsable, "body"},
	"a byte order mark":          {"\ufeff{}", unparsable, "body"},
	"a comment":                  {`{/*x*/}`, unparsable, "body"},
	"cut off":                    {`{"value":"a"`, unparsable, "body"},
	"cut off in a string":        {`{"value":"a`, unparsable, "/value"},
	"a comma too many":           {`{"encoding":"utf8",}`, unparsable, "body"},
	"single quotes":              {`{'value':'a'}`, unparsable, "body"},
	"a name that is no string":   {`{1:2}`, unparsable, "body"},
	"trailing garbage":           {`{}x`, unparsable, "body"},
	"a second document":          {`{} {}`, unparsable, "body"},
	"a member twice":             {`{"x":1,"x":2}`, unparsable, "/x"},
	"a member twice by escape":   {`{"x":1,"\u0078":2}`, unparsable, "/x"},
	"a nested member twice":      {`{"x":{"y":1,"y":2}}`, unparsable, "/x/y"},
	"invalid UTF-8":              {"{\"x\":\"\xff\"}", unparsable, "/x"},
	"invalid UTF-8 in a name":    {"{\"\xff\":1}", unparsable, "body"},
	"overlong UTF-8":             {"{\"x\":\"\xc0\xaf\"}", unparsable, "/x"},
	"a lone surrogate":           {`{"x":"\ud800"}`, unparsable, "/x"},
	"a lone low surrogate":       {`{"x":"\udc00"}`, unparsable, "/x"},
	"surrogates in wrong order":  {`{"x":"\udc00\ud800"}`, unparsable, "/x"},
	"a surrogate as raw bytes":   {"{\"x\":\"\xed\xa0\x80\"}", unparsable, "/x"},
	"a raw control character":    {"{\"x\":\"\x00\"}", unparsable, "/x"},
	"a number with leading zero": {`{"x":01}`, unparsable, "body"},
	"a number with a plus":       {`{"x":+1}`, unparsable, "/x"},
	"not a number":               {`{"x":NaN}`, unparsable, "/x"},
	"nested 33 deep":             {`{"x":` + nested(32) + `}`, unparsable, "/x" + strings.Repeat("/0", 31)},
	"nested 1,000 deep":          {`{"x":` + nested(1000) + `}`, unparsable, "/x" + strings.Repeat("/0", 31)},
	"nested deep and unclosed":   {`{"x":` + strings.Repeat("[", 20000), unparsable, "/x" + strings.Repeat("/0", 31)},
	"nested 1,000 deep at top":   {nested(1000), unparsable, strings.Repeat("/0", 32)},
	"an array":                   {`[]`, invalid, "body"},
	"a string":                   {`"x"`, invalid, "body"},
	"null":                       {`null`, invalid, "body"},
	"an unknown member":          {`{"x":1}`, invalid, "/x"},
	"a member in capitals":       {`{"VALUE":"a"}`, invalid, "/VALUE"},
	"an unknown nested 32 deep":  {`{"x":` + nested(31) + `}`, invalid, "/x"},
	"a name with a slash":        {`{"a/b~":1}`, invalid, "/a~1b~0"},
	"both kinds of wrong":        {`{"x":1,"y":`, unparsable, "/y"},
}

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// parsers are all bodies the API takes.
var parsers = map[string]func(string) error{
	"put":     func(s string) error { _, err := parsePut([]byte(s), testTerms()); return err },
	"append":  func(s string) error { _, err := parseAppend([]byte(s), testTerms()); return err },
	"range":   func(s string) error { _, err := parseRangeWrite([]byte(s), testTerms()); return err },
	"counter": func(s string) error { _, err := parseCounter([]byte(s), testTerms()); return err },
	"add":     func(s string) error { _, err := parseAdd([]byte(s), testTerms()); return err },
	"ttl":     func(s string) error { _, err := parseTTL([]byte(s), testTerms()); return err },
	"mget":    func(s string) error { _, err := parseGet([]byte(s), testTerms()); return err },
	"mdelete": func(s string) error { _, err := parseKeys([]byte(s), testTerms()); return err },
	"mset":    func(s string) error { _, err := parseMSet([]byte(s), testTerms()); return err },
}

func TestBadBodiesAreRefusedByEveryOperation(t *testing.T) {
	for op, parse := range parsers {
		for why, r := range refusedByAll {
			t.Run(op+": "+why, func(t *testing.T) { wantAmong(t, parse(r.body), r.code, clip(r.pointer)) })
		}
	}
}

// wantAmong is wantFault, but the place may be any of those named: an empty object also lacks what is required.
func wantAmong(t *testing.T, err error, code store.Code, pointer string) {
	t.Helper()
	e, ok := errors.AsType[*store.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("got %v, want %s at %s", err, code, pointer)
	}
	for _, f := range e.Fields {
		if f.Pointer == pointer && f.Detail != "" && f.Code == string(code) {
			return
		}
	}
	t.Fatalf("names %+v, want %s", e.Fields, pointer)
}

var refusedByOne = map[string]map[string]refusal{
	"put": {
		"no value":                {`{}`, invalid, "/value"},
		"null value":              {`{"value":null}`, invalid, "/value"},
		"number for text":         {`{"value":1}`, invalid, "/value"},
		"object for text":         {`{"value":{}}`, invalid, "/value"},
		"unknown encoding":        {`{"value":"a","encoding":"hex"}`, invalid, "/encoding"},
		"capital encoding":        {`{"value":"a","encoding":"UTF8"}`, invalid, "/encoding"},
		"number for encoding":     {`{"value":"a","encoding":1}`, invalid, "/encoding"},
		"bad base64":              {`{"value":"a*==","encoding":"base64"}`, invalid, "/value"},
		"unpadded base64":         {`{"value":"YQ","encoding":"base64"}`, invalid, "/value"},
		"url alphabet":            {`{"value":"-_-_","encoding":"base64"}`, invalid, "/value"},
		"loose bits in base64":    {`{"value":"YR==","encoding":"base64"}`, invalid, "/value"},
		"line end in base64":      {`{"value":"YW\nJj","encoding":"base64"}`, invalid, "/value"},
		"data after padding":      {`{"value":"YQ==YQ==","encoding":"base64"}`, invalid, "/value"},
		"value over the limit":    {`{"value":"` + strings.Repeat("v", 101) + `"}`, store.CodeValueTooLarge, "/value"},
		"base64 over the limit":   {`{"encoding":"base64","value":"` + strings.Repeat("AAAA", 34) + `"}`, store.CodeValueTooLarge, "/value"},
		"TTL 0":                   {`{"value":"a","ttl_ms":0}`, invalid, "/ttl_ms"},
		"TTL -0":                  {`{"value":"a","ttl_ms":-0}`, invalid, "/ttl_ms"},
		"negative TTL":            {`{"value":"a","ttl_ms":-1}`, invalid, "/ttl_ms"},
		"huge TTL":                {`{"value":"a","ttl_ms":9223372036854775807}`, invalid, "/ttl_ms"},
		"TTL over 64 bits":        {`{"value":"a","ttl_ms":9223372036854775808}`, invalid, "/ttl_ms"},
		"TTL over 100 years":      {`{"value":"a","ttl_ms":3155760000001}`, invalid, "/ttl_ms"},
		"TTL with a fraction":     {`{"value":"a","ttl_ms":1.5}`, invalid, "/ttl_ms"},
		"TTL as 1.0":              {`{"value":"a","ttl_ms":1.0}`, invalid, "/ttl_ms"},
		"TTL with an exponent":    {`{"value":"a","ttl_ms":1e3}`, invalid, "/ttl_ms"},
		"TTL 1e400":               {`{"value":"a","ttl_ms":1e400}`, invalid, "/ttl_ms"},
		"TTL as text":             {`{"value":"a","ttl_ms":"60000"}`, invalid, "/ttl_ms"},
		"null TTL":                {`{"value":"a","ttl_ms":null}`, invalid, "/ttl_ms"},
		"time that is none":       {`{"value":"a","expires_at":"tomorrow"}`, invalid, "/expires_at"},
		"time without a zone":     {`{"value":"a","expires_at":"2031-01-01T00:00:00"}`, invalid, "/expires_at"},
		"time with a comma":       {`{"value":"a","expires_at":"2031-01-01T00:00:00,5Z"}`, invalid, "/expires_at"},
		"time with a short hour":  {`{"value":"a","expires_at":"2031-01-01T0:00:00Z"}`, invalid, "/expires_at"},
		"time in no zone":         {`{"value":"a","expires_at":"2031-01-01T00:00:00+24:00"}`, invalid, "/expires_at"},
		"time as unix":            {`{"value":"a","expires_at":1924992000}`, invalid, "/expires_at"},
		"time that has passed":    {`{"value":"a","expires_at":"2030-01-02T12:00:00Z"}`, invalid, "/expires_at"},
		"time in 200 years":       {`{"value":"a","expires_at":"2230-01-02T12:00:00Z"}`, invalid, "/expires_at"},
		"both TTLs":               {`{"value":"a","ttl_ms":1,"expires_at":"2031-01-01T00:00:00Z"}`, invalid, "/expires_at"},
		"keep and TTL":            {`{"value":"a","ttl_ms":1,"keep_ttl":true}`, invalid, "/keep_ttl"},
		"keep as text":            {`{"value":"a","keep_ttl":"true"}`, invalid, "/keep_ttl"},
		"return_previous as 1":    {`{"value":"a","return_previous":1}`, invalid, "/return_previous"},
		"return_previous as null": {`{"value":"a","return_previous":null}`, invalid, "/return_previous"},
	},
	"append": {
		"no value":  {`{"ttl_ms":5}`, invalid, "/value"},
		"keep_ttl":  {`{"value":"a","keep_ttl":true}`, invalid, "/keep_ttl"},
		"both TTLs": {`{"value":"a","ttl_ms":1,"expires_at":"2031-01-01T00:00:00Z"}`, invalid, "/ttl_ms"},
	},
	"range": {
		"no offset":           {`{"value":"a"}`, invalid, "/offset"},
		"negative offset":     {`{"value":"a","offset":-1}`, invalid, "/offset"},
		"fraction for offset": {`{"value":"a","offset":0.5}`, invalid, "/offset"},
		"offset over 64 bits": {`{"value":"a","offset":18446744073709551615}`, invalid, "/offset"},
		"TTL":                 {`{"value":"a","offset":1,"ttl_ms":5}`, invalid, "/ttl_ms"},
		"offset and no value": {`{"offset":1}`, invalid, "/value"},
	},
	"counter": {
		"no value":         {`{}`, invalid, "/value"},
		"text":             {`{"value":"1"}`, invalid, "/value"},
		"over 64 bits":     {`{"value":9223372036854775808}`, invalid, "/value"},
		"unsigned 64 bits": {`{"value":18446744073709551615}`, invalid, "/value"},
		"under 64 bits":    {`{"value":-9223372036854775809}`, invalid, "/value"},
		"1e400":            {`{"value":1e400}`, invalid, "/value"},
		"null":             {`{"value":null}`, invalid, "/value"},
	},
	"add": {
		"no delta":           {`{}`, invalid, "/delta"},
		"text":               {`{"delta":"1"}`, invalid, "/delta"},
		"over 64 bits":       {`{"delta":9223372036854775808}`, invalid, "/delta"},
		"an exponent":        {`{"delta":1e3}`, invalid, "/delta"},
		"-1e400":             {`{"delta":-1e400}`, invalid, "/delta"},
		"min as text":        {`{"delta":1,"min":"0"}`, invalid, "/min"},
		"max over 64 bits":   {`{"delta":1,"max":9223372036854775808}`, invalid, "/max"},
		"unknown moment":     {`{"delta":1,"ttl_ms":5,"ttl_when":"never"}`, invalid, "/ttl_when"},
		"moment without TTL": {`{"delta":1,"ttl_when":"always"}`, invalid, "/ttl_when"},
		"keep_ttl":           {`{"delta":1,"keep_ttl":true}`, invalid, "/keep_ttl"},
	},
	"ttl": {
		"neither":      {`{}`, invalid, "/ttl_ms"},
		"both":         {`{"ttl_ms":1,"expires_at":"2031-01-01T00:00:00Z"}`, invalid, "/ttl_ms"},
		"keep_ttl":     {`{"keep_ttl":true}`, invalid, "/keep_ttl"},
		"unknown when": {`{"ttl_ms":1,"when":"NX"}`, invalid, "/when"},
		"zero":         {`{"ttl_ms":0}`, invalid, "/ttl_ms"},
	},
	"mget": {
		"no keys":              {`{}`, invalid, "/keys"},
		"empty list":           {`{"keys":[]}`, invalid, "/keys"},
		"keys as text":         {`{"keys":"a"}`, invalid, "/keys"},
		"a number among keys":  {`{"keys":["a",1]}`, invalid, "/keys/1"},
		"null among keys":      {`{"keys":[null]}`, invalid, "/keys/0"},
		"an empty key":         {`{"keys":["a",""]}`, store.CodeInvalidKey, "/keys/1"},
		"a long key":           {`{"keys":["` + strings.Repeat("k", 65) + `"]}`, store.CodeInvalidKey, "/keys/0"},
		"bad base64url":        {`{"key_encoding":"base64url","keys":["YQ","YQ=="]}`, store.CodeInvalidKey, "/keys/1"},
		"encoding behind":      {`{"keys":["YQ","Y+"],"key_encoding":"base64url"}`, store.CodeInvalidKey, "/keys/1"},
		"empty in base64url":   {`{"keys":[""],"key_encoding":"base64url"}`, store.CodeInvalidKey, "/keys/0"},
		"unknown key encoding": {`{"keys":["a"],"key_encoding":"base64"}`, invalid, "/key_encoding"},
		"unknown encoding":     {`{"keys":["a"],"encoding":"raw"}`, invalid, "/encoding"},
		"one too many":         {`{"keys":["1","2","3","4","5","6"]}`, store.CodeBatchTooLarge, "/keys"},
		"too many and cut off": {`{"keys":["1","2","3","4","5","6"`, store.CodeBatchTooLarge, "/keys"},
	},
	"mdelete": {
		"encoding of values": {`{"keys":["a"],"encoding":"utf8"}`, invalid, "/encoding"},
	},
	"mset": {
		"no items":           {`{}`, invalid, "/items"},
		"empty list":         {`{"items":[]}`, invalid, "/items"},
		"an object":          {`{"items":{"key":"a","value":"b"}}`, invalid, "/items"},
		"text as item":       {`{"items":["a"]}`, invalid, "/items/0"},
		"no key":             {`{"items":[{"value":"b"}]}`, invalid, "/items/0/key"},
		"no value":           {`{"items":[{"key":"a"}]}`, invalid, "/items/0/value"},
		"empty key":          {`{"items":[{"key":"","value":"b"}]}`, store.CodeInvalidKey, "/items/0/key"},
		"number as value":    {`{"items":[{"key":"a","value":"b"},{"key":"a","value":1}]}`, invalid, "/items/1/value"},
		"large value":        {`{"items":[{"key":"a","value":"` + strings.Repeat("v", 101) + `"}]}`, store.CodeValueTooLarge, "/items/0/value"},
		"bad base64":         {`{"items":[{"key":"a","value":"b","encoding":"base64"}]}`, invalid, "/items/0/value"},
		"bad base64 of all":  {`{"items":[{"key":"a","value":"b"}],"encoding":"base64"}`, invalid, "/items/0/value"},
		"TTL 0":              {`{"items":[{"key":"a","value":"b","ttl_ms":0}]}`, invalid, "/items/0/ttl_ms"},
		"both TTLs":          {`{"items":[{"key":"a","value":"b","ttl_ms":1,"expires_at":"2031-01-01T00:00:00Z"}]}`, invalid, "/items/0/expires_at"},
		"keep_ttl":           {`{"items":[{"key":"a","value":"b","keep_ttl":true}]}`, invalid, "/items/0/keep_ttl"},
		"unknown in an item": {`{"items":[{"key":"a","value":"b","ttl":1}]}`, invalid, "/items/0/ttl"},
		"a member twice":     {`{"items":[{"key":"a","value":"b","key":"c"}]}`, unparsable, "/items/0/key"},
		"one too many":       {`{"items":[{},{},{},{},{},{}]}`, store.CodeBatchTooLarge, "/items"},
		"good ones cut off":  {`{"items":[{"key":"a","value":"b"},`, unparsable, "/items"},
	},
}

func TestBadContentIsRefusedWithItsPlace(t *testing.T) {
	for op, rows := range refusedByOne {
		for why, r := range rows {
			t.Run(op+": "+why, func(t *testing.T) { wantAmong(t, parsers[op](r.body), r.code, r.pointer) })
		}
	}
}

func TestAllFaultsAreToldAtOnce(t *testing.T) {
	err := parsers["put"](`{"valu":"a","ttl_ms":0,"encoding":"x"}`)
	for _, pointer := range []string{"/valu", "/ttl_ms", "/encoding", "/value"} {
		wantAmong(t, err, invalid, pointer)
	}
}

// What is no object at all is not told as well what it lacks.
func TestNoObjectIsOneFault(t *testing.T) {
	for op, parse := range parsers {
		if e, ok := errors.AsType[*store.Error](parse(`[]`)); !ok || len(e.Fields) != 1 {
			t.Errorf("%s: %+v", op, e)
		}
	}
	_, err := parseMSet([]byte(`{"items":[7]}`), testTerms())
	if e, ok := errors.AsType[*store.Error](err); !ok || len(e.Fields) != 1 {
		t.Errorf("an item: %+v", e)
	}
}

func TestManyFaultsEndTheReading(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"value":"v"`)
	for i := range 100_000 {
		b.WriteString(`,"m` + strconv.Itoa(i) + `":1`)
	}
	body := []byte(b.String() + `}`)
	var err error
	bytes := allocatedBytes(func() { _, err = parsePut(body, testTerms()) })
	e, ok := errors.AsType[*store.Error](err)
	if !ok || e.Code != invalid || len(e.Fields) != maxFaults {
		t.Errorf("%v, %d places", err, len(e.Fields))
	}
	if bytes > 64<<10 {
		t.Errorf("allocated %d bytes", bytes)
	}
}

func TestOneBadItemAmongHundredGoodOnes(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"items":[`)
	for i := range 101 {
		if i > 0 {
			b.WriteString(",")
		}
		value := `"v"`
		if i == 57 {
			value = `7`
		}
		b.WriteString(`{"key":"k` + strconv.Itoa(i) + `","value":` + value + `}`)
	}
	terms := testTerms()
	terms.maxKeys = 5000
	r, err := parseMSet([]byte(b.String()+`]}`), terms)
	wantFault(t, err, invalid, "/items/57/value")
	if len(r.items) != 0 {
		t.Error("there is something to write")
	}
}

func TestMillionElementsCostNoMoreThanTheirBytes(t *testing.T) {
	body := []byte(`{"keys":[` + strings.Repeat(`"",`, 1_000_000) + `""]}`)
	terms := testTerms()
	terms.maxKeys = 5000
	var err error
	bytes := allocatedBytes(func() { _, err = parseGet(body, terms) })
	wantFault(t, err, store.CodeBatchTooLarge, "/keys")
	if bytes > uint64(len(body))+(1<<20) {
		t.Errorf("allocated %d bytes for a body of %d", bytes, len(body))
	}
}

func allocatedBytes(f func()) uint64 {
	return uint64(testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f()
		}
	}).AllocedBytesPerOp())
}

func TestGoodBodiesAreRead(t *testing.T) {
	t.Run("put", func(t *testing.T) {
		r, err := parsePut([]byte(" {\"encoding\":\"base64\", \"value\":\"AP8=\", \"keep_ttl\":true, \"return_previous\":true}\n"), testTerms())
		if err != nil || string(r.data) != "\x00\xff" || r.expiry.Mode != store.KeepExpiry || !r.returnPrevious || r.encoding != base64Encoding {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("escapes", func(t *testing.T) {
		r, err := parsePut([]byte(`{"v\u0061lue":"\"\\\/\b\f\n\r\t\u0000\ud83d\ude00é","keep_ttl":false,"ttl_ms":7}`), testTerms())
		if err != nil || string(r.data) != "\"\\/\b\f\n\r\t\x00😀é" || r.expiry != (store.Expiry{Mode: store.ExpireIn, Millis: 7}) {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("empty value", func(t *testing.T) {
		if r, err := parsePut([]byte(`{"value":""}`), testTerms()); err != nil || len(r.data) != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("add", func(t *testing.T) {
		r, err := parseAdd([]byte(`{"delta":-9223372036854775808,"min":9007199254740993,"max":0.1,"ttl_ms":5,"ttl_when":"always"}`), testTerms())
		if err != nil || r.delta.String() != "-9223372036854775808" || r.min.String() != "9007199254740993" || r.max.String() != "0.1" || !r.ttlAlways {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("ttl", func(t *testing.T) {
		r, err := parseTTL([]byte(`{"expires_at":"2030-01-02T12:00:01+00:00","when":"gt"}`), testTerms())
		if err != nil || r.when != "gt" || r.expiry != (store.Expiry{Mode: store.ExpireAt, Millis: noon.UnixMilli() + 1000}) {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("mget", func(t *testing.T) {
		r, err := parseGet([]byte(`{"keys":["AP8","AP8","YQ"],"encoding":"base64","key_encoding":"base64url"}`), testTerms())
		if err != nil || len(r.keys) != 3 || r.keys[0] != "\x00\xff" || r.keys[1] != "\x00\xff" || r.keys[2] != "a" || r.encoding != base64Encoding {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("mset", func(t *testing.T) {
		r, err := parseMSet([]byte(`{"items":[{"value":"YQ==","key":"k"},{"key":"l","value":"b","encoding":"utf8","ttl_ms":9}],"encoding":"base64"}`), testTerms())
		if err != nil || len(r.items) != 2 || r.items[0].Key != "k" || string(r.items[0].Data) != "a" ||
			r.items[1].Key != "l" || string(r.items[1].Data) != "b" || r.items[1].Expiry.Millis != 9 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
