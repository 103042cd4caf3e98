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
// address and the size of a value.
func serveHello(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: bench hello ADDRESS VALUE-SIZE")
	}
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("the value size: %w", err)
	}
	body := []byte(`{"value":"` + strings.Repeat("x", size) + `"}`)
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.GET("/hello/:key", func(c *gin.Context) { c.Data(http.StatusOK, "application/json", body) })
	engine.PUT("/hello/:key", func(c *gin.Context) {
		if _, err := io.Copy(io.Discard, c.Request.Body); err != nil {
			c.Status(http.StatusBadRequest)
			return
		}
		c.Status(http.StatusNoContent)
	})
	server := &http.Server{Addr: args[0], Handler: engine}
	stopped := make(chan error, 1)
	go func() { stopped <- server.ListenAndServe() }()
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}
