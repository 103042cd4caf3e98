package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The corpora in testdata/corpus are what hostile and broken clients send. Beside each stands what the gateway answers, so that a code
// that changes is seen; -update writes that anew. What must hold of every answer whatever the file says is in the tests.

// entry is one line of a corpus.
type entry struct{ name, text string }

// readCorpus reads a corpus of at least so many entries.
func readCorpus(t *testing.T, name string, least int) []entry {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "corpus", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	var entries []entry
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, quoted, found := strings.Cut(line, " | ")
		if !found {
			name, quoted = line, line
		}
		text, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		entries = append(entries, entry{name, text})
	}
	if len(entries) < least {
		t.Errorf("the corpus has %d entries, fewer than %d", len(entries), least)
	}
	return entries
}

// golden compares lines with those in the file, or writes it.
func golden(t *testing.T, name string, lines []string) {
	t.Helper()
	file := filepath.Join("testdata", "corpus", name+".golden")
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	for i := range max(len(lines), len(want)) {
		switch {
		case i >= len(want):
			t.Errorf("more than in %s: %s", file, lines[i])
		case i >= len(lines):
			t.Errorf("in %s alone: %s", file, want[i])
		case lines[i] != want[i]:
			t.Errorf("got  %s\nwant %s", lines[i], want[i])
		}
	}
}

// said is one answer as a golden file has it: status and code, "plain" for one of net/http itself, and whether the connection ends.
func said(resp *http.Response, body []byte) string {
	what := ""
	var problem struct {
		Code string `json:"code"`
	}
	switch {
	case resp.Header.Get("Content-Type") == "application/problem+json":
		_ = json.Unmarshal(body, &problem)
		what = " " + problem.Code
	case resp.StatusCode >= 300 && resp.Header.Get("X-Request-Id") == "":
		what = " plain"
	}
	return strconv.Itoa(resp.StatusCode) + what
}

// corpusGateway is a gateway with an app that may do all, which throttles nobody and waits for no slow client.
func corpusGateway(t *testing.T, vars []string, key string, set ...string) (*running, terms) {
	t.Helper()
	args := []string{"--set", "auth.burst=1000000", "--set", "auth.failures_per_minute=1000000", "--set", "http.read_header_timeout_ms=2000",
		"--set", "http.read_timeout_ms=2000", "--set", "http.body_timeout_ms=2000"}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	g := startGateway(t, vars, args...)
	g.waitReady(t)
	x := terms{key: key}
	eventually(t, func() bool {
		got := call(t, "POST", g.api+"/v1/token", key, `{}`)
		var issued struct {
			Token string `json:"token"`
		}
		_ = json.Unmarshal([]byte(got.body), &issued)
		x.token = issued.Token
		return x.token != ""
	})
	t.Cleanup(func() { lacks(t, "the log", g.stderr.String(), `"panic"`, x.key, x.token) })
	return g, x
}

// atOnce calls f for every entry, a few at once, and returns what it says in the order of the entries.
func atOnce(entries []entry, f func(entry) string) []string {
	lines := make([]string, len(entries))
	var group sync.WaitGroup
	free := make(chan struct{}, 16)
	for i, e := range entries {
		free <- struct{}{}
		group.Go(func() {
			lines[i] = e.name + ": " + f(e)
			<-free
		})
	}
	group.Wait()
	return lines
}

// exchangeRaw sends bytes on a connection of their own and reads what is answered until the server has ended the connection. After
// the first answer the client says that it sends no more; before, only the server's own timeouts end a request that never becomes whole.
func exchangeRaw(t *testing.T, base, raw string) (answers []string, ids []string) {
	t.Helper()
	_, addr, _ := strings.Cut(base, "://")
	c := dialRaw(t, addr)
	defer c.Close()
	_, _ = io.WriteString(c.Conn, raw) // the server may have refused it by its beginning
	method, _, _ := strings.Cut(strings.TrimLeft(raw, "\r\n"), " ")
	for {
		resp, err := http.ReadResponse(c.Reader, &http.Request{Method: method})
		if err != nil {
			if os.IsTimeout(err) {
				t.Errorf("the connection is still open after %q, for %.200q", answers, raw)
			}
			return answers, ids
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Errorf("an answer breaks off: %v, for %.200q", err, raw)
		}
		if answers == nil {
			_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
		}
		answer := said(resp, body)
		if resp.Close {
			answer += " close"
		}
		answers, ids = append(answers, answer), append(ids, resp.Header.Get("X-Request-Id"))
		if resp.StatusCode >= 200 {
			method = "GET" // of all that follow
		}
	}
}

func TestMalformedRequests(t *testing.T) {
	vars := clusterVars(t)
	key := newToken(t, vars, "corpus")
	entries := readCorpus(t, "requests", 200)
	for name, set := range map[string]string{"quiet connections": "http.notice_disconnect=false", "connections of net/http": "http.notice_disconnect=true"} {
		t.Run(name, func(t *testing.T) {
			g, x := corpusGateway(t, vars, key, set)
			golden(t, "requests", atOnce(entries, func(e entry) string { return malformed(t, g.api, e.name, x.expand(t, e.text)) }))
		})
	}
}

// malformed says what a raw request is answered, and looks at what must hold for every one.
func malformed(t *testing.T, api, name, raw string) string {
	answers, ids := exchangeRaw(t, api, raw)
	if slices.Contains(ids, "smuggled") {
		t.Errorf("%s: what must be body was answered as a request: %q", name, answers)
	}
	final := slices.DeleteFunc(slices.Clone(answers), func(s string) bool { return strings.HasPrefix(s, "100") })
	requests := 1 + strings.Count(raw, "X-Request-Id: second") + strings.Count(raw, "}PRI * ")
	if last := len(final) - 1; last > 0 && final[last] == "400 plain close" { // what stands behind a request is none, and the connection ends
		final = final[:last]
	}
	if len(final) > requests {
		t.Errorf("%s: %d answers to %d requests: %q", name, len(final), requests, answers)
	}
	for _, answer := range final {
		// net/http's own words for a version or an encoding that nobody has built.
		if answer[0] == '5' && answer != "505 plain close" && answer != "501 plain close" {
			t.Errorf("%s: %q", name, answers)
		}
	}
	if len(answers) > 3 && len(slices.Compact(slices.Clone(answers))) == 1 {
		return fmt.Sprint(len(answers), " times ", answers[0])
	}
	if answers == nil {
		return "the connection ends"
	}
	return strings.Join(answers, ", ")
}

// publicPaths are what everybody may read.
var publicPaths = []string{`"/openapi.yaml"`, `"/openapi.json"`, `"/docs"`, `"/docs/"`, `"/docs/index.html"`, `"/.well-known/jwks.json"`}

func TestPaths(t *testing.T) {
	vars := clusterVars(t)
	g, x := corpusGateway(t, vars, newToken(t, vars, "corpus"))
	golden(t, "paths", atOnce(readCorpus(t, "paths", 200), func(e entry) string {
		line := "GET " + x.expand(t, e.text) + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		ask := func(base, auth string) string {
			answers, _ := exchangeRaw(t, base, line+auth+"\r\n")
			if len(answers) != 1 || answers[0][0] == '5' {
				t.Errorf("%s: %q", e.name, answers)
			}
			answer := strings.TrimSuffix(strings.Join(answers, ", "), " close")
			if strings.HasPrefix(answer, "2") && auth == "" && base == g.api && !slices.Contains(publicPaths, e.name) {
				t.Errorf("%s is open to everybody", e.name)
			}
			return answer
		}
		return "anybody " + ask(g.api, "") + "; an app " + ask(g.api, "Authorization: Bearer "+x.key+"\r\n") +
			"; on the admin listener " + ask(g.admin, "Authorization: Bearer "+x.key+"\r\n")
	}))
}

func TestBadBodies(t *testing.T) {
	vars := clusterVars(t)
	g, x := corpusGateway(t, vars, newToken(t, vars, "corpus"))
	operations := []string{"PUT /v1/strings/k", "POST /v1/strings/k/append", "PUT /v1/strings/k/range", "PUT /v1/counters/k", "POST /v1/counters/k/add",
		"PUT /v1/keys/k/ttl", "POST /v1/mget", "POST /v1/mset", "POST /v1/mdelete", "POST /v1/mexists"}
	golden(t, "bodies", atOnce(readCorpus(t, "bodies", 60), func(e entry) string {
		var order []string
		by := map[string][]string{}
		for _, operation := range operations {
			method, path, _ := strings.Cut(operation, " ")
			answer := withHeaders(t, method, g.api+path, x.expand(t, e.text), http.Header{"Authorization": {"Bearer " + x.key}, "Content-Type": {"application/json"}})
			if answer[0] != '4' {
				t.Errorf("%s, %s: %s", operation, e.name, answer)
			}
			if by[answer] == nil {
				order = append(order, answer)
			}
			by[answer] = append(by[answer], path[strings.LastIndexByte(path, '/')+1:])
		}
		for i, answer := range order {
			if len(order) > 1 {
				order[i] = answer + " (" + strings.Join(by[answer], " ") + ")"
			}
		}
		return strings.Join(order, "; ")
	}))
	if keys := redisClient(t).Keys(t.Context(), "corpus:*").Val(); len(keys) > 0 {
		t.Errorf("a body that was refused has left %q", keys)
	}
}

// withHeaders is one request on a kept connection, and what was said.
func withHeaders(t *testing.T, method, url, body string, h http.Header) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = h
	got := do(t, http.DefaultClient, req)
	return said(got.Response, []byte(got.body))
}

func TestBadCredentials(t *testing.T) {
	vars := clusterVars(t)
	g, x := corpusGateway(t, vars, newToken(t, vars, "corpus"))
	id := regexp.MustCompile(`"request_id":"[^"]*"`)
	bodies := make(chan string, 1000)
	golden(t, "credentials", atOnce(readCorpus(t, "credentials", 40), func(e entry) string {
		c := dialRaw(t, strings.TrimPrefix(g.api, "http://"))
		defer c.Close()
		c.send("GET /v1/whoami HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + x.expand(t, e.text) + "\r\n")
		resp, err := http.ReadResponse(c.Reader, nil)
		if err != nil {
			t.Errorf("%s: %v", e.name, err)
			return ""
		}
		var body bytes.Buffer
		_, _ = body.ReadFrom(resp.Body)
		if good := strings.HasPrefix(e.name, "good:"); good != (resp.StatusCode == 200) {
			t.Errorf("%s: %d", e.name, resp.StatusCode)
		}
		if resp.StatusCode == 401 {
			bodies <- id.ReplaceAllString(body.String(), "")
		}
		return said(resp, body.Bytes())
	}))
	close(bodies)
	first := <-bodies
	for body := range bodies {
		if body != first {
			t.Errorf("refusals differ:\n%s\n%s", first, body)
		}
	}
}
