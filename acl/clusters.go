package acl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// AddCluster stores a cluster. The gateways connect to it when the first request for one of its apps comes.
func (a *Admin) AddCluster(ctx context.Context, c Cluster) (*Cluster, error) {
	c.CreatedAt, c.Revision = a.now(), 0
	if err := errors.Join(c.Validate(), a.notConfigured(c.Name)); err != nil {
		return nil, err
	}
	err := a.apply(ctx, Change{Op: OpCreateCluster, Cluster: &c})
	return stored(&c, &c.Revision, err)
}

// EditCluster changes a stored cluster through edit, as EditApp does for apps. Its name stays.
func (a *Admin) EditCluster(ctx context.Context, name string, edit func(*Cluster)) (*Cluster, error) {
	return a.changeCluster(ctx, OpUpdateCluster, name, edit)
}

// RemoveCluster forgets a cluster that no app uses; what is in it stays. Removing it while an app is on it is ErrInUse.
func (a *Admin) RemoveCluster(ctx context.Context, name string) (*Cluster, error) {
	return a.changeCluster(ctx, OpDeleteCluster, name, func(*Cluster) {})
}

func (a *Admin) changeCluster(ctx context.Context, op Op, name string, edit func(*Cluster)) (*Cluster, error) {
	var err error
	for range editTries {
		var set *Set
		if set, err = a.Storage.Load(ctx); err != nil {
			return nil, err
		}
		was := set.Clusters[name]
		if was == nil {
			return nil, errors.Join(a.notConfigured(name), fmt.Errorf("cluster %q: %w", name, ErrNotFound))
		}
		c := *was
		c.Addrs = slices.Clone(was.Addrs)
		edit(&c)
		c.Name, c.CreatedAt, c.Revision = was.Name, was.CreatedAt, was.Revision
		if err := introduced(was.Validate(), c.Validate()); err != nil {
			return nil, err
		}
		if err = a.apply(ctx, Change{Op: op, Cluster: &c}); !errors.Is(err, ErrConflict) {
			return stored(&c, &c.Revision, err)
		}
	}
	return nil, err
}

// notConfigured refuses a name of the gateways' configuration, which would go before what is stored.
func (a *Admin) notConfigured(name string) error {
	if !slices.Contains(a.Clusters, name) {
		return nil
	}
	return &Fault{Field: "name", Detail: fmt.Sprintf("%q is a cluster of the configuration file; change it there", name)}
}

// ClusterUsers lists the apps whose data is on a cluster, deleted ones aside.
func (s *Set) ClusterUsers(name string) (apps []string) {
	for _, id := range slices.Sorted(maps.Keys(s.Apps)) {
		if app := s.Apps[id]; app.Cluster == name && app.State != Deleted {
			apps = append(apps, id)
		}
	}
	return apps
}
