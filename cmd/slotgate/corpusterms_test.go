package main

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// terms are what << >> stands for in a corpus: credentials of a good caller, and what is too long to be written out.
type terms struct{ key, token string }

var term = regexp.MustCompile(`<<([a-z0-9.]+)(?: ([^<>]*))?>>`)

// expand replaces terms from the inside, <<len>> last: it is the length of what stands behind the first empty line.
func (x terms) expand(t *testing.T, text string) string {
	t.Helper()
	for again := true; again; {
		again = false
		text = term.ReplaceAllStringFunc(text, func(found string) string {
			m := term.FindStringSubmatch(found)
			if m[1] == "len" {
				return found
			}
			again = true
			return x.value(t, m[1], m[2])
		})
	}
	_, body, _ := strings.Cut(text, "\r\n\r\n")
	return strings.ReplaceAll(text, "<<len>>", strconv.Itoa(len(body)))
}

func (x terms) value(t *testing.T, name, argument string) string {
	t.Helper()
	if s, ok := x.credential(name); ok {
		return s
	}
	request := func(id string) string {
		return "Host: x\r\nAuthorization: Bearer " + x.key + "\r\nX-Request-Id: " + id + "\r\n"
	}
	whoami := func(id string) string { return "GET /v1/whoami HTTP/1.1\r\n" + request(id) + "\r\n" }
	switch name {
	case "first":
		return request("first")
	case "lower":
		return "host: x\r\nauthorization: Bearer " + x.key + "\r\nx-request-id: first\r\n"
	case "firstlf":
		return strings.ReplaceAll(request("first"), "\r\n", "\n")
	case "second", "smuggled":
		return whoami(name)
	case "json":
		return "Content-Type: application/json\r\n"
	case "b64":
		return base64.RawURLEncoding.EncodeToString([]byte(argument))
	}
	n, err := strconv.Atoi(argument)
	if err != nil {
		t.Fatalf("the corpus says <<%s %s>>", name, argument)
	}
	return repeated(t, name, n, whoami)
}

func repeated(t *testing.T, name string, n int, whoami func(string) string) string {
	t.Helper()
	numbered := func(format, separator string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(parts, separator)
	}
	switch name {
	case "nest":
		return strings.Repeat("[", n) + strings.Repeat("]", n)
	case "headers":
		return numbered("X-%d: a\r\n", "")
	case "ranges":
		return numbered("%[1]d-%[1]d", ",")
	case "keys":
		return numbered(`"k%d"`, ",")
	case "seconds":
		return strings.Repeat(whoami("second"), n)
	case "bytechunks":
		body := `{"keys":["k"]}`
		chunks := ""
		for i := range n {
			chunks += "1\r\n" + body[i:i+1] + "\r\n"
		}
		return chunks
	}
	unit, ok := map[string]string{
		"pad": "x", "nul": "\x00", "crlf": "\r\n", "nines": "9", "open": "[", "objects": `{"a":`, "commas": ",", "points": ".",
	}[name]
	if !ok {
		t.Fatalf("the corpus says <<%s %d>>", name, n)
	}
	return strings.Repeat(unit, n)
}

// credential is a part of the good key or token, or one that is a little wrong.
func (x terms) credential(name string) (string, bool) {
	key, signature := x.key, x.token[strings.LastIndexByte(x.token, '.')+1:]
	parts := strings.Split(x.token, ".")
	flipped := func(s string) string { // the last character is another one
		last := byte('A')
		if s[len(s)-1] == last {
			last = 'B'
		}
		return s[:len(s)-1] + string(last)
	}
	s, ok := map[string]string{
		"auth": "Authorization: Bearer " + key + "\r\n", "key": key, "token": x.token,
		"key.short": key[:len(key)-1], "key.flipped": flipped(key), "key.upper": strings.ToUpper(key), "key.id": key[:strings.LastIndexByte(key, '_')],
		"basic":        base64.StdEncoding.EncodeToString([]byte(":" + key)),
		"token.header": parts[0], "token.payload": parts[1], "token.signature": signature,
		// The last character of 64 bytes in base64 has four bits that mean nothing; they must be zero.
		"token.signature.loose": signature[:len(signature)-1] + string(signature[len(signature)-1]+1),
	}[name]
	return s, ok
}
