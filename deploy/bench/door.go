//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// The operations, in the order in which they are measured.
const (
	opGet  = "get"
	opPut  = "put"
	opMGet = "mget"
	opMSet = "mset"
)

var allOps = []string{opGet, opPut, opMGet, opMSet}

func isOp(op string) bool {
	for _, known := range allOps {
		if op == known {
			return true
		}
	}
	return false
}

// baseDoor is the name of the door that all ratios refer to.
const baseDoor = "webdis"

// door is one way to reach Redis over HTTP: how its requests are written and its answers read. A nil function means that the door does
// not offer the operation.
type door struct {
	name            string
	addr            string
	server, backend func() []int // processes whose CPU time is counted: the HTTP server's, its Redis'

	get  func(key string) []byte
	put  func(key, value string) []byte
	mget func(keys []string) []byte
	mset func(keys, values []string) []byte

	value   func(body []byte) (string, error)   // of an answer to get; nil: a constant, not to be checked
	values  func(body []byte) ([]string, error) // of an answer to mget
	written map[string]string                   // what a good answer to put and mset contains
}

// offers tells whether the door knows the operation.
func (d *door) offers(op string) bool {
	switch op {
	case opGet:
		return d.get != nil
	case opPut:
		return d.put != nil
	case opMGet:
		return d.mget != nil
	default:
		return d.mset != nil
	}
}

// request writes a whole HTTP/1.1 request.
func request(method, path, header, body string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: bench\r\n%s", method, path, header)
	if body != "" || method == "PUT" || method == "POST" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	return []byte(b.String())
}

func webdisDoor(addr string) *door {
	return &door{
		name: baseDoor, addr: addr,
		get:  func(key string) []byte { return request("GET", "/GET/"+key, "", "") },
		put:  func(key, value string) []byte { return request("GET", "/SET/"+key+"/"+value, "", "") },
		mget: func(keys []string) []byte { return request("GET", "/MGET/"+strings.Join(keys, "/"), "", "") },
		mset: func(keys, values []string) []byte {
			return request("GET", "/MSET/"+interleave(keys, values, "/", "/"), "", "")
		},
		value: func(body []byte) (string, error) {
			var a struct{ GET *string }
			err := json.Unmarshal(body, &a)
			return deref(a.GET), err
		},
		values: func(body []byte) ([]string, error) {
			var a struct{ MGET []string }
			err := json.Unmarshal(body, &a)
			return a.MGET, err
		},
		written: map[string]string{opPut: `[true,"OK"]`, opMSet: `[true,"OK"]`},
	}
}

func nginxDoor(addr string) *door {
	return &door{
		name: "nginx+Lua", addr: addr,
		get:  func(key string) []byte { return request("GET", "/get/"+key, "", "") },
		put:  func(key, value string) []byte { return request("PUT", "/set/"+key, "", value) },
		mget: func(keys []string) []byte { return request("GET", "/mget/"+strings.Join(keys, "/"), "", "") },
		mset: func(keys, values []string) []byte {
			return request("POST", "/mset", "", interleave(keys, values, " ", "\n")+"\n")
		},
		value: valueMember,
		values: func(body []byte) ([]string, error) {
			var a struct{ Values []string }
			err := json.Unmarshal(body, &a)
			return a.Values, err
		},
		written: map[string]string{opPut: `"OK"`, opMSet: `"OK"`},
	}
}

func helloDoor(addr string) *door {
	return &door{
		name: "Gin hello", addr: addr,
		get: func(key string) []byte { return request("GET", "/hello/"+key, "", "") },
		put: func(key, value string) []byte {
			return request("PUT", "/hello/"+key, "Content-Type: application/json\r\n", jsonOf(map[string]string{"value": value}))
		},
	}
}

// gatewayJSON is the door of /v1/strings and of the batches.
func gatewayJSON(name, addr, token string) *door {
	auth := "Authorization: Bearer " + token + "\r\n"
	typed := auth + "Content-Type: application/json\r\n"
	return &door{
		name: name + " JSON", addr: addr,
		get: func(key string) []byte { return request("GET", "/v1/strings/"+key, auth, "") },
		put: func(key, value string) []byte {
			return request("PUT", "/v1/strings/"+key, typed, jsonOf(map[string]string{"value": value}))
		},
		mget: func(keys []string) []byte {
			return request("POST", "/v1/mget", typed, jsonOf(map[string][]string{"keys": keys}))
		},
		mset: func(keys, values []string) []byte {
			items := make([]map[string]string, len(keys))
			for i := range keys {
				items[i] = map[string]string{"key": keys[i], "value": values[i]}
			}
			return request("POST", "/v1/mset", typed, jsonOf(map[string]any{"items": items}))
		},
		value: valueMember,
		values: func(body []byte) ([]string, error) {
			var a struct{ Items []struct{ Value string } }
			err := json.Unmarshal(body, &a)
			values := make([]string, len(a.Items))
			for i, item := range a.Items {
				values[i] = item.Value
			}
			return values, err
		},
		written: map[string]string{opMSet: `"written":`},
	}
}

// gatewayBytes is the raw door, /v1/bytes; it has no batches.
func gatewayBytes(name, addr, token string) *door {
	auth := "Authorization: Bearer " + token + "\r\n"
	return &door{
		name: name + " raw", addr: addr,
		get: func(key string) []byte { return request("GET", "/v1/bytes/"+key, auth, "") },
		put: func(key, value string) []byte {
			return request("PUT", "/v1/bytes/"+key, auth+"Content-Type: application/octet-stream\r\n", value)
		},
		value: func(body []byte) (string, error) { return string(body), nil },
	}
}

func valueMember(body []byte) (string, error) {
	var a struct{ Value *string }
	err := json.Unmarshal(body, &a)
	return deref(a.Value), err
}

func deref(s *string) string {
	if s == nil {
		return "(null)"
	}
	return *s
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings cannot fail
	}
	return string(text)
}

// interleave joins k1 SEP v1 END k2 SEP v2 …
func interleave(keys, values []string, sep, end string) string {
	parts := make([]string, len(keys))
	for i := range keys {
		parts[i] = keys[i] + sep + values[i]
	}
	return strings.Join(parts, end)
}

func keyName(i int) string { return "bench:" + strconv.Itoa(1_000_000+i) }
