package falcon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
)

// Item is one figure as Open-Falcon's agents take it; they want all seven fields.
type Item struct {
	Metric      string  `json:"metric"`
	Endpoint    string  `json:"endpoint"`
	Timestamp   int64   `json:"timestamp"` // Unix seconds, a multiple of Step
	Step        int64   `json:"step"`      // seconds
	Value       float64 `json:"value"`
	CounterType string  `json:"counterType"` // GAUGE, or COUNTER: one that only grows, of which the agent makes a rate
	Tags        string  `json:"tags"`        // k=v,k=v; "" = none
}

const (
	resultSent    = "sent"
	resultDropped = "dropped"
)

// Why a POST failed. Refused is every failure to speak to the target but being late.
const (
	reasonTimeout = "timeout"
	reasonRefused = "refused"
	reasonStatus  = "status"
)

var reasons = []string{reasonTimeout, reasonRefused, reasonStatus}

// maxAnswer is how much of an answer is read, in bytes; agents say "success".
const maxAnswer = 4 << 10

// newClient speaks to the agent straight: a proxy of the environment is for other hosts, and an agent that redirects is not one.
func newClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{MaxIdleConns: 1, IdleConnTimeout: defaultTimeout, MaxResponseHeaderBytes: maxAnswer},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// push sends the items in chunks, one after the other, each once. After a failure it goes on with the next chunk: the agent may be
// there again. It logs one line at the most.
func (p *Pusher) push(ctx context.Context, items []Item) {
	var failed error
	dropped := 0
	for len(items) > 0 {
		chunk := items[:min(p.cfg.Chunk, len(items))]
		items = items[len(chunk):]
		result := resultSent
		if reason, err := p.post(ctx, chunk); err != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				return // the gateway stops, which is nobody's failure
			}
			p.failures.WithLabelValues(reason).Inc()
			result, failed, dropped = resultDropped, err, dropped+len(chunk)
		}
		p.items.WithLabelValues(result).Add(float64(len(chunk)))
	}
	if failed != nil {
		p.log.Warn("pushing metrics", "error", failed, "dropped", dropped)
	}
}

// post sends one chunk. An answer that does not end in time is a failure too, though the agent may have taken the items.
func (p *Pusher) post(ctx context.Context, chunk []Item) (reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	body, err := json.Marshal(chunk)
	if err != nil {
		return reasonRefused, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return reasonRefused, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return reasonOf(err), err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return reasonOf(err), err
	}
	if resp.StatusCode/100 != 2 {
		return reasonStatus, fmt.Errorf("the target answered %s", resp.Status)
	}
	return "", nil
}

func reasonOf(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return reasonTimeout
	}
	return reasonRefused
}
