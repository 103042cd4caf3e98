package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"
)

// client is one caller of a load, with connections of its own.
type client struct {
	load   *load
	number int
	random *rand.Rand
	http   *http.Client
	sent   int // elements and values so far, which makes them unique
}

func (c *client) run(ctx context.Context, begun time.Time, i int) {
	transport := &http.Transport{MaxIdleConnsPerHost: 1, DisableCompression: true}
	defer transport.CloseIdleConnections()
	c.http = &http.Client{Transport: transport, Timeout: clientTimeout}
	interval := time.Duration(0)
	due := begun
	if l := c.load; l.rate > 0 {
		interval = time.Duration(float64(l.clients) / l.rate * float64(time.Second))
		due = begun.Add(interval * time.Duration(i) / time.Duration(l.clients))
	}
	for {
		if interval == 0 {
			due = time.Now()
		} else {
			due = due.Add(interval)
		}
		if !sleep(ctx, time.Until(due)) {
			return
		}
		if !c.once(due) && !sleep(ctx, errorPause) {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// once sends a request and waits for its answer, also when the load is being stopped: the ledger must have it.
func (c *client) once(due time.Time) (ok bool) {
	l := c.load
	name := seriesName{phase: *l.phase.Load(), group: "batch", op: l.ops[c.random.IntN(len(l.ops))]}
	var failed string
	switch name.op {
	case opMget:
		failed = c.mget()
	case opMset:
		failed = c.mset()
	default:
		var key string
		key, failed = c.single(name.op)
		name.group = (*l.group.Load())(key)
	}
	l.note(name, time.Since(due), failed)
	return failed == ""
}

// key draws one for an operation.
func (c *client) key(op string) (key string) {
	for {
		switch op {
		case opAdd:
			key = c.load.prefix + "c" + strconv.Itoa(c.random.IntN(sharedKeys))
		case opAppend:
			key = c.load.prefix + "l" + strconv.Itoa(c.random.IntN(sharedKeys)) + "-" + strconv.Itoa(c.sent/listLength)
		case opPut:
			key = c.load.prefix + fmt.Sprintf("p%d-%d", c.number, c.random.IntN(ownKeys))
		default:
			key = "e" + strconv.Itoa(c.random.IntN(echoKeys))
		}
		if c.load.only == nil || c.load.only(key) {
			return key
		}
	}
}

func (c *client) single(op string) (key, failed string) {
	c.sent++
	key = c.key(op)
	switch q := c.load.query; op {
	case opAdd:
		a := c.send("POST", "/v1/counters/"+key+"/add"+q, `{"delta":1}`)
		c.load.ledger.added(key, c.outcome(a))
		return key, a.failed()
	case opAppend:
		e := entry{client: c.number, number: c.sent}
		a := c.send("POST", "/v1/strings/"+key+"/append"+q, `{"value":"`+e.text()+`"}`)
		c.load.ledger.appended(key, e.client, e.number, c.outcome(a))
		return key, a.failed()
	case opPut:
		value := entry{client: c.number, number: c.sent}
		a := c.send("PUT", "/v1/strings/"+key+q, `{"value":"`+value.text()+`"}`)
		c.load.ledger.set(key, value.text(), c.outcome(a))
		return key, a.failed()
	case opRead:
		return key, c.load.read(key)
	default:
		a := c.send("GET", "/v1/strings/"+key, "")
		var got struct{ Value *string }
		if a.status == 200 && (json.Unmarshal(a.body, &got) != nil || got.Value == nil || *got.Value != echo(key)) {
			c.load.ledger.cross(fmt.Sprintf("GET %s: %.200q", key, a.body))
		}
		return key, a.failed()
	}
}

func (c *client) mget() (failed string) {
	keys := make([]string, batchSize)
	for i := range keys {
		keys[i] = "e" + strconv.Itoa(c.random.IntN(echoKeys))
	}
	body, _ := json.Marshal(map[string]any{"keys": keys})
	a := c.send("POST", "/v1/mget", string(body))
	if a.status != 200 {
		return a.failed()
	}
	var got struct {
		Items []struct {
			Key     string
			Found   bool
			Value   *string
			Problem *problem
		}
	}
	if err := json.Unmarshal(a.body, &got); err != nil || len(got.Items) != len(keys) {
		c.load.ledger.cross(fmt.Sprintf("mget of %d keys: %.200q", len(keys), a.body))
		return ""
	}
	for i, item := range got.Items {
		switch {
		case item.Problem != nil:
			failed = item.Problem.Code
		case item.Key != keys[i] || item.Value == nil || *item.Value != echo(keys[i]):
			c.load.ledger.cross(fmt.Sprintf("mget, item %d of %s: %+v", i, keys[i], item))
		}
	}
	return failed
}

func (c *client) mset() (failed string) {
	type item struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	items := make([]item, batchSize)
	for i := range items {
		c.sent++
		items[i] = item{c.load.prefix + fmt.Sprintf("m%d-%d", c.number, i), entry{client: c.number, number: c.sent}.text()}
	}
	body, _ := json.Marshal(map[string]any{"items": items})
	a := c.send("POST", "/v1/mset", string(body))
	whole := c.outcome(a)
	said := map[string]outcome{}
	for _, i := range parseProblem(a.body).Items {
		if said[i.Key] = outcomeOf(i.Outcome, whole); i.Outcome == "" && a.status >= 500 {
			c.load.ledger.silence(fmt.Sprintf("mset, item %s: %d %.200q", i.Key, a.status, a.body))
		}
	}
	for _, i := range items {
		o, ok := said[i.Key]
		if !ok {
			o = whole
		}
		if o == applied {
			o = acked // an item says applied where a single write answers 200
		}
		c.load.ledger.set(i.Key, i.Value, o)
	}
	return a.failed()
}

// answer is what came back: a status, or an error of the connection.
type answer struct {
	method string
	path   string
	target string
	status int
	body   []byte
	err    error
	unsent bool // no connection was made
}

func (c *client) send(method, path, body string) answer {
	a := c.sendOnce(method, path, body)
	for tries := 1; a.unsent && c.load.gone != nil && tries < 3; tries++ {
		c.load.gone(a.target)
		a = c.sendOnce(method, path, body)
	}
	return a
}

func (c *client) sendOnce(method, path, body string) answer {
	a := answer{method: method, path: path, target: c.load.target()}
	req, err := http.NewRequest(method, "http://"+a.target+path, bytes.NewReader([]byte(body)))
	if err != nil {
		a.err = err
		return a
	}
	req.Header.Set("Authorization", "Bearer "+c.load.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		var dial *net.OpError
		a.err, a.unsent = err, errors.As(err, &dial) && dial.Op == "dial"
		return a
	}
	defer resp.Body.Close()
	a.status = resp.StatusCode
	if a.body, a.err = io.ReadAll(resp.Body); a.err != nil {
		a.status = 0
	}
	return a
}

// failed names what went wrong; "" is nothing.
func (a answer) failed() string {
	switch {
	case a.unsent:
		return "no connection"
	case a.err != nil:
		return "no answer"
	case a.status/100 == 2:
		return ""
	}
	return strconv.Itoa(a.status) + " " + parseProblem(a.body).Code
}

// outcome is what the client may believe of a write. A 5xx that says nothing is noted.
func (c *client) outcome(a answer) outcome {
	switch {
	case a.unsent:
		return notApplied
	case a.err != nil:
		return unknown
	case a.status/100 == 2:
		return acked
	case a.status < 500:
		return notApplied
	}
	p := parseProblem(a.body)
	if p.Outcome == "" && len(p.Items) == 0 {
		c.load.ledger.silence(fmt.Sprintf("%s %s: %d %.200q", a.method, a.path, a.status, a.body))
	}
	return outcomeOf(p.Outcome, unknown)
}

func outcomeOf(word string, otherwise outcome) outcome {
	switch word {
	case "applied":
		return applied
	case "not_applied":
		return notApplied
	case "unknown":
		return unknown
	}
	return otherwise
}
