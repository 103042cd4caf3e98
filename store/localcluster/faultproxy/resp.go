package faultproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxDepth bounds nested replies; CLUSTER SHARDS, the deepest of Redis, has 4 levels.
const maxDepth = 32

// readRequest reads one request as it is sent and tells its command in upper case. An inline one is taken as it is.
func readRequest(r *bufio.Reader) (raw []byte, command string, err error) {
	raw, err = readValue(r, nil, 0)
	if err != nil {
		return nil, "", err
	}
	if raw[0] == '*' {
		if _, rest, ok := bytes.Cut(raw, []byte("$")); ok {
			_, rest, _ = bytes.Cut(rest, []byte("\r\n"))
			name, _, _ := bytes.Cut(rest, []byte("\r\n"))
			command = string(name)
		}
	} else {
		command, _, _ = strings.Cut(strings.TrimSpace(string(raw)), " ")
	}
	return raw, strings.ToUpper(command), nil
}

// readReply reads one whole reply as it is sent.
func readReply(r *bufio.Reader) ([]byte, error) { return readValue(r, nil, 0) }

func readValue(r *bufio.Reader, raw []byte, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deep")
	}
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	raw = append(raw, line...)
	switch line[0] {
	case '$', '=', '!': // so many bytes and an end of line follow
		n, err := length(line)
		if err != nil || n < 0 {
			return raw, err
		}
		return appendN(r, raw, n+2)
	case '*', '~', '>', '%', '|': // so many values follow, in maps twice as many
		n, err := length(line)
		if err != nil {
			return raw, err
		}
		if line[0] == '%' || line[0] == '|' {
			n *= 2
		}
		if line[0] == '|' {
			n++ // attributes precede the value they belong to
		}
		for ; n > 0; n-- {
			if raw, err = readValue(r, raw, depth+1); err != nil {
				return nil, err
			}
		}
	}
	return raw, nil
}

func length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil {
		return 0, fmt.Errorf("a length: %w", err)
	}
	return n, nil
}

func appendN(r io.Reader, raw []byte, n int) ([]byte, error) {
	at := len(raw)
	raw = append(raw, make([]byte, n)...)
	_, err := io.ReadFull(r, raw[at:])
	return raw, err
}
