package control

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/slotgate/slotgate/acl"
)

// formatVersion is the v of every entry written here. Two adjacent versions of slotgate share one storage, so v is raised only when
// the version before can still read the entry by ignoring what it does not know; that version then leaves writing it to the newer.
// A new member that means nothing to older gateways does not raise v: they keep it when they change the entry.
const formatVersion = 1

type storedApp struct {
	V int `json:"v"`
	acl.App
}

type storedKey struct {
	V int `json:"v"`
	acl.Key
}

type storedCluster struct {
	V int `json:"v"`
	acl.Cluster
}

// loaded is one load: the JSON as it was and the set made of it.
type loaded struct {
	version                    string
	apps, keys, used, clusters map[string]string
	set                        *acl.Set
}

// noVersion is what a set is called while nothing was ever stored.
const noVersion = "0"

// storedVersion is the version of a set as Redis has it.
func storedVersion(version string) string {
	if version == noVersion {
		return ""
	}
	return version
}

// decode reuses what was decoded before from the same JSON, so that a change to one app costs one app.
func (r *Redis) decode(ctx context.Context, next, last *loaded) *acl.Set {
	set := &acl.Set{
		Version:  next.version,
		Apps:     make(map[string]*acl.App, len(next.apps)),
		Keys:     make(map[string]*acl.Key, len(next.keys)),
		Clusters: make(map[string]*acl.Cluster, len(next.clusters)),
	}
	if set.Version == "" {
		set.Version = noVersion
	}
	for name, raw := range next.clusters {
		if cluster, err := decodeCluster(raw); err == nil {
			set.Clusters[name] = cluster
		} else if last.clusters[name] != raw {
			r.log.ErrorContext(ctx, "a stored cluster is damaged and was left out", "cluster", name, "error", err)
		}
	}
	for id, raw := range next.apps {
		same := last.apps[id] == raw
		if same && last.set.Apps[id] != nil {
			set.Apps[id] = last.set.Apps[id]
			continue
		}
		if app, err := decodeApp(raw); err == nil {
			set.Apps[id] = app
		} else if !same {
			r.log.ErrorContext(ctx, "a stored app is damaged and was left out", "app", id, "error", err)
		}
	}
	for id, raw := range next.keys {
		same := last.keys[id] == raw
		if same && last.set.Keys[id] != nil && last.used[id] == next.used[id] {
			set.Keys[id] = last.set.Keys[id]
			continue
		}
		if key, err := decodeKey(raw, next.used[id]); err == nil {
			set.Keys[id] = key
		} else if !same {
			r.log.ErrorContext(ctx, "a stored key is damaged and was left out", "key", id, "error", err)
		}
	}
	return set
}

func decodeApp(raw string) (*acl.App, error) {
	var s storedApp
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return nil, err
	}
	app := s.App.WithDefaults()
	return &app, readable(s.V)
}

func decodeCluster(raw string) (*acl.Cluster, error) {
	var s storedCluster
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return nil, err
	}
	return &s.Cluster, readable(s.V)
}

func decodeKey(raw, used string) (*acl.Key, error) {
	var s storedKey
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return nil, err
	}
	key := s.Key
	key.LastUsedAt = nil
	if seconds, err := strconv.ParseInt(used, 10, 64); err == nil {
		at := time.Unix(seconds, 0).UTC()
		key.LastUsedAt = &at
	}
	return &key, readable(s.V)
}

// readable accepts the next format, not the one after it, which may mean something else by the same words.
func readable(v int) error {
	if v < 1 || v > formatVersion+1 {
		return fmt.Errorf("format %d cannot be read by this version", v)
	}
	return nil
}

func encodeApp(app acl.App, before string) (string, error) {
	app.Revision++
	return encode(storedApp{V: formatVersion, App: app}, before)
}

func encodeKey(key acl.Key, before string) (string, error) {
	key.Revision++
	key.LastUsedAt = nil // kept apart
	return encode(storedKey{V: formatVersion, Key: key}, before)
}

func encodeCluster(cluster acl.Cluster, before string) (string, error) {
	cluster.Revision++
	return encode(storedCluster{V: formatVersion, Cluster: cluster}, before)
}

// encode writes an entry, carrying over the members of the one before that this version does not know.
func encode(entry any, before string) (string, error) {
	text, err := json.Marshal(entry)
	if err != nil {
		return "", err
	}
	if before == "" {
		return string(text), nil
	}
	var old, merged map[string]json.RawMessage
	if err := json.Unmarshal([]byte(before), &old); err != nil {
		return "", fmt.Errorf("the stored entry is damaged: %w", err)
	}
	var v int
	if err := json.Unmarshal(old["v"], &v); err != nil || v < 1 {
		return "", fmt.Errorf("the stored entry is damaged: it has no format version")
	}
	if v > formatVersion {
		return "", fmt.Errorf("format %d: %w", v, acl.ErrNewer)
	}
	if err := json.Unmarshal(text, &merged); err != nil {
		return "", err
	}
	known := members(reflect.TypeOf(entry))
	for name, value := range old {
		if !known[name] {
			merged[name] = value
		}
	}
	text, err = json.Marshal(merged)
	return string(text), err
}

// members lists the JSON names of a struct, of what it embeds too.
func members(t reflect.Type) map[string]bool {
	names := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names[name] = true
		}
	}
	return names
}
