package handlers

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store"
)

func TestETagLists(t *testing.T) {
	for _, row := range []struct {
		lines []string
		want  tagList
	}{
		{nil, tagList{}},
		{[]string{"*"}, tagList{any: true}},
		{[]string{" * "}, tagList{any: true}},
		{[]string{`"a"`}, tagList{tags: []string{`"a"`}}},
		{[]string{`"a", W/"b" ,"c"`}, tagList{tags: []string{`"a"`, `W/"b"`, `"c"`}}},
		{[]string{`"a"`, `"b"`}, tagList{tags: []string{`"a"`, `"b"`}}},
		{[]string{`, "a",, "b",`}, tagList{tags: []string{`"a"`, `"b"`}}},
		{[]string{`"a,b"`}, tagList{tags: []string{`"a,b"`}}},
		{[]string{`""`}, tagList{tags: []string{`""`}}},
		{[]string{"\"\xff\""}, tagList{tags: []string{"\"\xff\""}}},
	} {
		got, err := parseTags(row.lines, "header:If-Match")
		if err != nil || got.any != row.want.any || !slices.Equal(got.tags, row.want.tags) {
			t.Errorf("%q is %+v, %v; want %+v", row.lines, got, err, row.want)
		}
	}
}

func TestMalformedETagListsAreRefused(t *testing.T) {
	for _, lines := range [][]string{
		{""}, {" "}, {","}, {"a"}, {`"a`}, {`a"`}, {`"a" "b"`}, {`w/"a"`}, {`W/`}, {`W/*`}, {"**"}, {"*", "*"}, {`*, "a"`}, {`"a"`, "*"},
		{`"a b"`}, {"\"a\x7f\""}, {"\"a\x00\""}, {`"a"x`}, {`'a'`},
	} {
		_, err := parseTags(lines, "header:If-Match")
		t.Run(strings.Join(lines, "|"), func(t *testing.T) { wantFault(t, err, store.CodeInvalidRequest, "header:If-Match") })
	}
}

func TestWriteConditions(t *testing.T) {
	c, err := writeCondition(http.Header{"If-Match": {`"a", W/"b"`}})
	if err != nil || !slices.Equal(c.IfMatch, []string{`"a"`, `W/"b"`}) || c.IfNoneMatch {
		t.Errorf("list: %+v, %v", c, err)
	}
	c, err = writeCondition(http.Header{"If-Match": {"*"}})
	if err != nil || !slices.Equal(c.IfMatch, []string{"*"}) {
		t.Errorf("star: %+v, %v", c, err)
	}
	c, err = writeCondition(http.Header{"If-None-Match": {"*"}})
	if err != nil || !c.IfNoneMatch || c.IfMatch != nil {
		t.Errorf("none: %+v, %v", c, err)
	}
	_, err = writeCondition(http.Header{"If-None-Match": {`"a"`}})
	wantFault(t, err, store.CodeValidationFailed, "header:If-None-Match")
	_, err = writeCondition(http.Header{"If-None-Match": {"*"}, "If-Match": {`"a"`}})
	wantFault(t, err, store.CodeValidationFailed, "header:If-None-Match")
	_, err = matchCondition(http.Header{"If-None-Match": {"*"}})
	wantFault(t, err, store.CodeValidationFailed, "header:If-None-Match")
	wantFault(t, refuseConditions(http.Header{"If-Match": {"*"}}), store.CodeValidationFailed, "header:If-Match")
	if err := refuseConditions(http.Header{}); err != nil {
		t.Error(err)
	}
}

// A weak tag never matches If-Match; dropping it from the list would drop the condition.
func TestWeakTagsStayInIfMatch(t *testing.T) {
	c, err := writeCondition(http.Header{"If-Match": {`W/"a"`}})
	if err != nil || len(c.IfMatch) != 1 || c.IfMatch[0] != `W/"a"` {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestReadConditionComparesWeakly(t *testing.T) {
	l, err := readCondition(http.Header{"If-None-Match": {`"x", W/"a"`}})
	if any, err := readCondition(http.Header{"If-None-Match": {"*"}}); err != nil || !any.matchesWeakly(`"a"`) {
		t.Errorf("*: %+v, %v", any, err)
	}
	if err != nil || !l.matchesWeakly(`"a"`) || l.matchesWeakly(`"b"`) || (tagList{}).matchesWeakly(`"a"`) {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestMinimalPreference(t *testing.T) {
	for line, want := range map[string]bool{
		"return=minimal": true, "respond-async, return=minimal": true, `return="minimal"`: true, "RETURN = minimal;foo": true,
		"return=representation": false, "minimal": false, "return=minimally": false, "": false,
	} {
		if got := prefers(http.Header{"Prefer": {line}}, "return", "minimal"); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

func FuzzETagList(f *testing.F) {
	for _, seed := range []string{"*", `"a"`, `"a", W/"b"`, `,,"a,b",`, `"`, `W/`, `"a""b"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		l, err := parseTags([]string{line}, "header:If-Match")
		if err != nil {
			if l.present() {
				t.Fatalf("%q is refused but gives %+v", line, l)
			}
			return
		}
		if !l.present() || l.any && len(l.tags) > 0 {
			t.Fatalf("%q gives %+v", line, l)
		}
		if l.any {
			return
		}
		for _, tag := range l.tags {
			bare := strings.TrimPrefix(tag, "W/")
			if len(bare) < 2 || bare[0] != '"' || bare[len(bare)-1] != '"' || strings.Contains(bare[1:len(bare)-1], `"`) {
				t.Fatalf("%q has the tag %q", line, tag)
			}
		}
		again, err := parseTags([]string{strings.Join(l.tags, ", ")}, "header:If-Match")
		if err != nil || !slices.Equal(again.tags, l.tags) {
			t.Fatalf("%q -> %q -> %q, %v", line, l.tags, again.tags, err)
		}
	})
}
