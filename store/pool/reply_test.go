package pool

import (
	"testing"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/packed"
)

// What a script of ours would never return is an error, and nothing else.
func FuzzReplies(f *testing.F) {
	one := append(packed.Append(nil, 41, 5, 6), "0123456789012345678901"...)
	f.Add(byte('0'), string(packed.AppendText(packed.Append(nil, 41), "a")))
	f.Add(byte('1'), string(packed.AppendText(one, "a")))
	f.Add(byte('3'), string(packed.Append(packed.AppendText(one, "a"), 2)))
	f.Add(byte('2'), string(packed.Append(packed.AppendText(packed.Append(nil, 1), ""), -1)))
	f.Add(byte('0'), string(packed.Append(nil, 41, 1+2*metaUnit))+"a{}")
	f.Add(byte('0'), "")
	f.Fuzz(func(t *testing.T, shape byte, text string) {
		res, err := parse(shape, answer{text: text})
		if (err == nil) != (len(res.Allocated) > 0) {
			t.Errorf("%+v, %v", res, err)
		}
		q := packed.Reader{Rest: text}
		readHealth(&q)
		if err := whole(&q); err == nil && len(text) != 40 {
			t.Errorf("%d bytes are a health", len(text))
		}
	})
}

func TestRepliesOfNoScript(t *testing.T) {
	for name, values := range map[string][]any{
		"a status that is none":           {int64(0)},
		"a positive status":               {int64(1), int64(0)},
		"a repetition without its answer": {int64(statusReplay)},
	} {
		if _, err := readAnswer(values); err == nil {
			t.Errorf("%s is an answer", name)
		}
	}
	for name, values := range map[string][]any{
		"nothing":             {},
		"text for a length":   {"", "x"},
		"a negative length":   {"", int64(-2)},
		"an odd length":       {"", int64(1), "a"},
		"too long a list":     {"", int64(4), "a", "b"},
		"a number for a text": {"", int64(2), "a", int64(5)},
	} {
		l := lists{values: values}
		l.next()
		l.pairs()
		if !l.failed {
			t.Errorf("%s is a list", name)
		}
	}
	for _, text := range []string{"x", "-1", "1e300", "nan"} {
		var l lists
		if l.number(text); !l.failed {
			t.Errorf("%q is a count", text)
		}
	}
	c := attempt{pool: Pool{Definition: &Definition{}}}
	if _, err := c.result(answer{status: -6}); err == nil {
		t.Error("a status beyond the reasons is one")
	}
	for _, kept := range []string{"", "4abc", "x"} {
		if _, err := c.result(answer{text: kept, replayed: true}); code(err) != store.CodeCorruptValue {
			t.Errorf("%q was kept: %v", kept, err)
		}
	}
}

func code(err error) store.Code {
	if e, ok := err.(*store.Error); ok {
		return e.Code
	}
	return ""
}
