package main

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slotgate/slotgate/acl"
)

// A storedPlace is the TLS of a stored cluster. It differs from that of a configured one in that it comes and goes while the gateway
// runs, that its files must lie in control.password_dir, and that they may come later than the cluster: until they are there nobody
// connects. Once they were read, bad ones leave the old ones in use as everywhere.
type storedPlace struct {
	certs *certificates
	cfg   Config
	name  string // of the cluster
	tls   acl.ClusterTLS
	state atomic.Pointer[tlsState] // nil = the files could not be used so far

	mu     sync.Mutex // one reading at a time
	broken string     // the faults of the last reading, as logged
}

// readStoredTLS reads the files of a stored cluster.
func readStoredTLS(cfg Config, name string, t acl.ClusterTLS, now time.Time) (*tlsState, faults) {
	r := newTLSReader(now)
	r.file = cfg.storedFile
	r.cluster("cluster "+name+": tls", ClusterTLS(t))
	return r.state()
}

// storedPlace is the TLS of a stored cluster, with what is known of it already; nil = it has none.
func (c *certificates) storedPlace(cfg Config, s *acl.Cluster) *storedPlace {
	if !s.TLS.Enabled {
		return nil
	}
	if p := c.storedPlaces()[clusterPlace(s.Name)]; p != nil && p.tls == s.TLS {
		return p
	}
	return &storedPlace{certs: c, cfg: cfg, name: s.Name, tls: s.TLS}
}

// storedPlaces are those of the stored clusters; not to be written.
func (c *certificates) storedPlaces() map[string]*storedPlace {
	if p := c.stored.Load(); p != nil {
		return *p
	}
	return nil
}

// keepStored takes those of the clusters that are stored now.
func (c *certificates) keepStored(places map[string]*storedPlace) { c.stored.Store(&places) }

// lookStored reads again what connections use; what could not be read so far, the next connection tries.
func (c *certificates) lookStored(ctx context.Context) {
	for _, place := range c.storedPlaces() {
		if place.state.Load() != nil {
			_ = place.look(ctx) // has logged it
		}
	}
}

// dialer connects to the nodes as certificates.dialer does. Files that cannot be used are a node that cannot be reached: they may be
// there at the next try, and nothing was sent.
func (p *storedPlace) dialer(timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return tlsDialer(timeout, func(ctx context.Context) (*tls.Config, error) {
		state := p.state.Load()
		if state == nil {
			if err := p.look(ctx); err != nil {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
			}
			state = p.state.Load()
		}
		return state.config, nil
	})
}

// look reads the files and takes what is good. The error is what is wrong with them.
func (p *storedPlace) look(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	state, found := readStoredTLS(p.cfg, p.name, p.tls, p.certs.now())
	p.note(ctx, found)
	if err := found.orNil(); err != nil {
		return err
	}
	if was := p.state.Load(); was == nil || was.sum != state.sum {
		p.state.Store(state)
		p.certs.log.InfoContext(ctx, "certificates were read", "place", clusterPlace(p.name), "expires", state.expires)
	}
	return nil
}

// note logs faults when they come and when they are gone, as certificates.note.
func (p *storedPlace) note(ctx context.Context, found faults) {
	text := ""
	if len(found) > 0 {
		text = found.Error()
	}
	if text == p.broken {
		return
	}
	p.broken = text
	switch {
	case text == "":
		p.certs.log.InfoContext(ctx, "certificates can be read again", "place", clusterPlace(p.name))
	case p.state.Load() == nil:
		p.certs.log.ErrorContext(ctx, "certificates cannot be used; nobody connects to the cluster until they can", "place", clusterPlace(p.name), "error", text)
	default:
		p.certs.log.ErrorContext(ctx, "certificates cannot be used; the old ones stay in use", "place", clusterPlace(p.name), "error", text,
			"expires", p.state.Load().expires)
	}
}

// outdated says that the files have become bad, and those before are in use.
func (p *storedPlace) outdated() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broken != "" && p.state.Load() != nil
}
