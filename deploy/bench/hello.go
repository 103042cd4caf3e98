//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
)

// serveHello is the floor that no Gin handler can go below: the same sizes on the wire as a gateway's, and no work. Its arguments are the
// address, and the sizes of values it is asked for under /hello/SIZE/KEY.
func serveHello(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("usage: bench hello ADDRESS VALUE-SIZE…")
	}
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	for _, arg := range args[1:] {
		size, err := strconv.Atoi(arg)
		if err != nil {
			return fmt.Errorf("the value size: %w", err)
		}
		body := []byte(`{"value":"` + strings.Repeat("x", size) + `"}`)
		engine.GET("/hello/"+arg+"/:key", func(c *gin.Context) { c.Data(http.StatusOK, "application/json", body) })
		engine.PUT("/hello/"+arg+"/:key", func(c *gin.Context) {
			if _, err := io.Copy(io.Discard, c.Request.Body); err != nil {
				c.Status(http.StatusBadRequest)
				return
			}
			c.Status(http.StatusNoContent)
		})
	}
	return serveHTTP(ctx, args[0], engine)
}

// serveHTTP serves until ctx ends, HTTP/2 without TLS too.
func serveHTTP(ctx context.Context, addr string, h http.Handler) error {
	server := &http.Server{Addr: addr, Handler: h, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	stopped := make(chan error, 1)
	go func() { stopped <- server.ListenAndServe() }()
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}
