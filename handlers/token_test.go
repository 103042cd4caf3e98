package handlers_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
)

func TestTokens(t *testing.T) {
	g := start(t)
	a := g.app(t, func(app *acl.App) { app.Permissions = []string{"strings:*", "keys:read"} })
	t.Run("without a body it is what the key is", func(t *testing.T) {
		m := a.call(t, "POST", "/v1/token", "").want(t, 200)
		expires, err := time.Parse(time.RFC3339, m["expires_at"].(string))
		if err != nil || time.Until(expires) > 5*time.Minute || time.Until(expires) < 4*time.Minute {
			t.Errorf("expires_at %v", m["expires_at"])
		}
		if strings.Count(m["token"].(string), ".") != 2 || m["token_type"] != "Bearer" || !isNumber(m["expires_in"], "300") || !slices.Equal(texts(m["permissions"]), []string{"strings:*", "keys:read"}) {
			t.Error(m)
		}
	})
	t.Run("it is not kept on the way", func(t *testing.T) {
		if got := a.call(t, "POST", "/v1/token", "{}").header.Get("Cache-Control"); got != "no-store" {
			t.Error(got)
		}
	})
	t.Run("with a life and a part of the permissions", func(t *testing.T) {
		m := a.call(t, "POST", "/v1/token", `{"ttl_s":60,"permissions":["strings:read","commands:SET"]}`).want(t, 200)
		if !isNumber(m["expires_in"], "60") || !slices.Equal(texts(m["permissions"]), []string{"strings:read", "commands:SET"}) {
			t.Error(m)
		}
	})
	t.Run("the basic scheme will do", func(t *testing.T) {
		m := a.call(t, "POST", "/v1/token", "", "Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("any:"+a.token))).want(t, 200)
		if m["token"] == "" {
			t.Error(m)
		}
	})
	t.Run("more than the key may do is named", func(t *testing.T) {
		r := a.call(t, "POST", "/v1/token", `{"permissions":["strings:read","keys:*","*"]}`)
		r.refused(t, 403, "forbidden", "")
		if !strings.Contains(r.body, "the key may not do keys:*, *;") {
			t.Error(r.body)
		}
	})
	t.Run("a token is not exchanged for another", func(t *testing.T) {
		b := g.app(t)
		b.identity.JWT = &acl.JWT{Issuer: "slotgate", ExpiresAt: time.Now().Add(time.Minute)}
		b.call(t, "POST", "/v1/token", "").refused(t, 403, "forbidden", "")
	})
	for name, c := range map[string]struct {
		body    string
		status  int
		code    string
		pointer string
	}{
		"a life too short":             {`{"ttl_s":59}`, 422, "validation_failed", "/ttl_s"},
		"a life too long":              {`{"ttl_s":901}`, 422, "validation_failed", "/ttl_s"},
		"a negative life":              {`{"ttl_s":-300}`, 422, "validation_failed", "/ttl_s"},
		"a life in quotes":             {`{"ttl_s":"300"}`, 422, "validation_failed", "/ttl_s"},
		"a fraction of a second":       {`{"ttl_s":60.5}`, 422, "validation_failed", "/ttl_s"},
		"a life beyond 64 bits":        {`{"ttl_s":99999999999999999999}`, 422, "validation_failed", "/ttl_s"},
		"null for a life":              {`{"ttl_s":null}`, 422, "validation_failed", "/ttl_s"},
		"no permissions at all":        {`{"permissions":[]}`, 422, "validation_failed", "/permissions"},
		"permissions that are no list": {`{"permissions":"strings:read"}`, 422, "validation_failed", "/permissions"},
		"a permission that is none":    {`{"permissions":["strings:read","strings"]}`, 422, "validation_failed", "/permissions/1"},
		"a permission that is no text": {`{"permissions":[7]}`, 422, "validation_failed", "/permissions/0"},
		"too many permissions":         {`{"permissions":[` + strings.Repeat(`"*",`, 999) + `"*"]}`, 422, "validation_failed", "/permissions"},
		"an unknown member":            {`{"ttl_ms":60000}`, 422, "validation_failed", "/ttl_ms"},
		"a member twice":               {`{"ttl_s":60,"ttl_s":900}`, 400, "invalid_request", "/ttl_s"},
		"no object":                    {`[]`, 422, "validation_failed", "body"},
		"no JSON":                      {`{`, 400, "invalid_request", ""},
	} {
		t.Run(name, func(t *testing.T) { a.call(t, "POST", "/v1/token", c.body).refused(t, c.status, c.code, c.pointer) })
	}
	t.Run("a long permission is not sent back", func(t *testing.T) {
		for _, long := range []string{strings.Repeat("x", 1<<19), "commands:" + strings.Repeat("X", 1<<19)} {
			r := a.call(t, "POST", "/v1/token", `{"permissions":["`+long+`"]}`)
			r.refused(t, 422, "validation_failed", "/permissions/0")
			if len(r.body) > 2000 {
				t.Errorf("the answer has %d bytes", len(r.body))
			}
		}
	})
	t.Run("a body that does not say what it is", func(t *testing.T) {
		a.call(t, "POST", "/v1/token", "{}", "Content-Type: text/plain").refused(t, 415, "unsupported_media_type", "")
	})
}

func TestKeySet(t *testing.T) {
	g := start(t)
	r := g.public(t, "/.well-known/jwks.json")
	keys := r.want(t, 200)["keys"].([]any)
	if len(keys) != 1 || keys[0].(map[string]any)["kty"] != "OKP" || !strings.Contains(r.header.Get("Cache-Control"), "max-age=300") {
		t.Errorf("%v %s", r.header, r.body)
	}
}

func TestWhoamiOfATokensHolder(t *testing.T) {
	g := start(t)
	a := g.app(t)
	expires := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	a.identity.JWT = &acl.JWT{ID: "secretless", Issuer: "slotgate", ExpiresAt: expires}
	m := a.call(t, "GET", "/v1/whoami", "").want(t, 200)
	if token := m["token"].(map[string]any); token["issuer"] != "slotgate" || token["expires_at"] != "2030-01-02T03:04:05Z" || len(token) != 2 {
		t.Error(token)
	}
	if key := m["key"].(map[string]any); key["id"] != a.identity.Key.ID {
		t.Error(key)
	}
	a.identity.Key = &acl.Key{App: a.identity.App.ID} // by the token of an outside issuer
	if m := a.call(t, "GET", "/v1/whoami", "").want(t, 200); m["key"].(map[string]any)["id"] != "" || m["token"] == nil {
		t.Error(m)
	}
}

func texts(list any) []string {
	var texts []string
	for _, e := range list.([]any) {
		texts = append(texts, e.(string))
	}
	return texts
}

func isNumber(v any, want string) bool {
	n, ok := v.(interface{ String() string })
	return ok && n.String() == want
}
