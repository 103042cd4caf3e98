package acl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// Export writes a set in the form of the file storage, everything in the order of its name: with it the apps and keys of one storage
// can be kept, compared, and put into another. Keys are there as hashes, which open nothing without the secret they were made with.
// Revisions and last uses stay behind.
func Export(w io.Writer, set *Set) error {
	body := struct {
		Clusters []Cluster `yaml:"clusters,omitempty"`
		Apps     []App     `yaml:"apps"` // always there: a file without them is a bad one
		Keys     []Key     `yaml:"keys,omitempty"`
	}{values(set.Clusters), values(set.Apps), values(set.Keys)}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	return errors.Join(enc.Encode(body), enc.Close())
}

func values[T any](entries map[string]*T) []T {
	list := make([]T, 0, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		list = append(list, *entries[name])
	}
	return list
}

// ParseExport reads what Export wrote, or a file storage, and reports every fault with its line.
func ParseExport(r io.Reader) (*Set, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("it has more than %d bytes", maxFileBytes)
	}
	return parseFile(data)
}

// An Import is what a file would change: all of it was found possible on what is stored.
type Import struct {
	Changes []Change
	after   *Set
}

// PlanImport compares a set with what is stored, and writes nothing. What the set does not name stays as it is, so an import made again
// changes nothing. Every entry that cannot be taken is reported: an id or namespace that belongs, or belonged, to another app; what stays
// for ever; a deleted app or a revoked key that would live again; a rotated key that would live longer; an app that the set says is
// deleted, which only DeleteApp does to a living one.
func (a *Admin) PlanImport(ctx context.Context, set *Set) (*Import, error) {
	have, err := a.Storage.Load(ctx)
	if err != nil {
		return nil, err
	}
	p := importPlan{Import: Import{after: have.clone()}, admin: a, now: a.now()}
	for _, name := range slices.Sorted(maps.Keys(set.Clusters)) {
		p.cluster(set.Clusters[name])
	}
	for _, id := range slices.Sorted(maps.Keys(set.Apps)) {
		p.app(set.Apps[id])
	}
	for _, id := range slices.Sorted(maps.Keys(set.Keys)) {
		p.key(set.Keys[id])
	}
	for _, c := range p.deletions { // last, because a deleted app takes no keys
		p.add(c)
	}
	return &p.Import, p.faults.join()
}

// Import makes the changes of a plan, in its order. When one fails those before it are made; another plan of the same set holds the rest.
// On a file storage nothing is made, and the error holds the whole new file.
func (a *Admin) Import(ctx context.Context, plan *Import) error {
	if file, ok := a.Storage.(*File); ok {
		return file.prepareImport(ctx, plan, a.By)
	}
	for i, c := range plan.Changes {
		if err := a.apply(ctx, c); err != nil {
			return fmt.Errorf("after %d of %d changes: %s: %w", i, len(plan.Changes), c, err)
		}
	}
	return nil
}

// String names a change and what it is about.
func (c Change) String() string {
	switch {
	case c.App != nil:
		return fmt.Sprintf("%s %s", c.Op, c.App.ID)
	case c.Key != nil:
		return fmt.Sprintf("%s %s of %s", c.Op, c.Key.ID, c.Key.App)
	case c.Cluster != nil:
		return fmt.Sprintf("%s %s", c.Op, c.Cluster.Name)
	}
	return string(c.Op)
}

type importPlan struct {
	Import
	faults
	admin     *Admin
	now       time.Time
	deletions []Change
}

// add takes a change if it could be made on what is there after those before it.
func (p *importPlan) add(c Change) {
	c.At = p.now
	if err := checkOn(p.after, c); err != nil {
		p.faults = append(p.faults, fmt.Errorf("%s: %w", c, err))
		return
	}
	p.Changes = append(p.Changes, c)
	switch {
	case c.App != nil:
		app := *c.App
		app.Revision++
		p.after.Apps[app.ID] = &app
	case c.Key != nil:
		key := *c.Key
		key.Revision++
		p.after.Keys[key.ID] = &key
	case c.Cluster != nil:
		cluster := *c.Cluster
		cluster.Revision++
		p.after.Clusters[cluster.Name] = &cluster
	}
}

func (p *importPlan) cluster(want *Cluster) {
	is, have := *want, p.after.Clusters[want.Name]
	if slices.Contains(p.admin.Clusters, want.Name) && have == nil {
		p.fault("cluster", want.Name, "is one of the configuration file; leave it out")
		return
	}
	if have == nil {
		p.add(Change{Op: OpCreateCluster, Cluster: &is})
		return
	}
	is.Revision, is.CreatedAt = have.Revision, have.CreatedAt
	if !sameYAML(&is, have) {
		p.add(Change{Op: OpUpdateCluster, Cluster: &is})
	}
}

func (p *importPlan) app(want *App) {
	is, have := *want, p.after.Apps[want.ID]
	switch {
	case have == nil:
		deleted := is.State == Deleted
		if deleted {
			is.State = Suspended // for the moment between the two changes
		}
		known := p.admin.Clusters == nil || slices.Contains(p.admin.Clusters, is.Cluster) || deleted
		p.add(Change{Op: OpCreateApp, App: &is, StoredCluster: !known})
		if deleted && p.after.Apps[is.ID] != nil {
			gone := is
			gone.State, gone.Revision = Deleted, 1
			p.deletions = append(p.deletions, Change{Op: OpDeleteApp, App: &gone})
		}
	case is.State == Deleted && have.State != Deleted:
		p.fault("app", is.ID, "is deleted in the file and not here; delete it with app delete, or leave it out")
	default:
		is.Revision, is.CreatedAt = have.Revision, have.CreatedAt
		if !sameYAML(&is, have) {
			p.add(Change{Op: OpUpdateApp, App: &is})
		}
	}
}

func (p *importPlan) key(want *Key) {
	is, have := *want, p.after.Keys[want.ID]
	owner := p.after.Apps[is.App]
	switch {
	case have == nil && owner != nil && owner.State == Deleted:
		return // it would open nothing
	case have == nil:
		p.add(Change{Op: OpCreateKey, Key: &is})
		return
	case have.RevokedAt != nil && is.RevokedAt == nil:
		p.fault("key", is.ID, "is revoked here, which is for ever; leave it out")
		return
	case is.RevokedAt == nil && outlives(&is, have):
		p.fault("key", is.ID, "was rotated here, and ends sooner than in the file; leave it out")
		return
	}
	is.Revision, is.CreatedAt, is.LastUsedAt = have.Revision, have.CreatedAt, have.LastUsedAt
	if have.RevokedAt != nil {
		is.RevokedAt = have.RevokedAt
	}
	if !sameYAML(&is, have) {
		p.add(Change{Op: OpUpdateKey, Key: &is})
	}
}

// outlives says whether a key would go on for longer than a rotation has left it.
func outlives(want, have *Key) bool {
	if have.ReplacedBy == "" {
		return false
	}
	return want.ReplacedBy != have.ReplacedBy || have.ExpiresAt != nil && (want.ExpiresAt == nil || want.ExpiresAt.After(*have.ExpiresAt))
}

func (p *importPlan) fault(kind, id, detail string) {
	p.faults = append(p.faults, &Fault{Field: kind + " " + id, Detail: detail})
}

// sameYAML compares what an export shows, where an empty list and a missing one are the same.
func sameYAML(a, b any) bool {
	x, errX := yaml.Marshal(a)
	y, errY := yaml.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// clone copies the maps, not what they hold.
func (s *Set) clone() *Set {
	c := *s
	c.Apps, c.Keys, c.Clusters = cloneMap(s.Apps), cloneMap(s.Keys), cloneMap(s.Clusters)
	return &c
}

func cloneMap[T any](m map[string]*T) map[string]*T {
	c := make(map[string]*T, len(m))
	maps.Copy(c, m)
	return c
}

// prepareImport answers with the file as it would be. The audit has a line for each change.
func (f *File) prepareImport(ctx context.Context, plan *Import, by string) error {
	set, err := f.Load(ctx)
	if err != nil {
		return err
	}
	for _, c := range plan.Changes {
		c.By = by
		if err := f.record(set, c); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	fmt.Fprintln(&text, "# the whole new file")
	if err := Export(&text, plan.after); err != nil {
		return errors.Join(ErrReadOnly, err)
	}
	return &ReadOnlyError{Path: f.path, YAML: text.String()}
}
