package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/middleware"
)

func TestDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		header string
		after  time.Duration
	}{
		"the default":      {"", time.Second},
		"lowered":          {"250", 250 * time.Millisecond},
		"lowered to least": {"1", time.Millisecond},
		"as it is":         {"1000", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // the clock moves only when everybody waits
				e := gin.New()
				e.Use(middleware.Errors(nil, nil), middleware.Deadline(middleware.NewLive(middleware.Settings{}), nil))
				began := time.Now()
				e.GET("/", func(c *gin.Context) {
					<-c.Request.Context().Done()
					_ = c.Error(c.Request.Context().Err())
				})
				req := httptest.NewRequest("GET", "/", nil)
				if c.header != "" {
					req.Header.Set("X-Request-Deadline-Ms", c.header)
				}
				w := httptest.NewRecorder()
				e.ServeHTTP(w, req)
				if took := time.Since(began); took != c.after {
					t.Errorf("ended after %v, want %v", took, c.after)
				}
				if w.Code != 504 || !strings.Contains(w.Body.String(), `"code":"backend_timeout"`) {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			})
		})
	}
}

// Contexts made below the gateway's own must be ended by it, and without a goroutine for each: goleak would see those.
func TestContextsBelowEndWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := gin.New()
		e.Use(middleware.Deadline(middleware.NewLive(middleware.Settings{Deadline: middleware.DeadlineConfig{Default: time.Second}}), nil))
		e.GET("/", func(c *gin.Context) {
			child, cancel := context.WithTimeout(c.Request.Context(), time.Hour)
			defer cancel()
			<-child.Done()
			if !errors.Is(child.Err(), context.DeadlineExceeded) {
				t.Errorf("the child ended with %v", child.Err())
			}
		})
		e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	})
}

func TestContextEndsWhenTheClientLeaves(t *testing.T) {
	left := make(chan error, 1)
	arrived := make(chan struct{})
	g := start(t, func(c *middleware.Config) {
		c.Deadline.Default = time.Minute
	}, func(_, v1 gin.IRouter) {
		v1.GET("/wait", func(c *gin.Context) {
			close(arrived)
			<-c.Request.Context().Done()
			left <- c.Request.Context().Err()
			_ = c.Error(c.Request.Context().Err())
		})
	})
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "GET", g.URL+"/v1/wait", nil)
	req.Header.Set("Authorization", "Bearer "+goodKey)
	go func() { <-arrived; cancel() }()
	if resp, err := g.Client().Do(req); err == nil {
		resp.Body.Close()
		t.Fatal("the client should have left")
	}
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler saw %v", err)
	}
	// Nobody failed: it is not counted among the 5xx.
	eventually(t, "it is counted as 499", func() bool {
		return g.metric(t, "slotgate_http_requests_total", map[string]string{"code": "499"}) == 1
	})
}
