// Package localcluster starts Redis Clusters on loopback for `slotgate dev`, for tests and for the benchmark: real ones made
// of redis-server processes (Start), and an embedded imitation for machines without redis-server (StartEmbedded).
//
// It promises that nothing outlives the Cluster: no process, no goroutine and no temporary file after Close; and, should the
// whole program be killed, no process on Linux, and no process and no file after the next Start on any Unix. It is not for
// production: nothing here listens beyond 127.0.0.1 or takes care of data beyond what appendonly gives.
package localcluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// startTimeout ends a Start whose context has no deadline: ten times what six nodes need on a busy two-core machine.
const startTimeout = 60 * time.Second

// Options says which cluster to start. The zero value is three primaries without replicas in a temporary folder.
type Options struct {
	Primaries int // default 3, which is also the least that can fail over
	Replicas  int // per primary

	// Dir keeps the cluster's data between runs: a Start on the folder of an earlier cluster brings that one back, on its old
	// ports if they are free. Empty: a temporary folder, without persistence, removed by Close.
	Dir string

	Binary        string            // default redis-server, from PATH; valkey-server works as well
	ReplicaBinary string            // default Binary: another version for the replicas
	Args          []string          // more arguments for every process, after its configuration file
	Config        map[string]string // more directives, written as in redis.conf; they win over those of this package
	NodeTimeout   time.Duration     // cluster-node-timeout, default 1 s

	// With a Password, every node asks for it: of the default user, or of Username, and then the default user is off.
	Username, Password string

	// With TLS the nodes speak nothing else: to clients, who must show a certificate of the same authority, and to each other.
	TLS *TLS

	// Ports are the data ports, one per node, primaries first. Default: free ones.
	Ports []int
}

// TLS names the files, in PEM, of an authority and of one certificate by it for all nodes; it must hold for 127.0.0.1, to serve
// and to call.
type TLS struct{ CAFile, CertFile, KeyFile string }

// config is that of a client.
func (t *TLS) config() (*tls.Config, error) {
	authority, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}

// Cluster is a running cluster. Its methods are safe for concurrent use.
type Cluster struct {
	options Options
	folder  *Folder
	nodes   []*Node     // never changes after Start
	tls     *tls.Config // of Node.Client; nil = plain
	spawner *spawner

	closing sync.Once
	closed  error
}

// ErrNoServer is returned when the server program is not installed.
var ErrNoServer = errors.New("redis-server is not on PATH")

// ErrNoTLS is returned for Options.TLS when the server program was built without it.
var ErrNoTLS = errors.New("the server was built without TLS")

// Start starts a cluster and returns when every node agrees that all slots are served and all replicas are online. ctx bounds
// the start only; the cluster then runs until Close. It first clears away what killed programs have left behind.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, startTimeout)
		defer cancel()
	}
	if err := Sweep(); err != nil {
		return nil, err
	}
	c := &Cluster{options: o}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting a cluster: %w", err), c.Close())
	}
	return c, nil
}

// complete fills the defaults in and finds the programs.
func (o *Options) complete() error {
	if o.Primaries == 0 {
		o.Primaries = 3
	}
	if o.Primaries < 0 || o.Replicas < 0 {
		return fmt.Errorf("a cluster of %d primaries with %d replicas each", o.Primaries, o.Replicas)
	}
	if o.NodeTimeout == 0 {
		o.NodeTimeout = time.Second
	}
	if n := o.Primaries * (1 + o.Replicas); o.Ports != nil && len(o.Ports) != n {
		return fmt.Errorf("%d ports for %d nodes", len(o.Ports), n)
	}
	if o.Username != "" && o.Password == "" {
		return errors.New("a user name without a password")
	}
	if o.Binary == "" {
		o.Binary = "redis-server"
	}
	if o.ReplicaBinary == "" {
		o.ReplicaBinary = o.Binary
	}
	for _, binary := range []*string{&o.Binary, &o.ReplicaBinary} {
		path, err := exec.LookPath(*binary)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNoServer, err)
		}
		*binary = path
	}
	return nil
}

// prepare makes the folder and everything that Close has to take down again.
func (c *Cluster) prepare() error {
	var err error
	if c.folder, err = NewFolder(c.options.Dir); err != nil {
		return err
	}
	c.spawner = newSpawner()
	if t := c.options.TLS; t != nil {
		if c.tls, err = t.config(); err != nil {
			return fmt.Errorf("reading the certificates: %w", err)
		}
	}
	return nil
}

// Addrs returns the address of every node, primaries of the start first.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		addrs[i] = n.Addr
	}
	return addrs
}

// Nodes returns all nodes, primaries of the start first; node i and its replicas are i, i+Primaries, i+2*Primaries…
func (c *Cluster) Nodes() []*Node { return append([]*Node(nil), c.nodes...) }

// Node returns the node with this address, or nil.
func (c *Cluster) Node(addr string) *Node {
	for _, n := range c.nodes {
		if n.Addr == addr {
			return n
		}
	}
	return nil
}

// Dir returns the folder that holds the nodes' files.
func (c *Cluster) Dir() string { return c.folder.Path() }

// Close stops every process, waits for its end and removes what is temporary. A cluster with a Dir is stopped gracefully, so
// that its data is complete; the others are killed. Further calls return what the first returned.
func (c *Cluster) Close() error {
	c.closing.Do(func() { c.closed = c.close() })
	return c.closed
}

func (c *Cluster) close() error {
	var ending sync.WaitGroup
	for _, n := range c.nodes {
		ending.Go(func() {
			if c.options.Dir == "" {
				n.Kill()
			} else {
				n.Stop()
			}
			n.closeClient()
		})
	}
	ending.Wait()
	if c.spawner != nil {
		c.spawner.close()
	}
	if c.folder != nil {
		return c.folder.Close()
	}
	return nil
}
