package store

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"github.com/slotgate/slotgate/acl"
)

// cursor is where a listing goes on. To the caller it is opaque, and gives no authority: it is authenticated together
// with the app and the filter that it was made for, and means something only under the topology of then.
//
// Version 1, big endian: 1 version, 8 topology epoch, 2 shard, 8 Redis cursor, 16 MAC.
type cursor struct {
	epoch uint64
	shard uint16
	redis uint64
}

const (
	cursorVersion = 1
	cursorBody    = 1 + 8 + 2 + 8
	cursorMAC     = 16
)

var errBadCursor = Unparsable("query:cursor", "not a cursor of this listing: take next_cursor of the page before, with the same prefix and type")

// cursorKeys are the keys under which a cursor may have been made.
func (s *Store) cursorKeys() [][]byte {
	return append([][]byte{s.cfg.CursorKey}, s.cfg.OtherCursorKeys...)
}

// encode seals the cursor for the app and the filter of o.
func (c cursor) encode(key []byte, id *acl.Identity, o ListOptions) string {
	b := make([]byte, 0, cursorBody+sha256.Size)
	b = append(b, cursorVersion)
	b = binary.BigEndian.AppendUint64(b, c.epoch)
	b = binary.BigEndian.AppendUint16(b, c.shard)
	b = binary.BigEndian.AppendUint64(b, c.redis)
	b = append(b, cursorSum(key, b, id, o)...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// decodeCursor opens what encode made. "" is the beginning.
func decodeCursor(text string, keys [][]byte, id *acl.Identity, o ListOptions) (cursor, *Error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != cursorBody+cursorMAC || b[0] != cursorVersion {
		return cursor{}, errBadCursor
	}
	if !slices.ContainsFunc(keys, func(key []byte) bool { return hmac.Equal(b[cursorBody:], cursorSum(key, b[:cursorBody], id, o)) }) {
		return cursor{}, errBadCursor
	}
	return cursor{
		epoch: binary.BigEndian.Uint64(b[1:]),
		shard: binary.BigEndian.Uint16(b[9:]),
		redis: binary.BigEndian.Uint64(b[11:]),
	}, nil
}

// cursorSum authenticates body with the app, its prefix and the filter, each with its length so that none runs into the next.
func cursorSum(key, body []byte, id *acl.Identity, o ListOptions) []byte {
	m := hmac.New(sha256.New, key)
	for _, part := range []string{string(body), id.App.ID, id.Prefix, o.Prefix, o.Type} {
		m.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		m.Write([]byte(part))
	}
	return m.Sum(nil)[:cursorMAC]
}
