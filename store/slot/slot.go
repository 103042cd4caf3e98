// Package slot computes the Redis Cluster hash slot of a key, exactly as every Redis server does.
package slot

// Count is the number of hash slots of every Redis Cluster; slots are numbered 0 to Count-1.
const Count = 16384

// polynomial is CRC-16/XMODEM's (initial value 0, nothing reflected), the variant the Redis Cluster specification fixes.
const polynomial = 0x1021

var table = makeTable()

func makeTable() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ polynomial
			} else {
				crc <<= 1
			}
		}
		t[i] = crc
	}
	return t
}

// Of returns the slot of a key: that of its hash tag if it has one, otherwise that of all its bytes.
// The key is the stored one, prefix included. It allocates nothing and is safe for concurrent use.
func Of[K string | []byte](key K) int {
	tag := Tag(key)
	var crc uint16
	for i := 0; i < len(tag); i++ {
		crc = crc<<8 ^ table[byte(crc>>8)^tag[i]]
	}
	return int(crc & (Count - 1))
}

// Tag returns the part of a key that is hashed: what stands between the first '{' and the first '}' after it, unless
// that is nothing ("a{}b"), there is no '}' after it ("a}{b"), or there is no '{' at all; then it is the whole key.
func Tag[K string | []byte](key K) K {
	for open := 0; open < len(key); open++ {
		if key[open] != '{' {
			continue
		}
		for end := open + 1; end < len(key); end++ {
			if key[end] == '}' {
				if end == open+1 {
					return key
				}
				return key[open+1 : end]
			}
		}
		return key
	}
	return key
}
