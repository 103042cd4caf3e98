package acl

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	fileInterval = time.Second
	maxFileBytes = 16 << 20 // some 50,000 keys; more belongs into Redis
	// racyWindow is how young a file may be and still change without its time or size changing, on the coarsest file systems in use.
	racyWindow = 2 * time.Second
)

// A File is a Storage in one YAML file that people write and slotgate only reads. It is looked at once a second and taken whole or not
// at all: while it is bad, Load gives its faults, each with its line, and whoever holds the last set keeps it. Replace the file by a
// rename, so that it is never seen half written. Make one with NewFile.
type File struct {
	path     string
	interval time.Duration

	Heard

	mu     sync.Mutex
	info   os.FileInfo // as of the last complete read; nil before
	readAt time.Time
	sum    [sha256.Size]byte
	reads  int // of another content than the one before, by whoever looked
	set    *Set
	err    error
}

// NewFile follows the file at path, which need not exist yet, looking at it each interval; 0 is each second.
func NewFile(path string, interval time.Duration) *File {
	if interval <= 0 {
		interval = fileInterval
	}
	return &File{path: path, interval: interval}
}

// Load reads the file, unless it is the one read before.
func (f *File) Load(ctx context.Context) (*Set, error) {
	set, err := f.load()
	f.Note(time.Now(), err)
	return set, err
}

func (f *File) load() (*Set, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, fmt.Errorf("reading apps: %w", err)
	}
	if f.unchanged(info) {
		return f.set, f.err
	}
	readAt := time.Now()
	data, err := f.read(info)
	if err != nil {
		return nil, fmt.Errorf("reading apps: %w", err)
	}
	sum := sha256.Sum256(data)
	if f.info == nil || sum != f.sum {
		f.sum = sum
		f.reads++
		f.set, f.err = parseFile(data)
		if f.err != nil {
			f.set, f.err = nil, fmt.Errorf("reading apps from %s: %w", f.path, f.err)
		} else {
			f.set.Version = hex.EncodeToString(sum[:8])
		}
	}
	f.info, f.readAt = info, readAt
	return f.set, f.err
}

// unchanged trusts time, size and inode only if the file was already old when it was read.
func (f *File) unchanged(info os.FileInfo) bool {
	return f.info != nil && os.SameFile(f.info, info) && f.info.Size() == info.Size() && f.info.ModTime().Equal(info.ModTime()) &&
		f.readAt.Sub(info.ModTime()) > racyWindow
}

// read gives the content only if nobody wrote to the file meanwhile.
func (f *File) read(before os.FileInfo) ([]byte, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", f.path, maxFileBytes)
	}
	after, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(before, after) || after.Size() != int64(len(data)) || !after.ModTime().Equal(before.ModTime()) {
		return nil, fmt.Errorf("%s is being written", f.path)
	}
	return data, nil
}

// Watch looks at the file until ctx ends. It announces a bad version once, as it does a good one. It goes by what anybody has read:
// when a Load between two looks has met another content, that is announced even if the file is back to what Watch has seen last.
func (f *File) Watch(ctx context.Context, changed func()) error {
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	last := ""
	for {
		state := ""
		if set, err := f.Load(ctx); err != nil {
			state = "bad: " + err.Error()
		} else {
			state = "good: " + set.Version
		}
		f.mu.Lock()
		state = fmt.Sprintf("%d, %s", f.reads, state)
		f.mu.Unlock()
		if state != last {
			last = state
			changed()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Apply changes nothing but the audit. A change that could be made is answered with the YAML that makes it, in a *ReadOnlyError.
func (f *File) Apply(ctx context.Context, c Change) error {
	set, err := f.Load(ctx)
	if err != nil {
		return err
	}
	if err := checkOn(set, c); err != nil {
		return err
	}
	text, err := yamlOf(c)
	if err != nil {
		return err
	}
	if err := f.record(set, c); err != nil {
		return err
	}
	return &ReadOnlyError{Path: f.path, YAML: text}
}

func checkOn(set *Set, c Change) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if c.Key != nil {
		var all faults
		for _, part := range c.Parts() {
			if err := part.CheckKey(set.Apps[part.Key.App], set.Keys[part.Key.ID]); err != nil {
				all = append(all, err)
			}
		}
		return all.join()
	}
	if c.Cluster != nil {
		return c.CheckCluster(set.Clusters[c.Cluster.Name], set.ClusterUsers(c.Cluster.Name))
	}
	if err := c.CheckApp(set.Apps[c.App.ID]); err != nil {
		return err
	}
	if c.StoredCluster && set.Clusters[c.App.Cluster] == nil {
		return NoCluster(c.App.Cluster)
	}
	for id, other := range set.Apps {
		if c.Op == OpCreateApp && other.Namespace == c.App.Namespace {
			return NamespaceTaken(c.App.Namespace, id)
		}
	}
	return nil
}

func yamlOf(c Change) (string, error) {
	var body fileBody
	list, id := "apps", ""
	switch {
	case c.Op == OpDeleteCluster:
		return fmt.Sprintf("# remove the entry %s from the list under clusters\n", c.Cluster.Name), nil
	case c.Cluster != nil:
		list, id, body.Clusters = "clusters", c.Cluster.Name, []Cluster{*c.Cluster}
	case c.Old != nil:
		list, id, body.Keys = "keys", c.Old.ID, []Key{*c.Key, *c.Old}
	case c.Key != nil:
		list, id, body.Keys = "keys", c.Key.ID, []Key{*c.Key}
	default:
		id, body.Apps = c.App.ID, []App{*c.App}
	}
	var text bytes.Buffer
	switch c.Op {
	case OpCreateApp, OpCreateKey, OpCreateCluster:
		fmt.Fprintf(&text, "# add the entry to the list under %s\n", list)
	case OpRotateKey:
		fmt.Fprintf(&text, "# in the list under %s, add the first entry and replace %s by the second\n", list, id)
	default:
		fmt.Fprintf(&text, "# replace the entry %s in the list under %s\n", id, list)
	}
	if err := body.write(&text); err != nil {
		return "", errors.Join(ErrReadOnly, err)
	}
	return text.String(), nil
}

// Touch forgets: a file that people write is no place for what slotgate observes.
func (f *File) Touch(context.Context, map[string]time.Time) error { return nil }
