package main

import (
	"bytes"
	"context"
	"errors"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/slotgate/slotgate/acl/alive"
)

func (g *gateway) newAPIServer(registry prometheus.Registerer) *http.Server {
	h := g.cfg.HTTP
	s := newServer(h, g.log)
	s.TLSConfig = g.certs.server(placeAPI)
	s.Handler = closeAfterDoubtfulFraming(ownHeaders(g.newAPIHandler(registry)))
	s.WriteTimeout = milliseconds(h.WriteTimeoutMS)
	s.Protocols.SetHTTP2(h.H2 && s.TLSConfig != nil)
	s.Protocols.SetUnencryptedHTTP2(h.H2C)
	s.ConnContext = withQuietConn
	s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: h.MaxConcurrentStreams, WriteByteTimeout: milliseconds(h.WriteTimeoutMS)}
	return s
}

// newServer has everything both servers bound: a client that sends nothing, slowly or too much is cut off.
func newServer(h HTTP, log *slog.Logger) *http.Server {
	s := &http.Server{
		ReadHeaderTimeout: milliseconds(h.ReadHeaderTimeoutMS),
		ReadTimeout:       milliseconds(h.ReadTimeoutMS),
		IdleTimeout:       milliseconds(h.IdleTimeoutMS),
		MaxHeaderBytes:    h.MaxHeaderBytes,
		ErrorLog:          stdlog.New(serverLog{log}, "", 0),
		Protocols:         new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	return s
}

// serverLog is the log of net/http. Failed handshakes are for those who debug: anybody who finds the port makes them, a scanner by
// the thousand.
type serverLog struct{ log *slog.Logger }

// Write implements io.Writer.
func (l serverLog) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}

// run serves on both listeners until ctx ends or a server fails, and returns when all of it has come to its end. The
// directory goes on until the last request is answered.
func (g *gateway) run(ctx context.Context, api, admin net.Listener) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, failed := errgroup.WithContext(background)
	beside := func(what string, work func(context.Context) error) {
		group.Go(func() (err error) {
			alive.Loop(background, g.log, what, func(ctx context.Context) { err = work(ctx) })
			return err
		})
	}
	beside("apps and keys", g.directory.Run)
	if g.cfg.Push.URL != "" {
		beside("pushing figures", g.push.Run)
	}
	beside("tokens of others", g.verifier.Run)
	beside("forgetting limits", g.forgetLimits)
	beside("looking after pools", func(ctx context.Context) error { g.pools.Run(ctx); return nil })
	beside("watching certificates", func(ctx context.Context) error { return g.certs.watch(ctx, certificatesEvery) })
	beside("watching the process", g.watchPressure)
	beside("waiting for a hangup", func(ctx context.Context) error { g.reload.onHangup(ctx); return nil })
	api = g.connections.listener(api)
	if h := g.cfg.HTTP; !h.NoticeDisconnect && !h.H2C && g.api.TLSConfig == nil {
		api = quietListener{api}
	}
	group.Go(func() error { return serveUntilShutdown(g.api, api) })
	group.Go(func() error { return serveUntilShutdown(g.admin, admin) })
	group.Go(func() error {
		defer stop()
		select {
		case <-ctx.Done():
		case <-failed.Done():
		}
		return g.shutDown(failed)
	})
	return group.Wait()
}

func serveUntilShutdown(s *http.Server, l net.Listener) error {
	serve := s.Serve
	if s.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// adminShutdown is enough for a scrape under way; nothing depends on it.
const adminShutdown = time.Second

// shutDown ends the gateway in order: not ready, but serving, until load balancers have looked away (each answer asks
// its client to connect anew, elsewhere); then no new connections, and what runs comes to its end. Idle connections
// stay open until then: a request may be on its way on any of them. The admin listener closes last, so that the drain
// can be watched.
func (g *gateway) shutDown(failed context.Context) error {
	g.drain.Start()
	delay, timeout := milliseconds(g.cfg.HTTP.DrainDelayMS), milliseconds(g.cfg.HTTP.ShutdownTimeoutMS)
	g.log.Info("draining", "delay", delay, "timeout", timeout, "in_flight", g.drain.InFlight())
	_ = wait(failed, delay) // a server that failed has nobody to wait for

	ctx, cancel := context.WithTimeout(context.WithoutCancel(failed), timeout)
	defer cancel()
	err := g.api.Shutdown(ctx)
	if err != nil {
		err = errors.Join(errors.New("requests were cut off, http.shutdown_timeout_ms was too short for them"), g.api.Close())
	}
	ctx, cancelAdmin := context.WithTimeout(context.WithoutCancel(failed), adminShutdown)
	defer cancelAdmin()
	if g.admin.Shutdown(ctx) != nil {
		_ = g.admin.Close()
	}
	return err
}
