package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
)

// configuredClusters are the clusters of the configuration as the store takes them.
func configuredClusters(cfg Config, certs *certificates) (map[string]store.ClusterConfig, error) {
	clusters := make(map[string]store.ClusterConfig, len(cfg.Clusters))
	for name, c := range cfg.Clusters {
		password, err := c.password()
		if err != nil {
			return nil, fmt.Errorf("reading the password of cluster %s: %w", name, err)
		}
		clusters[name] = store.ClusterConfig{
			Addrs: c.Addrs, Username: c.Username, Password: password,
			Dialer: certs.dialer(name, milliseconds(cfg.Redis.DialTimeoutMS)),
		}
	}
	return clusters, nil
}

// followClusters gives the store the stored clusters beside those of the configuration, which go first. The password of a stored one
// is read at each connection, so that the file may come later than the cluster, or change.
func (g *gateway) followClusters(storedOnes map[string]*acl.Cluster) {
	all := make(map[string]store.ClusterConfig, len(g.configured)+len(storedOnes))
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
	}
	maps.Copy(all, g.configured)
	g.store.SetClusters(all)
}

func (c Config) storedCluster(s *acl.Cluster) store.ClusterConfig {
	cc := store.ClusterConfig{Addrs: s.Addrs, Username: s.Username, ID: s.PasswordFile}
	if s.PasswordFile != "" {
		cc.PasswordFrom = func() (string, error) { return c.storedPassword(s.PasswordFile) }
	}
	return cc
}

// storedPassword reads the password of a stored cluster, from control.password_dir only: whoever may write the control store must not
// be able to have any file of a gateway's machine sent to a node of his.
func (c Config) storedPassword(path string) (string, error) {
	name, err := c.passwordName(path)
	if err != nil {
		return "", err
	}
	dir, err := os.OpenRoot(c.Control.PasswordDir)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	data, err := dir.ReadFile(name)
	if err != nil {
		return "", err
	}
	return passwordOf(data)
}

// passwordName is the path of a password file inside control.password_dir.
func (c Config) passwordName(path string) (string, error) {
	name, err := filepath.Rel(c.Control.PasswordDir, path)
	if err != nil || !filepath.IsLocal(name) || name == "." {
		return "", fmt.Errorf("password_file: %s is not in control.password_dir, %s", path, c.Control.PasswordDir)
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
			add(acl.Cluster{Name: name, Addrs: configured.Addrs, Username: configured.Username, PasswordFile: configured.PasswordFile}, fromConfig)
		}
		if s := set.Clusters[name]; s != nil && isConfigured {
			add(*s, shadowed)
		} else if s != nil {
			add(*s, fromStore)
		}
	}
	return all
}

// cluster finds a cluster, configured or stored.
func (c *control) cluster(ctx context.Context, name string) (Cluster, error) {
	if cluster, ok := c.cfg.Clusters[name]; ok {
		return cluster, nil
	}
	set, err := c.List(ctx)
	if err != nil {
		return Cluster{}, err
	}
	if s := set.Clusters[name]; s != nil {
		return c.cfg.fromStored(s)
	}
	return Cluster{}, c.noCluster(set, name)
}

// fromStored is a stored cluster as if it were configured, its password read.
func (c Config) fromStored(s *acl.Cluster) (Cluster, error) {
	cluster := Cluster{Addrs: s.Addrs, Username: s.Username}
	if s.PasswordFile == "" {
		return cluster, nil
	}
	password, err := c.storedPassword(s.PasswordFile)
	if err != nil {
		return Cluster{}, fmt.Errorf("reading the password of cluster %s: %w", s.Name, err)
	}
	cluster.Password = secret(password)
	return cluster, nil
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
