package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slotgate/slotgate/acl"
)

func newAppShowCommand(e env, flags *configFlags) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show an app with its keys",
		Example: "  slotgate app show shop",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				set, err := c.List(ctx)
				if err != nil {
					return err
				}
				app := set.Apps[args[0]]
				if app == nil {
					return fmt.Errorf("app %q: %w", args[0], acl.ErrNotFound)
				}
				keys := keysOf(set, app.ID)
				if out == outputJSON {
					return writeJSON(e.Stdout, shownApp{app, publicKeys(keys)})
				}
				if err := writeTable(e.Stdout, appRows(app)); err != nil {
					return err
				}
				fmt.Fprintln(e.Stdout)
				return writeTable(e.Stdout, keyRows(keys, c.Secret))
			})
		},
	}
	out.register(cmd)
	return cmd
}

// shownApp is an app as JSON with its keys.
type shownApp struct {
	*acl.App
	Keys []publicKey `json:"keys"`
}

// reportApp says what became of a change of an app.
func reportApp(e env, out output, app *acl.App, err error, what string) error {
	if done, err := settled(e, err); done || err != nil {
		return err
	}
	if out == outputJSON {
		return writeJSON(e.Stdout, app)
	}
	_, err = fmt.Fprintf(e.Stdout, "App %s %s.\n", app.ID, what)
	return err
}

// appRows lays an app out for reading, a setting a line, - for what it takes from the gateway.
func appRows(a *acl.App) [][]string {
	retries := "-"
	if a.Retries != nil {
		retries = fmt.Sprintf("read %d, write %d", a.Retries.Read, a.Retries.Write)
	}
	return [][]string{
		{"id", a.ID},
		{"name", a.Name},
		{"namespace", a.Namespace},
		{"layout", string(a.Layout)},
		{"cluster", a.Cluster},
		{"state", string(a.State)},
		{"permissions", showList(a.Permissions)},
		{"limits", showLimits(a.Limits)},
		{"compression", strings.TrimSuffix(string(a.Compression)+" from "+showBytes(int64(a.CompressMinBytes)), " from -")},
		{"durability", string(cmp.Or(a.Durability, acl.Async))},
		{"read", showRead(a)},
		{"priority", string(cmp.Or(a.Priority, acl.Normal))},
		{"default ttl", showTTL(a.DefaultTTLMS)},
		{"max ttl", showTTL(a.MaxTTLMS)},
		{"key max", showBytes(a.Sizes.KeyMaxBytes)},
		{"value max", showBytes(a.Sizes.ValueMaxBytes)},
		{"request max", showBytes(a.Sizes.RequestMaxBytes)},
		{"response max", showBytes(a.Sizes.ResponseMaxBytes)},
		{"retries", retries},
		{"created", showTime(&a.CreatedAt)},
		{"expires", showTime(a.ExpiresAt)},
	}
}

// showRead is who answers the app's reads.
func showRead(a *acl.App) string {
	text := string(cmp.Or(a.Read, acl.ReadPrimary))
	if a.MaxStalenessMS > 0 {
		text += ", replicas at most " + showTTL(a.MaxStalenessMS) + " old"
	}
	return text
}

func showList(list []string) string {
	if len(list) == 0 {
		return "(none)"
	}
	return strings.Join(list, ", ")
}

func showLimits(limits []acl.Limit) string {
	list := make([]string, len(limits))
	for i, l := range limits {
		list[i] = showLimit(l)
	}
	return showList(list)
}

// showLimit is a limit in words, what is as usual left out.
func showLimit(l acl.Limit) string {
	text := fmt.Sprintf("%s: %d %s", l.ID, l.Limit, l.Of)
	if l.Of == acl.OfConcurrency {
		text = fmt.Sprintf("%s: %d requests at once in each gateway", l.ID, l.Limit)
	} else {
		text += fmt.Sprintf(" per %v", time.Duration(l.PeriodMS)*time.Millisecond)
		if l.EffectiveAlgorithm() == acl.TokenBucket {
			text += fmt.Sprintf(", at once %d", l.EffectiveBurst())
		}
	}
	if l.Per == acl.PerKey {
		text += ", each key"
	}
	for _, part := range []string{l.Class, l.Route, l.Algorithm, l.Mode} {
		if part != "" {
			text += ", " + part
		}
	}
	if l.OnError != "" {
		text += ", on error " + l.OnError
	}
	return text
}

func showBytes(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

func showTTL(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

// publicKey is a key as JSON shows it. The hash stays inside: with it and the secret a token could be tried offline.
type publicKey struct{ *acl.Key }

// MarshalJSON writes the key without its hash and with its state.
func (k publicKey) MarshalJSON() ([]byte, error) {
	type plain acl.Key
	return json.Marshal(struct {
		*plain
		Hash  bool   `json:"hash,omitempty"` // shadows the real one
		State string `json:"state"`
	}{plain: (*plain)(k.Key), State: keyState(k.Key)})
}

func publicKeys(keys []*acl.Key) []publicKey {
	list := make([]publicKey, len(keys))
	for i, k := range keys {
		list[i] = publicKey{k}
	}
	return list
}

// keysOf lists the keys of an app, or of all with "", the oldest first.
func keysOf(set *acl.Set, app string) []*acl.Key {
	var keys []*acl.Key
	for _, k := range set.Keys {
		if app == "" || k.App == app {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b *acl.Key) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return keys
}

// expiringBefore keeps the keys that still open but will not at the given moment.
func expiringBefore(keys []*acl.Key, moment time.Time) []*acl.Key {
	return slices.DeleteFunc(keys, func(k *acl.Key) bool {
		return keyState(k) != keyActive || k.ExpiresAt == nil || k.ExpiresAt.After(moment)
	})
}

const (
	keyActive  = "active"
	keyExpired = "expired"
	keyRevoked = "revoked"
)

func keyState(k *acl.Key) string {
	switch {
	case k.RevokedAt != nil:
		return keyRevoked
	case k.ExpiresAt != nil && !k.ExpiresAt.After(time.Now()):
		return keyExpired
	}
	return keyActive
}

// keyRows lays keys out as a table; while the secret is changed it says which keys still need another than the one in force.
func keyRows(keys []*acl.Key, secret acl.Secret) [][]string {
	rows := [][]string{{"KEY", "APP", "STATE", "ENDS", "CREATED", "EXPIRES", "LAST USED", "PERMISSIONS"}}
	for _, k := range keys {
		permissions := "the app's"
		if k.Permissions != nil {
			permissions = showList(k.Permissions)
		}
		rows = append(rows, []string{
			k.ID, k.App, keyState(k), "…" + k.Last4, showTime(&k.CreatedAt), showTime(k.ExpiresAt), showTime(k.LastUsedAt), permissions,
		})
	}
	if len(secret.Others()) == 0 {
		return rows
	}
	rows[0] = append(rows[0], "SECRET")
	for i, k := range keys {
		text := "other"
		if k.SecretID == secret.ID() {
			text = "in force"
		}
		rows[i+1] = append(rows[i+1], text)
	}
	return rows
}
