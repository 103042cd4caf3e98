package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
)

// configuredClusters are the clusters of the configuration as the store takes them.
func configuredClusters(cfg Config, certs *certificates) (map[string]store.ClusterConfig, error) {
	clusters := make(map[string]store.ClusterConfig, len(cfg.Clusters))
	for name := range cfg.Clusters {
		cc, err := cfg.configuredCluster(name, certs)
		if err != nil {
			return nil, err
		}
		clusters[name] = cc
	}
	return clusters, nil
}

// configuredCluster is how a cluster of the configuration is reached, its password read.
func (c Config) configuredCluster(name string, certs *certificates) (store.ClusterConfig, error) {
	cluster := c.Clusters[name]
	password, err := cluster.password()
	if err != nil {
		return store.ClusterConfig{}, fmt.Errorf("reading the password of cluster %s: %w", name, err)
	}
	return store.ClusterConfig{
		Addrs: cluster.Addrs, Username: cluster.Username, Password: password,
		Dialer: certs.dialer(name, milliseconds(c.Redis.DialTimeoutMS)),
	}, nil
}

// followClusters gives the store the stored clusters beside those of the configuration, which go first. The password of a stored one
// is read at each connection, so that the file may come later than the cluster, or change.
func (g *gateway) followClusters(storedOnes map[string]*acl.Cluster) {
	all := make(map[string]store.ClusterConfig, len(g.configured)+len(storedOnes))
	places := map[string]*storedPlace{}
	for name, c := range storedOnes {
		if err := c.Validate(); err != nil { // written by a newer version or by hand
			g.log.Error("a stored cluster cannot be used and was left out", "cluster", name, "error", err)
			continue
		}
		if _, shadowed := g.configured[name]; shadowed {
			g.log.Warn("a stored cluster has the name of a configured one, which is used", "cluster", name)
			continue
		}
		all[name] = g.cfg.storedCluster(c)
		if place := g.certs.storedPlace(g.cfg, c); place != nil {
			places[clusterPlace(name)] = place
			cc := all[name]
			cc.Dialer = place.dialer(milliseconds(g.cfg.Redis.DialTimeoutMS))
			all[name] = cc
		}
	}
	g.certs.keepStored(places)
	maps.Copy(all, g.configured)
	g.store.SetClusters(all)
}

func (c Config) storedCluster(s *acl.Cluster) store.ClusterConfig {
	cc := store.ClusterConfig{Addrs: s.Addrs, Username: s.Username, ID: fmt.Sprintf("%q %#v", s.PasswordFile, s.TLS)}
	if s.PasswordFile != "" {
		cc.PasswordFrom = func() (string, error) { return c.storedPassword(s.PasswordFile) }
	}
	return cc
}

// maxPasswordFile bounds what is read, in bytes; Redis' own limit of a line of commands is 64 KiB.
const maxPasswordFile = 64 << 10

func (c Config) storedPassword(path string) (string, error) {
	data, err := c.storedFile(path, maxPasswordFile)
	if err != nil {
		return "", err
	}
	return passwordOf(data)
}

// storedFile reads a file that a stored cluster names, from control.password_dir only: whoever may write the control store must not
// be able to have any file of a gateway's machine sent to a node of his, nor to learn from an error what is in it.
func (c Config) storedFile(path string, limit int64) ([]byte, error) {
	name, err := c.storedName(path)
	if err != nil {
		return nil, err
	}
	dir, err := os.OpenRoot(c.Control.PasswordDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return readBounded(dir, name, limit)
}

// storedName is the path of a file inside control.password_dir.
func (c Config) storedName(path string) (string, error) {
	name, err := filepath.Rel(c.Control.PasswordDir, path)
	if err != nil || !filepath.IsLocal(name) || name == "." {
		return "", fmt.Errorf("%s is not in control.password_dir, %s", path, c.Control.PasswordDir)
	}
	return name, nil
}

// passwordOf takes the password out of a file.
func passwordOf(data []byte) (string, error) {
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if text == "" {
		return "", errors.New("the file is empty")
	}
	return text, nil
}

// The places a cluster may come from.
const (
	fromConfig = "config"
	fromStore  = "stored"
	shadowed   = "stored, not used" // the configuration has one of this name
)

// knownCluster is a cluster as cluster list shows it.
type knownCluster struct {
	acl.Cluster
	Origin string   `json:"origin"`
	Apps   []string `json:"apps"`
}

// MarshalJSON leaves out what only the storage wants to know.
func (k knownCluster) MarshalJSON() ([]byte, error) {
	type plain knownCluster
	return json.Marshal(struct {
		plain
		Revision bool `json:"revision,omitempty"` // shadows the real one
	}{plain: plain(k)})
}

// knownClusters are all clusters by name, those of the configuration first where two have one name.
func (c Config) knownClusters(set *acl.Set) []knownCluster {
	var all []knownCluster
	add := func(cluster acl.Cluster, origin string) {
		all = append(all, knownCluster{Cluster: cluster, Origin: origin, Apps: append([]string{}, set.ClusterUsers(cluster.Name)...)})
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(c.Clusters)), maps.Keys(set.Clusters))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		configured, isConfigured := c.Clusters[name]
		if isConfigured {
			add(acl.Cluster{
				Name: name, Addrs: configured.Addrs, Username: configured.Username, PasswordFile: configured.PasswordFile,
				TLS: acl.ClusterTLS(configured.TLS),
			}, fromConfig)
		}
		if s := set.Clusters[name]; s != nil && isConfigured {
			add(*s, shadowed)
		} else if s != nil {
			add(*s, fromStore)
		}
	}
	return all
}

// cluster finds a cluster, configured or stored, and how to reach it with what its files say now.
func (c *control) cluster(ctx context.Context, name string) (store.ClusterConfig, error) {
	if _, ok := c.cfg.Clusters[name]; ok {
		return c.cfg.currentCluster(name)
	}
	set, err := c.List(ctx)
	if err != nil {
		return store.ClusterConfig{}, err
	}
	if s := set.Clusters[name]; s != nil {
		return c.cfg.fromStored(s)
	}
	return store.ClusterConfig{}, c.noCluster(set, name)
}

// currentCluster is configuredCluster with the certificates as they are now.
func (c Config) currentCluster(name string) (store.ClusterConfig, error) {
	only := Config{Clusters: map[string]Cluster{name: c.Clusters[name]}}
	certs, err := newCertificates(only, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		return store.ClusterConfig{}, err
	}
	return c.configuredCluster(name, certs)
}

// fromStored is how the command line reaches a stored cluster. Its files are read now, so that the error tells of them.
func (c Config) fromStored(s *acl.Cluster) (store.ClusterConfig, error) {
	cc := store.ClusterConfig{Addrs: s.Addrs, Username: s.Username}
	if s.PasswordFile != "" {
		var err error
		if cc.Password, err = c.storedPassword(s.PasswordFile); err != nil {
			return store.ClusterConfig{}, fmt.Errorf("reading the password of cluster %s: %w", s.Name, err)
		}
	}
	if s.TLS.Enabled {
		state, found := readStoredTLS(c, s.Name, s.TLS, time.Now())
		if err := found.orNil(); err != nil {
			return store.ClusterConfig{}, err
		}
		cc.Dialer = tlsDialer(milliseconds(c.Redis.DialTimeoutMS), func(context.Context) (*tls.Config, error) { return state.config, nil })
	}
	return cc, nil
}

// knowsCluster refuses an app whose data would have no place.
func (c *control) knowsCluster(ctx context.Context, name string) error {
	if _, ok := c.cfg.Clusters[name]; ok {
		return nil
	}
	set, err := c.List(ctx)
	if err != nil || set.Clusters[name] != nil {
		return err
	}
	return c.noCluster(set, name)
}

func (c *control) noCluster(set *acl.Set, name string) error {
	var names []string
	for _, k := range c.cfg.knownClusters(set) {
		names = append(names, k.Name)
	}
	return usageError{fmt.Errorf("no cluster %q is configured or stored; there are %v", name, slices.Compact(names))}
}
