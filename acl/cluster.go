package acl

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// maxAddrs bounds the seeds of a cluster: one that answers is enough, and each is dialled while none does.
const maxAddrs = 100

// A Cluster says how to reach one Redis Cluster that is not in the gateways' configuration. The password itself is never stored: each
// gateway reads it from its own file. Loaded clusters are shared and must not be changed.
type Cluster struct {
	Name         string   `json:"name" yaml:"name"`
	Addrs        []string `json:"addrs" yaml:"addrs"`
	Username     string   `json:"username,omitempty" yaml:"username,omitempty"`
	PasswordFile string   `json:"password_file,omitempty" yaml:"password_file,omitempty"`
	// TLS is how its nodes are spoken to; zero = without.
	TLS       ClusterTLS `json:"tls,omitzero" yaml:"tls,omitempty"`
	CreatedAt time.Time  `json:"created_at,omitzero" yaml:"created_at,omitempty"`

	Revision int64 `json:"revision,omitempty" yaml:"-"` // as App.Revision
}

// ClusterTLS is the TLS of a stored cluster, by the names that clusters.NAME.tls has in the configuration. Files are whole paths,
// read by each gateway as the password file is; none of what is in them is stored.
type ClusterTLS struct {
	Enabled    bool   `json:"enabled" yaml:"enabled"`
	CAFile     string `json:"ca_file,omitempty" yaml:"ca_file,omitempty"`         // authorities of the nodes; "" = the system's
	CertFile   string `json:"cert_file,omitempty" yaml:"cert_file,omitempty"`     // shown to the nodes; "" = none
	KeyFile    string `json:"key_file,omitempty" yaml:"key_file,omitempty"`       // its private key
	ServerName string `json:"server_name,omitempty" yaml:"server_name,omitempty"` // of every node; "" = that under which it is reached
}

// Validate reports every fault of the cluster, each a *Fault naming the field and a right value. It opens no connection and no file.
func (c *Cluster) Validate() error {
	var f faults
	if !clusterPattern.MatchString(c.Name) {
		f.add("name", "%q is not a cluster name; use 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit, such as eu-1", c.Name)
	}
	if n := len(c.Addrs); n == 0 || n > maxAddrs {
		f.add("addrs", "has %d addresses; write 1 to %d of the nodes, such as 10.0.0.1:6379", n, maxAddrs)
	}
	for i, addr := range c.Addrs {
		if problem := AddrProblem(addr); problem != "" {
			f.add(fmt.Sprintf("addrs[%d]", i), "%s", problem)
		}
	}
	if len(c.Username) > maxNameBytes || strings.ContainsFunc(c.Username, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }) {
		f.add("username", "%q is not a Redis user; use up to %d printable characters without blanks", c.Username, maxNameBytes)
	}
	f.path("password_file", c.PasswordFile)
	c.TLS.validate(&f)
	return f.join()
}

// maxHostName is the longest name of a host, in bytes (RFC 1035).
const maxHostName = 253

func (t ClusterTLS) validate(f *faults) {
	f.path("tls.ca_file", t.CAFile)
	f.path("tls.cert_file", t.CertFile)
	f.path("tls.key_file", t.KeyFile)
	switch {
	case t.CertFile != "" && t.KeyFile == "":
		f.add("tls.key_file", "is empty; write the file with the private key of tls.cert_file")
	case t.CertFile == "" && t.KeyFile != "":
		f.add("tls.cert_file", "is empty; write the file with the certificate of tls.key_file")
	}
	if len(t.ServerName) > maxHostName || strings.ContainsFunc(t.ServerName, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }) {
		f.add("tls.server_name", "%q is not the name of a host; write one such as redis.example", t.ServerName)
	}
	if !t.Enabled && t != (ClusterTLS{}) {
		f.add("tls.enabled", "is false, and so the other settings of tls do nothing; write true")
	}
}

// path looks at the path of a file of the gateways; "" is none.
func (f *faults) path(field, path string) {
	if path != "" && (!filepath.IsAbs(path) || strings.ContainsFunc(path, unicode.IsControl)) {
		f.add(field, "%q must be a whole path, since every gateway reads it", path)
	}
}

// AddrProblem says what is wrong with the address of a node, "" for nothing. What may hold a password is not quoted back.
func AddrProblem(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	n, portErr := strconv.Atoi(port)
	switch {
	case strings.Contains(addr, "@"):
		return "an address holds a user or password; write host:port here and these in username and password_file"
	case strings.Contains(addr, "://"):
		return fmt.Sprintf("%q is a URL; write host:port, for example 10.0.0.1:6379", addr)
	case err != nil || portErr != nil || host == "" || n < 1 || n > 65535:
		return fmt.Sprintf("%q is not host:port; write for example 10.0.0.1:6379", addr)
	}
	return ""
}

// CheckCluster does for clusters what CheckApp does for apps; users are the ids of the apps on the stored one, deleted ones aside.
func (c Change) CheckCluster(stored *Cluster, users []string) error {
	name := c.Cluster.Name
	switch {
	case c.Op == OpCreateCluster && stored == nil:
		return nil
	case c.Op == OpCreateCluster:
		return fmt.Errorf("cluster %q: %w", name, ErrExists)
	case stored == nil:
		return fmt.Errorf("cluster %q: %w", name, ErrNotFound)
	case stored.Revision != c.Cluster.Revision:
		return fmt.Errorf("cluster %q: %w", name, ErrConflict)
	case c.Op == OpDeleteCluster && len(users) > 0:
		return fmt.Errorf("cluster %q holds the data of %s: %w", name, strings.Join(users, ", "), ErrInUse)
	case c.Op == OpDeleteCluster:
		return nil
	}
	return introduced(stored.Validate(), c.Cluster.Validate())
}

// NoCluster is the error of a new app whose cluster is stored no more.
func NoCluster(name string) error {
	return &Fault{Field: "cluster", Detail: fmt.Sprintf("there is no cluster %q", name)}
}
