package acl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// MaxAudit is how many entries of the audit a storage in Redis keeps: of a hundred changes a day a quarter of a year.
const MaxAudit = 10_000

// An AuditEntry says who changed what. It holds no secret: no token, no hash of one, no password.
type AuditEntry struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Op     Op        `json:"op"`
	Target string    `json:"target"` // app:ID, key:ID or cluster:NAME
	// Before and After hold the members that differ: a new entry has no Before, a removed one no After.
	Before map[string]json.RawMessage `json:"before,omitempty"`
	After  map[string]json.RawMessage `json:"after,omitempty"`
	// RevokedKeys counts the keys that a deleted app took with it.
	RevokedKeys int `json:"revoked_keys,omitempty"`
	// Prepared says that the storage is a file: the change was printed for somebody to make, not made.
	Prepared bool `json:"prepared,omitempty"`
}

// An Auditor is a storage that keeps the audit: File here, and the one in Redis.
type Auditor interface {
	// Audit gives the newest entries, at most n, the oldest of them first.
	Audit(ctx context.Context, n int) ([]AuditEntry, error)
}

// Audit gives the newest entries of the audit, at most n, the oldest of them first.
func (a *Admin) Audit(ctx context.Context, n int) ([]AuditEntry, error) {
	auditor, ok := a.Storage.(Auditor)
	if !ok {
		return nil, fmt.Errorf("the storage %T keeps no audit", a.Storage)
	}
	return auditor.Audit(ctx, n)
}

// unaudited members would only be noise, or give a guesser of tokens something to try against.
var unaudited = []string{"hash", "revision", "last_used_at", "v"}

// Record makes the entry of a change, or of one of its Parts; stored is what was there before, of the same kind, nil for nothing.
func (c Change) Record(stored any) (AuditEntry, error) {
	e := AuditEntry{At: c.At.UTC(), By: c.By, Op: c.Op}
	if c.whole != "" {
		e.Op = c.whole
	}
	var is any
	switch {
	case c.App != nil:
		e.Target, is = "app:"+c.App.ID, c.App
	case c.Key != nil:
		e.Target, is = "key:"+c.Key.ID, c.Key
	default:
		e.Target, is = "cluster:"+c.Cluster.Name, c.Cluster
	}
	if c.Op == OpDeleteCluster {
		is = nil
	}
	before, err := auditMembers(stored)
	if err != nil {
		return e, err
	}
	after, err := auditMembers(is)
	if err != nil {
		return e, err
	}
	for name, value := range before {
		if bytes.Equal(value, after[name]) {
			delete(before, name)
			delete(after, name)
		}
	}
	e.Before, e.After = before, after
	return e, nil
}

func auditMembers(entry any) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	for _, name := range unaudited {
		delete(members, name)
	}
	return members, nil
}
