package handlers

import (
	"math"
	"strconv"
	"strings"
)

// byteRange is one range of bytes in the way GETRANGE counts: both ends inclusive, negative from the end.
type byteRange struct{ start, end int64 }

// parseRange reads a Range header. Only one range of bytes is understood; everything else is no range at all and gets the whole
// value, as RFC 9110, 14.2 lets a server do. nothing is true for a range that no value can satisfy ("bytes=-0").
func parseRange(header string) (r byteRange, nothing, ok bool) {
	unit, set, found := strings.Cut(header, "=")
	if !found || !strings.EqualFold(strings.TrimRight(unit, " \t"), "bytes") {
		return r, false, false
	}
	first, last, found := strings.Cut(strings.Trim(set, " \t"), "-")
	if !found {
		return r, false, false
	}
	if first == "" {
		n, ok := position(last)
		return byteRange{-n, -1}, n == 0, ok
	}
	start, ok := position(first)
	if !ok {
		return r, false, false
	}
	if last == "" {
		return byteRange{start, -1}, false, true
	}
	end, ok := position(last)
	return byteRange{start, end}, false, ok && start <= end
}

// position is a run of digits; more than 63 bits of it mean the same as the largest number, the end of any value.
func position(digits string) (int64, bool) {
	if !isInteger(digits) || digits[0] == '-' {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return math.MaxInt64, true
	}
	return n, true
}

// resolve gives the first and last byte of r in a value of total bytes; ok is false when none of it is there.
func (r byteRange) resolve(total int64) (first, last int64, ok bool) {
	first, last = r.start, r.end
	if first < 0 {
		first = max(0, total+first)
	}
	if last < 0 || last >= total {
		last = total - 1
	}
	return first, last, first <= last
}

// contentRange is the Content-Range of a 206.
func contentRange(first, last, total int64) string {
	b := make([]byte, 0, 64)
	b = append(b, "bytes "...)
	b = strconv.AppendInt(b, first, 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, last, 10)
	b = append(b, '/')
	return string(strconv.AppendInt(b, total, 10))
}

// unsatisfied is the Content-Range of a 416.
func unsatisfied(total int64) string { return "bytes */" + strconv.FormatInt(total, 10) }
