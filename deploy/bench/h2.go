//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
)

// h2Conn is an HTTP/2 connection that some callers share. net/http's own client does the work, which costs the load generator several
// times what HTTP/1.1 does.
type h2Conn struct {
	transport *http.Transport
	host      string
}

// h2Request is a request taken apart once.
type h2Request struct {
	method string
	uri    string
	header http.Header
	body   []byte
}

func (c *crowd) parse() error {
	for _, raw := range c.requests {
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return err
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return err
		}
		req.Header.Del("Content-Length")
		c.parsed = append(c.parsed, &h2Request{req.Method, req.RequestURI, req.Header, body})
	}
	return nil
}

// h2For gives caller i its connection: the one of its group, which has one address.
func (c *crowd) h2For(i int, o order) *h2Conn {
	n := len(o.Addrs)
	place := i/(o.Streams*n)*n + i%n
	for len(c.h2) <= place {
		t := &http.Transport{Protocols: new(http.Protocols), MaxConnsPerHost: 1}
		t.Protocols.SetUnencryptedHTTP2(true)
		c.h2 = append(c.h2, &h2Conn{transport: t, host: o.Addrs[len(c.h2)%n]})
	}
	return c.h2[place]
}

func (h *h2Conn) ask(r *h2Request) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), roundGrace)
	defer cancel()
	u, err := url.ParseRequestURI(r.uri)
	if err != nil {
		return answer{}, err
	}
	u.Scheme, u.Host = "http", h.host
	req := (&http.Request{Method: r.method, URL: u, Header: r.header, ContentLength: int64(len(r.body))}).WithContext(ctx)
	if len(r.body) > 0 {
		req.Body = io.NopCloser(bytes.NewReader(r.body))
	}
	resp, err := h.transport.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	head := make([]byte, headSize)
	kept, err := io.ReadFull(resp.Body, head)
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // ReadFull returns these two bare
		return answer{Status: resp.StatusCode, Length: kept, Head: head[:kept]}, nil
	} else if err != nil {
		return answer{}, err
	}
	rest, err := io.Copy(io.Discard, resp.Body)
	return answer{Status: resp.StatusCode, Length: kept + int(rest), Head: head}, err
}

func (h *h2Conn) close() { h.transport.CloseIdleConnections() }
