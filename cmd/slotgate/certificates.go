package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The places where a gateway speaks TLS are its two listeners, and each cluster by clusterPlace. The names stand in logs and metrics.
const (
	placeAPI   = "api"
	placeAdmin = "admin"
)

func clusterPlace(cluster string) string { return "cluster-" + cluster }

// certificatesEvery is how often the files are read again by themselves: tools that renew certificates do so days before the old
// ones expire, and a minute is short beside what an operator waits before looking.
const certificatesEvery = time.Minute

// tlsVersions are the values of min_version. What is older than 1.2 is broken.
var tlsVersions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// tlsState is what the settings and files of one place gave at one moment. It never changes.
type tlsState struct {
	config  *tls.Config
	expires time.Time // of our own certificate; zero = there is none
	sum     [sha256.Size]byte
}

// certificates hold the TLS of all places of one gateway. Connections take what is current when they begin; reading again replaces
// it, place by place, and leaves it alone where a file is bad.
type certificates struct {
	log    *slog.Logger
	now    func() time.Time
	places map[string]*atomic.Pointer[tlsState] // never changes: TLS is not switched on or off while the gateway runs

	// stored are those of the stored clusters that speak TLS, by place, replaced as a whole; nil = none.
	stored atomic.Pointer[map[string]*storedPlace]

	mu     sync.Mutex // one reading at a time
	cfg    Config
	broken map[string]string // the faults of each place at the last reading, so that they are logged when they come, not each minute
}

// newCertificates reads the files of all places. The error names the settings.
func newCertificates(cfg Config, log *slog.Logger, now func() time.Time) (*certificates, error) {
	c := &certificates{log: log, now: now, cfg: cfg, places: map[string]*atomic.Pointer[tlsState]{}, broken: map[string]string{}}
	states, found := readTLS(cfg, now())
	if err := found.orNil(); err != nil {
		return nil, err
	}
	for place, state := range states {
		c.places[place] = new(atomic.Pointer[tlsState])
		c.places[place].Store(state)
	}
	return c, nil
}

// current is the TLS of a place; nil = it speaks none.
func (c *certificates) current(place string) *tlsState {
	if p := c.places[place]; p != nil {
		return p.Load()
	}
	return nil
}

// watch reads the files again each interval until ctx ends.
func (c *certificates) watch(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			c.look(ctx)
		}
	}
}

// look takes what has changed at each place. A bad file harms its own place only.
func (c *certificates) look(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, place := range slices.Sorted(maps.Keys(c.places)) {
		state, found := readPlace(c.cfg, place, c.now())
		c.note(ctx, place, found)
		if len(found) == 0 {
			c.take(ctx, place, state)
		}
	}
	c.lookStored(ctx)
}

// prepare reads the files of all places as cfg names them. Nothing is changed until commit(true); commit must be called once it is
// known whether to, and what is called later does nothing.
func (c *certificates) prepare(cfg Config) (commit func(bool), found faults) {
	c.mu.Lock()
	states, found := readTLS(cfg, c.now())
	done := false
	return func(take bool) {
		if done {
			return
		}
		done = true
		defer c.mu.Unlock()
		if !take {
			return
		}
		c.cfg = cfg
		for place, state := range states {
			c.note(context.Background(), place, nil)
			c.take(context.Background(), place, state)
		}
		c.lookStored(context.Background())
	}, found
}

// note logs faults when they come and when they are gone.
func (c *certificates) note(ctx context.Context, place string, found faults) {
	text := ""
	if len(found) > 0 {
		text = found.Error()
	}
	if text == c.broken[place] {
		return
	}
	c.broken[place] = text
	if text == "" {
		c.log.InfoContext(ctx, "certificates can be read again", "place", place)
		return
	}
	c.log.ErrorContext(ctx, "certificates cannot be used; the old ones stay in use", "place", place, "error", text,
		"expires", c.places[place].Load().expires)
}

func (c *certificates) take(ctx context.Context, place string, state *tlsState) {
	if c.places[place].Load().sum == state.sum {
		return
	}
	c.places[place].Store(state)
	c.log.InfoContext(ctx, "certificates were replaced", "place", place, "expires", state.expires)
}

// good says whether the last reading of every place was fine.
func (c *certificates) good() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range c.broken {
		if text != "" {
			return false
		}
	}
	for _, place := range c.storedPlaces() {
		if place.outdated() {
			return false
		}
	}
	return true
}

// tlsPlaces names the places of a configuration that speak TLS.
func tlsPlaces(cfg Config) []string {
	var places []string
	if cfg.TLS.CertFile != "" {
		places = append(places, placeAPI)
	}
	if cfg.AdminTLS.CertFile != "" {
		places = append(places, placeAdmin)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Clusters)) {
		if cfg.Clusters[name].TLS.Enabled {
			places = append(places, clusterPlace(name))
		}
	}
	return places
}

// readTLS reads the files of all places of a configuration.
func readTLS(cfg Config, now time.Time) (map[string]*tlsState, faults) {
	states := map[string]*tlsState{}
	var all faults
	for _, place := range tlsPlaces(cfg) {
		state, found := readPlace(cfg, place, now)
		states[place] = state
		all = append(all, found...)
	}
	return states, all
}

// readPlace reads the files of one place that speaks TLS.
func readPlace(cfg Config, place string, now time.Time) (*tlsState, faults) {
	r := newTLSReader(now)
	switch place {
	case placeAPI:
		r.listener("tls", cfg.TLS.CertFile, cfg.TLS.KeyFile, cfg.TLS.MinVersion)
		if cfg.HTTP.H2 {
			r.config.NextProtos = []string{"h2", "http/1.1"}
		}
	case placeAdmin:
		a := cfg.AdminTLS
		r.listener("admin_tls", a.CertFile, a.KeyFile, a.MinVersion)
		if a.ClientCAFile != "" {
			r.config.ClientCAs = r.pool("admin_tls.client_ca_file", a.ClientCAFile)
			r.config.ClientAuth = tls.VerifyClientCertIfGiven // who has none still gets /livez, see adminGuard
			r.config.SessionTicketsDisabled = true            // each connection is checked against the authorities of its time
		}
	default:
		for name, cluster := range cfg.Clusters {
			if clusterPlace(name) == place {
				r.cluster("clusters."+name+".tls", cluster.TLS)
			}
		}
	}
	return r.state()
}

// tlsReader fills a tls.Config from files and collects what is wrong with them.
type tlsReader struct {
	file    func(path string, limit int64) ([]byte, error)
	found   validation
	now     time.Time
	config  *tls.Config
	expires time.Time
	seen    []byte // all that was read, to tell whether it has changed
}

func newTLSReader(now time.Time) *tlsReader {
	return &tlsReader{file: readFile, now: now, config: &tls.Config{MinVersion: tls.VersionTLS12}}
}

func (r *tlsReader) state() (*tlsState, faults) {
	return &tlsState{config: r.config, expires: r.expires, sum: sha256.Sum256(r.seen)}, faults(r.found)
}

func (r *tlsReader) listener(group, cert, key, version string) {
	r.config.MinVersion = tlsVersions[version]
	r.config.NextProtos = []string{"http/1.1"}
	r.pair(group, cert, key)
	r.note(version)
}

func (r *tlsReader) cluster(group string, t ClusterTLS) {
	r.config.ServerName = t.ServerName
	if t.CAFile != "" {
		r.config.RootCAs = r.pool(group+".ca_file", t.CAFile)
	}
	if t.CertFile != "" {
		r.pair(group, t.CertFile, t.KeyFile)
	}
	r.note(t.ServerName)
}

// pair reads a certificate, the chain behind it and its key.
func (r *tlsReader) pair(group, certFile, keyFile string) {
	certPEM, key := r.read(group+".cert_file", certFile), r.read(group+".key_file", keyFile)
	if certPEM == nil || key == nil {
		return
	}
	chain, err := parseCertificates(certPEM)
	if err != nil {
		r.found.fault(group+".cert_file", "%s: %v", certFile, err)
		return
	}
	pair, err := tls.X509KeyPair(certPEM, key)
	if err != nil {
		r.found.fault(group+".key_file", "%s is not the key of %s: %v", keyFile, certFile, err)
		return
	}
	switch own := chain[0]; { // those behind it may be old: chains carry some that clients pass over
	case r.now.After(own.NotAfter):
		r.found.fault(group+".cert_file", "%s: the certificate expired at %s; renew it", certFile, own.NotAfter.Format(time.RFC3339))
	case r.now.Before(own.NotBefore):
		r.found.fault(group+".cert_file", "%s: the certificate is not valid before %s; look at this machine's clock",
			certFile, own.NotBefore.Format(time.RFC3339))
	}
	r.expires = chain[0].NotAfter
	r.config.Certificates = []tls.Certificate{pair}
}

// pool reads authorities. Expired ones among them are no fault: bundles have some, and they open nothing.
func (r *tlsReader) pool(field, file string) *x509.CertPool {
	data := r.read(field, file)
	if data == nil {
		return nil
	}
	authorities, err := parseCertificates(data)
	if err != nil {
		r.found.fault(field, "%s: %v", file, err)
		return nil
	}
	pool := x509.NewCertPool()
	for _, a := range authorities {
		pool.AddCert(a)
	}
	return pool
}

// maxTLSFile bounds what is read, in bytes; the system's bundle of authorities is a quarter of it.
const maxTLSFile = 1 << 20

// read is nil for a file that cannot be read, and for one that is not named, which Config.Validate knows.
func (r *tlsReader) read(field, file string) []byte {
	if file == "" {
		return nil
	}
	data, err := r.file(file, maxTLSFile)
	if err != nil {
		r.found.fault(field, "%v", err)
		return nil
	}
	r.note(string(data))
	return data
}

func (r *tlsReader) note(text string) {
	sum := sha256.Sum256([]byte(text)) // of one length, so that what follows each other cannot be taken for something else
	r.seen = append(r.seen, sum[:]...)
}

func readFile(path string, limit int64) ([]byte, error) { return readBounded(anywhere{}, path, limit) }

// folder is where files are read: an os.Root, or anywhere.
type folder interface {
	Stat(name string) (os.FileInfo, error)
	ReadFile(name string) ([]byte, error)
}

type anywhere struct{}

func (anywhere) Stat(name string) (os.FileInfo, error) { return os.Stat(name) }
func (anywhere) ReadFile(name string) ([]byte, error)  { return os.ReadFile(name) }

func readBounded(in folder, file string, limit int64) ([]byte, error) {
	info, err := in.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", file)
	case info.Size() > limit:
		return nil, fmt.Errorf("%s has more than %d bytes", file, limit)
	}
	return in.ReadFile(file)
}

// parseCertificates reads all certificates of a PEM file, at least one.
func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("it holds no certificate in PEM form")
	}
	return certs, nil
}
