package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// countedListener counts the writes of its connections.
type countedListener struct {
	net.Listener
	mu     sync.Mutex
	writes int
}

type countedConn struct {
	net.Conn
	l *countedListener
}

func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{c, l}, nil
}

func (c countedConn) Write(p []byte) (int, error) {
	c.l.mu.Lock()
	c.l.writes++
	c.l.mu.Unlock()
	return c.Conn.Write(p)
}

func (l *countedListener) take() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.writes
	l.writes = 0
	return n
}

func TestACorkedAnswerIsOneWrite(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	counted := &countedListener{Listener: inner}
	body := strings.Repeat("0123456789", 2000)
	type connKey struct{}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(connKey{}).(*quietConn)
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		switch r.URL.Path {
		case "/corked":
			conn.cork.put(len(body))
		case "/broken":
			conn.cork.put(len(body))
			_, _ = io.WriteString(w, body[:100])
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, body)
	})}
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(quietListener{counted}) }()
	defer func() { _ = s.Close(); <-done }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path string) (string, error) {
		resp, err := client.Get("http://" + inner.Addr().String() + path)
		if err != nil {
			return "", err
		}
		defer func() { _ = resp.Body.Close() }()
		got, err := io.ReadAll(resp.Body)
		return string(got), err
	}
	for _, path := range []string{"/plain", "/corked", "/corked", "/plain"} {
		got, err := get(path)
		if err != nil || got != body {
			t.Fatalf("%s: %d bytes, %v", path, len(got), err)
		}
		if n := counted.take(); (n == 1) != (path == "/corked") {
			t.Errorf("%s took %d writes", path, n)
		}
	}
	if got, err := get("/broken"); err == nil {
		t.Errorf("an answer that was broken off arrived as %d bytes", len(got))
	}
	if got, err := get("/corked"); err != nil || got != body {
		t.Errorf("after it: %d bytes, %v", len(got), err)
	}
}
