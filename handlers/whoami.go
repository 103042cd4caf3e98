package handlers

import (
	"encoding/json"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
)

// whoamiAnswer is what a key's holder may know of it. It is listed member by member, so that nothing new in acl, such as the hash of
// a key, gets out by itself.
type whoamiAnswer struct {
	App         whoamiApp      `json:"app"`
	Key         whoamiKey      `json:"key"`
	Token       *whoamiJWT     `json:"token,omitempty"` // nil: the key itself was sent
	Permissions []string       `json:"permissions"`
	Limits      []acl.Limit    `json:"limits"`
	Sizes       whoamiSizes    `json:"sizes"`
	TTL         whoamiTTL      `json:"ttl"`
	Durability  acl.Durability `json:"durability,omitzero"`
	Priority    acl.Priority   `json:"priority,omitzero"`
	Read        acl.ReadFrom   `json:"read,omitzero"`
	StalenessMS int64          `json:"max_staleness_ms,omitzero"`
}

type whoamiApp struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Namespace string     `json:"namespace"`
	Layout    acl.Layout `json:"layout"`
	Cluster   string     `json:"cluster"`
	State     acl.State  `json:"state"`
	ExpiresAt *time.Time `json:"expires_at,omitzero"`
}

type whoamiKey struct {
	ID        string     `json:"id"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitzero"`
}

type whoamiJWT struct {
	Issuer    string    `json:"issuer"`
	ExpiresAt time.Time `json:"expires_at"`
}

type whoamiSizes struct {
	KeyMaxBytes      int64 `json:"key_max_bytes"`
	ValueMaxBytes    int64 `json:"value_max_bytes"`
	RequestMaxBytes  int64 `json:"request_max_bytes"`
	ResponseMaxBytes int64 `json:"response_max_bytes"`
}

type whoamiTTL struct {
	DefaultMS int64 `json:"default_ms,omitzero"`
	MaxMS     int64 `json:"max_ms,omitzero"`
}

// whoami is GET /v1/whoami.
func (a *API) whoami(r request) error {
	text, err := json.Marshal(a.describe(r.id))
	if err != nil {
		return store.NewError(store.CodeInternal, "").WithCause(err)
	}
	return r.answer(r.reply().raw(string(text)))
}

func (a *API) describe(id *acl.Identity) whoamiAnswer {
	app, key := id.App, id.Key
	answer := whoamiAnswer{
		App: whoamiApp{
			ID: app.ID, Name: app.Name, Namespace: app.Namespace, Layout: app.Layout, Cluster: app.Cluster, State: app.State,
			ExpiresAt: app.ExpiresAt,
		},
		Key:         whoamiKey{ID: key.ID, CreatedAt: key.CreatedAt, ExpiresAt: key.ExpiresAt},
		Permissions: id.Permissions.Entries(a.commands),
		Limits:      append([]acl.Limit{}, app.Limits...), // [] and not null
		Sizes:       whoamiSizes(id.Sizes),
		TTL:         whoamiTTL{DefaultMS: app.DefaultTTLMS, MaxMS: app.MaxTTLMS},
		Durability:  app.Durability,
		Priority:    app.Priority,
		Read:        app.Read,
		StalenessMS: app.MaxStalenessMS,
	}
	if id.JWT != nil {
		answer.Token = &whoamiJWT{Issuer: id.JWT.Issuer, ExpiresAt: id.JWT.ExpiresAt}
	}
	return answer
}
