package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/store/metric"
)

// server is the TLS of a listener; nil = plain. Each handshake asks for what is current; open connections keep what they began with.
// Session tickets go on over a change, since the keys of this outer configuration are used.
//
// Connections over TLS are net/http's own, without what quietListener and ownAnswer spare: a quiet connection would have to
// lie above TLS, where net/http sees neither TLS nor HTTP/2. A GET costs 28 us of CPU so, 25 without TLS (37 by HTTP/2), all included;
// what quiet connections would save of that is 2 us at most.
func (c *certificates) server(place string) *tls.Config {
	if c.current(place) == nil {
		return nil
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current(place).config, nil },
	}
}

// admits says whether the peer of a request to the admin listener has shown the certificate that is asked for; true when none is.
func (c *certificates) admits(r *http.Request) bool {
	asked, shown := c.client(r)
	return !asked || shown
}

// client says whether a certificate is asked for at the admin listener, and whether the peer of a request has shown it, both by the
// settings of one moment. It is looked at with each request, not only at the handshake: connections are kept for days, and an
// authority that was removed or a certificate that has expired meanwhile must not go on opening.
func (c *certificates) client(r *http.Request) (asked, shown bool) {
	state := c.current(placeAdmin)
	if state == nil || state.config.ClientCAs == nil {
		return false, false
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return true, false
	}
	chain := r.TLS.PeerCertificates
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: state.config.ClientCAs, Intermediates: between, CurrentTime: c.now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return true, err == nil
}

// dialer connects to the nodes of a cluster with TLS, within timeout, handshake included; nil = the cluster has none. go-redis has a
// field for a tls.Config, but keeps the one it was given: here each connection takes what is current.
func (c *certificates) dialer(cluster string, timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	place := clusterPlace(cluster)
	if c.current(place) == nil {
		return nil
	}
	return tlsDialer(timeout, func(context.Context) (*tls.Config, error) { return c.current(place).config, nil })
}

// tlsDialer connects with what config says at the time. A handshake that fails is an error of dialling, as the store tells by it that
// nothing was sent.
func tlsDialer(timeout time.Duration, config func(context.Context) (*tls.Config, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: timeout, KeepAliveConfig: redisKeepAlive}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		current, err := config(ctx)
		if err != nil {
			return nil, err
		}
		d := tls.Dialer{NetDialer: plain, Config: current}
		conn, err := d.DialContext(ctx, network, addr)
		if op := (*net.OpError)(nil); err != nil && (!errors.As(err, &op) || op.Op != "dial") {
			err = &net.OpError{Op: "dial", Net: network, Err: err}
		}
		return conn, err
	}
}

// redisKeepAlive is go-redis' own for connections that it dials itself.
var redisKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// certificateExpiry tells at each scrape when the certificates in use expire.
type certificateExpiry struct{ certs *certificates }

var certificateExpiryDesc = metric.CertificateExpiry.Desc()

// Describe implements prometheus.Collector.
func (e certificateExpiry) Describe(ch chan<- *prometheus.Desc) { ch <- certificateExpiryDesc }

// Collect implements prometheus.Collector.
func (e certificateExpiry) Collect(ch chan<- prometheus.Metric) {
	for place := range e.certs.places {
		if expires := e.certs.current(place).expires; !expires.IsZero() {
			ch <- metric.CertificateExpiry.Const(certificateExpiryDesc, float64(expires.Unix()), place)
		}
	}
	for place, p := range e.certs.storedPlaces() {
		if state := p.state.Load(); state != nil && !state.expires.IsZero() {
			ch <- metric.CertificateExpiry.Const(certificateExpiryDesc, float64(state.expires.Unix()), place)
		}
	}
}
