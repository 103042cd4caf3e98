package store

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/golang/snappy"
)

// The envelope of stored values (version 1). Bytes:
//
//	0..3    magic: 0xFF (never valid in UTF-8, so no text begins with it) and "SGV"
//	4       version: 1
//	5       codec: 0 raw (an escaped value that itself begins with the magic), 1 Snappy block format
//	6..9    CRC-32C, big endian, over codec, length and block
//	10..13  length of the decoded value, big endian
//	14..    the block
//
// A value that begins with the magic but has another version, an unknown codec or a length that does not agree with
// its block was not written by a gateway of this format: it is raw, and is returned as it is. A value that agrees in
// all of this but not in its CRC was one of ours and is damaged.
const (
	envelopeMagic      = "\xffSGV"
	envelopeVersion    = 1
	codecRaw           = 0
	codecSnappy        = 1
	envelopeHeaderSize = 14
	// envelopeProbeSize is how many leading bytes tell an envelope from a raw value: the header and the longest varint
	// with which a Snappy block states its length.
	envelopeProbeSize = envelopeHeaderSize + binary.MaxVarintLen32
)

// minShrinkDivisor: a value is stored compressed only if that saves at least a tenth; less is not worth the decoding.
const minShrinkDivisor = 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeValue returns the bytes to store for data. compressMin is the smallest size that is compressed, in bytes;
// 0 never compresses. The result is data itself unless it must be wrapped.
func encodeValue(data []byte, compressMin int) []byte {
	if compressMin > 0 && len(data) >= compressMin {
		if sealed := compress(data); sealed != nil {
			return sealed
		}
	}
	return encodeRaw(data)
}

// encodeRaw returns the bytes that store data uncompressed: data itself, or an escape if it begins with the magic.
func encodeRaw(data []byte) []byte {
	if !hasMagic(data) {
		return data
	}
	sealed := make([]byte, envelopeHeaderSize+len(data))
	copy(sealed[envelopeHeaderSize:], data)
	sealHeader(sealed, codecRaw, len(data))
	return sealed
}

// compress returns the envelope with the Snappy block of data, or nil if that would not save a tenth.
func compress(data []byte) []byte {
	sealed := make([]byte, envelopeHeaderSize+snappy.MaxEncodedLen(len(data)))
	block := snappy.Encode(sealed[envelopeHeaderSize:], data)
	size := envelopeHeaderSize + len(block)
	if size > len(data)-len(data)/minShrinkDivisor {
		return nil
	}
	sealed = sealed[:size]
	sealHeader(sealed, codecSnappy, len(data))
	return sealed
}

func sealHeader(sealed []byte, codec byte, length int) {
	copy(sealed, envelopeMagic)
	sealed[4], sealed[5] = envelopeVersion, codec
	binary.BigEndian.PutUint32(sealed[10:], uint32(length))
	binary.BigEndian.PutUint32(sealed[6:], envelopeSum(sealed))
}

// envelopeSum is the CRC over everything that the magic, the version and the sum itself do not cover.
func envelopeSum(sealed []byte) uint32 {
	sum := crc32.Update(0, castagnoli, sealed[5:6])
	return crc32.Update(sum, castagnoli, sealed[10:])
}

func hasMagic(data []byte) bool {
	return len(data) >= len(envelopeMagic) && string(data[:len(envelopeMagic)]) == envelopeMagic
}

// storedLength tells the decoded length of a stored value of size bytes from its first envelopeProbeSize bytes, and
// whether it is an envelope. It reads no block, so it cannot see a bad CRC.
func storedLength(head []byte, size int64) (length int64, envelope bool) {
	if len(head) < envelopeHeaderSize || !hasMagic(head) || head[4] != envelopeVersion {
		return size, false
	}
	length = int64(binary.BigEndian.Uint32(head[10:]))
	switch head[5] {
	case codecRaw:
		envelope = length == size-envelopeHeaderSize
	case codecSnappy:
		claimed, n := binary.Uvarint(head[envelopeHeaderSize:])
		envelope = n > 0 && int64(claimed) == length
	}
	if !envelope {
		return size, false
	}
	return length, true
}

// decodeValue returns the value that stored holds: a slice of stored, or new memory of at most limit bytes. The length
// that an envelope claims is compared with limit before anything is allocated. Errors: response_too_large,
// corrupt_value.
func decodeValue(stored []byte, limit int64) ([]byte, *Error) {
	length, envelope := storedLength(stored, int64(len(stored)))
	if length > limit {
		return nil, errTooLarge(length, limit)
	}
	if !envelope {
		return stored, nil
	}
	if envelopeSum(stored) != binary.BigEndian.Uint32(stored[6:]) {
		return nil, NewError(CodeCorruptValue, "the stored value is damaged: its checksum does not match")
	}
	block := stored[envelopeHeaderSize:]
	if stored[5] == codecRaw {
		return block, nil
	}
	data, err := snappy.Decode(make([]byte, length), block)
	if err != nil {
		return nil, NewError(CodeCorruptValue, "the stored value is damaged: it cannot be decompressed").WithCause(err)
	}
	return data, nil
}
