//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// baseDoor is the name of the door that all ratios refer to.
const baseDoor = "webdis"

// door is one way to reach Redis over HTTP: how its requests are written and its answers read. A nil function means that the door does
// not offer the operation. Doors without apps ignore the number of the app.
type door struct {
	name            string
	build, kind     string       // of a gateway's door: the variant, and JSON or raw
	addrs           []string     // connections are dealt over them
	data            string       // doors with the same word here see the same keys
	server, backend func() []int // processes whose CPU time is counted: the HTTP server's, its Redis'
	gateways        []*gateway   // behind a gateway's door
	h2c             bool
	maxBatch        int // most keys in a batch; 0 knows no end
	valueSize       int // the only size it has values of; 0 takes any

	get  func(app int, key string) []byte
	put  func(app int, key, value string) []byte
	mget func(app int, keys []string) []byte
	mset func(app int, keys, values []string) []byte

	value   func(body []byte) (string, error)   // of an answer to get; nil: a constant, not to be checked
	values  func(body []byte) ([]string, error) // of an answer to mget
	written map[string]string                   // what a good answer to put and mset contains
}

// offers tells whether the door can take part in a scenario.
func (d *door) offers(s scenario) bool {
	if d.maxBatch > 0 && s.Batch > d.maxBatch {
		return false
	}
	switch s.Op {
	case opGet:
		return d.get != nil
	case opPut:
		return d.put != nil
	case opMix:
		return d.get != nil && d.put != nil
	case opMGet:
		return d.mget != nil
	}
	return d.mset != nil
}

// apps is how many apps a gateway's door rotates over; 1 for the others.
func (d *door) apps() int {
	if len(d.gateways) == 0 {
		return 1
	}
	return len(d.gateways[0].tokens)
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

// webdisPath is the longest path asked of webdis: from here on it gets the command as a body, as its parser refuses 80 KB of header.
const webdisPath = 32 << 10

func webdisCommand(command string) []byte {
	if len(command) > webdisPath {
		return request("POST", "/", "", command)
	}
	return request("GET", "/"+command, "", "")
}

func webdisDoor(addr string) *door {
	return &door{
		name: baseDoor, addrs: []string{addr}, data: "single",
		get: func(_ int, key string) []byte { return request("GET", "/GET/"+key, "", "") },
		put: func(_ int, key, value string) []byte {
			if len(value) > webdisPath {
				return request("PUT", "/SET/"+key, "", value)
			}
			return request("GET", "/SET/"+key+"/"+value, "", "")
		},
		mget: func(_ int, keys []string) []byte { return webdisCommand("MGET/" + strings.Join(keys, "/")) },
		mset: func(_ int, keys, values []string) []byte {
			return webdisCommand("MSET/" + interleave(keys, values, "/", "/"))
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
		name: "nginx+Lua", addrs: []string{addr}, data: "single",
		maxBatch: 3000, // LuaJIT's unpack ends at 8,000 values
		get:      func(_ int, key string) []byte { return request("GET", "/get/"+key, "", "") },
		put:      func(_ int, key, value string) []byte { return request("PUT", "/set/"+key, "", value) },
		mget:     func(_ int, keys []string) []byte { return request("GET", "/mget/"+strings.Join(keys, "/"), "", "") },
		mset: func(_ int, keys, values []string) []byte {
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

func helloDoor(addr string, valueSize int) *door {
	path := "/hello/" + strconv.Itoa(valueSize) + "/"
	return &door{
		name: "Gin hello", addrs: []string{addr}, valueSize: valueSize,
		get: func(_ int, key string) []byte { return request("GET", path+key, "", "") },
		put: func(_ int, key, value string) []byte {
			return request("PUT", path+key, "Content-Type: application/json\r\n", jsonOf(map[string]string{"value": value}))
		},
	}
}

func valueMember(body []byte) (string, error) {
	var a struct{ Value *string }
	err := json.Unmarshal(body, &a)
	return deref(a.Value), err
}

// itemValues reads the gateway's answer to mget.
func itemValues(body []byte) ([]string, error) {
	var a struct{ Items []struct{ Value string } }
	err := json.Unmarshal(body, &a)
	values := make([]string, len(a.Items))
	for i, item := range a.Items {
		values[i] = item.Value
	}
	return values, err
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
