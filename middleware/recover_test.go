package middleware_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
)

const canary = "canary-of-a-key"

func panics(_, v1 gin.IRouter) {
	v1.GET("/strings/:key", ok)
	v1.Any("/runtime", func(*gin.Context) { var m map[string]int; m[canary] = 1 })
	v1.GET("/text", func(*gin.Context) { panic("while handling " + canary) })
	v1.GET("/error", func(*gin.Context) { panic(errors.New(canary)) })
	v1.GET("/late", func(c *gin.Context) { c.String(200, "begun"); c.Writer.Flush(); panic("late") })
	v1.GET("/abort", func(*gin.Context) { panic(http.ErrAbortHandler) })
}

func TestPanicsBecomeInternalErrors(t *testing.T) {
	g := start(t, nil, panics)
	for _, path := range []string{"/v1/runtime", "/v1/text", "/v1/error"} {
		a := g.get(t, path)
		if a.status != 500 || a.code(t) != "internal" || strings.Contains(a.body, canary) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		if a := g.get(t, "/v1/strings/a"); a.status != 200 {
			t.Errorf("the request after it: %d", a.status)
		}
	}
	if p := g.do(t, "POST", "/v1/runtime", nil, "Authorization: Bearer "+goodKey).problem(t); p["outcome"] != "unknown" {
		t.Errorf("a write: %v", p)
	}
	if n := g.metric(t, "slotgate_http_panics_total", nil); n != 4 {
		t.Errorf("%v panics counted, want 4", n)
	}
	log := g.log.String()
	if !strings.Contains(log, "recover_test.go") || !strings.Contains(log, "assignment to entry in nil map") {
		t.Errorf("stack or text is missing in %s", log)
	}
	if strings.Contains(log, canary) {
		t.Error("the text of a panic, which may hold a key, is in the log")
	}
}

func TestConnectionIsReusedAfterAPanic(t *testing.T) {
	g := start(t, nil, panics)
	_, r := raw(t, g, strings.Repeat("GET /v1/text HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+goodKey+"\r\n\r\n", 3))
	for range 3 {
		if a := readAnswer(t, r); a.status != 500 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
}

func TestLatePanicsAndAbortsCutTheConnection(t *testing.T) {
	g := start(t, nil, panics)
	for _, path := range []string{"/v1/late", "/v1/abort"} {
		req, _ := http.NewRequest("POST", g.URL+path, nil) // not retried by the client
		req.Method = "GET"
		req.Header.Set("Authorization", "Bearer "+goodKey)
		req.Header.Set("Connection", "close")
		resp, err := g.Client().Do(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Errorf("%s: the answer looks complete", path)
		}
	}
	if n := g.metric(t, "slotgate_http_panics_total", nil); n != 1 {
		t.Errorf("%v panics counted, want 1: an abort is none", n)
	}
}
