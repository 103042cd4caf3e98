package store

import (
	"bytes"
	"testing"

	"github.com/slotgate/slotgate/acl"
)

func TestCursorsOutliveAChangeOfTheSecret(t *testing.T) {
	id := identity(t, "cursors", acl.Spread, "keys:*")
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
	made := cursor{epoch: 1, shard: 2, redis: 3}
	text := made.encode(key('a'), id, ListOptions{})
	for name, row := range map[string]struct {
		keys [][]byte
		good bool
	}{
		"under its own key":         {[][]byte{key('a')}, true},
		"with its key beside":       {[][]byte{key('b'), key('a')}, true},
		"when its key is forgotten": {[][]byte{key('b')}, false},
	} {
		got, err := decodeCursor(text, row.keys, id, ListOptions{})
		if (err == nil) != row.good || row.good && got != made {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
