package tokens_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
	"github.com/slotgate/slotgate/acl/tokens"
)

func TestATokenSpeaksForItsKey(t *testing.T) {
	for _, algorithm := range []string{tokens.EdDSA, tokens.HS256} {
		t.Run(algorithm, func(t *testing.T) {
			w := newWorldWith(t, algorithm, nil)
			made := w.issue(t)
			if got := made.ExpiresAt.Sub(w.clock.now()); got != tokens.DefaultTTL {
				t.Errorf("it lives for %v", got)
			}
			if want := w.identity(t).Permissions.Entries(commands); !slices.Equal(made.Permissions, want) {
				t.Errorf("it may do %v, the key %v", made.Permissions, want)
			}
			id := w.opens(t, made.Token)
			if id.App != w.identity(t).App || id.Key != w.identity(t).Key || id.JWT == nil || !id.JWT.ExpiresAt.Equal(made.ExpiresAt) || id.JWT.Issuer != "slotgate" {
				t.Errorf("%+v", id)
			}
			if got := id.Permissions.Entries(commands); !slices.Equal(got, made.Permissions) {
				t.Errorf("accepted with %v", got)
			}
			if again := w.opens(t, made.Token); again != id {
				t.Error("the identity is made anew for every request")
			}
		})
	}
}

func TestClaims(t *testing.T) {
	w := newWorld(t)
	first, second := w.issue(t, "strings:read"), w.issue(t, "strings:read")
	c := claimsOf(t, first.Token)
	now := float64(w.clock.now().Unix())
	for name, want := range map[string]any{
		"iss": "slotgate", "aud": "slotgate", "sub": "shop", "key_id": w.keyEntry.ID, "iat": now, "nbf": now, "exp": now + 300,
	} {
		if c[name] != want {
			t.Errorf("%s is %v, want %v", name, c[name], want)
		}
	}
	if list, _ := json.Marshal(c["permissions"]); string(list) != `["strings:read"]` {
		t.Errorf("permissions %s", list)
	}
	if c["jti"] == "" || c["jti"] == claimsOf(t, second.Token)["jti"] {
		t.Error("two tokens have one jti")
	}
	if h := part(t, first.Token, 0); h["alg"] != "EdDSA" || h["typ"] != "JWT" || h["kid"] == "" || len(h) != 3 {
		t.Errorf("header %v", h)
	}
	if len(c) != 9 {
		t.Errorf("%d claims: %v", len(c), c)
	}
}

func TestATokenIsNeverWiderThanItsKey(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct{ ask, wider []string }{
		"all":                                {[]string{"*"}, []string{"*"}},
		"another class":                      {[]string{"strings:read", "hashes:read", "sets:*"}, []string{"hashes:read", "sets:*"}},
		"more of a class":                    {[]string{"keys:*"}, []string{"keys:*"}},
		"a command of another class":         {[]string{"commands:HGET"}, []string{"commands:HGET"}},
		"a part of a class":                  {[]string{"strings:read"}, nil},
		"a command of a class":               {[]string{"commands:GET"}, nil},
		"a command that the key has by name": {[]string{"commands:ZADD"}, nil},
	} {
		made, err := w.issuer.Issue(w.identity(t), time.Minute, c.ask)
		wider, ok := errors.AsType[*tokens.WiderError](err)
		switch {
		case c.wider == nil && err != nil, c.wider != nil && !ok:
			t.Errorf("%s: %v", name, err)
		case ok && !slices.Equal(wider.Entries, c.wider):
			t.Errorf("%s: names %v", name, wider.Entries)
		case !ok && !slices.Equal(made.Permissions, c.ask):
			t.Errorf("%s: %v", name, made.Permissions)
		}
	}
}

func TestATokenIsNotExchangedForAnother(t *testing.T) {
	w := newWorld(t)
	if _, err := w.issuer.Issue(w.opens(t, w.issue(t).Token), time.Minute, nil); !errors.Is(err, tokens.ErrFromToken) {
		t.Error(err)
	}
}

func TestATokenEndsWithItsKeyAndApp(t *testing.T) {
	soon := acltest.Start.Add(100*time.Second + 500*time.Millisecond)
	for name, change := range map[string]func(*acl.App, *acl.Key){
		"the key expires": func(_ *acl.App, k *acl.Key) { k.ExpiresAt = &soon },
		"the app expires": func(a *acl.App, _ *acl.Key) { a.ExpiresAt = &soon },
	} {
		w := newWorld(t)
		w.reload(t, change)
		if made := w.issue(t); !made.ExpiresAt.Equal(acltest.Start.Add(100 * time.Second)) {
			t.Errorf("%s: the token expires at %v", name, made.ExpiresAt)
		}
	}
}

func TestTooManyPermissionsForOneToken(t *testing.T) {
	w := newWorld(t)
	w.reload(t, func(a *acl.App, _ *acl.Key) {
		a.Permissions = nil
		for i := range 200 {
			a.Permissions = append(a.Permissions, "commands:A.COMMAND.OF.A.MODULE"+string(rune('A'+i%26))+string(rune('A'+i/26)))
		}
	})
	if _, err := w.issuer.Issue(w.identity(t), time.Minute, nil); !errors.Is(err, tokens.ErrTooLong) {
		t.Error(err)
	}
	w.issue(t, w.app.Permissions[:50]...)
}

// What is taken from the key is taken from its tokens with the next request, though they were verified before.
func TestATokenDoesWhatItsKeyMayDoNow(t *testing.T) {
	gone := acltest.Start.Add(-time.Hour)
	for name, c := range map[string]struct {
		change func(*acl.App, *acl.Key)
		want   error
	}{
		"the key is revoked":       {func(_ *acl.App, k *acl.Key) { k.RevokedAt = &gone }, tokens.UnknownCaller},
		"the key has expired":      {func(_ *acl.App, k *acl.Key) { k.ExpiresAt = &gone }, tokens.UnknownCaller},
		"the key is gone":          {func(_ *acl.App, k *acl.Key) { k.ID = "" }, tokens.UnknownCaller},
		"the app is deleted":       {func(a *acl.App, _ *acl.Key) { a.State = acl.Deleted }, tokens.UnknownCaller},
		"the app is gone":          {func(a *acl.App, _ *acl.Key) { a.ID = "" }, tokens.UnknownCaller},
		"the app is suspended":     {func(a *acl.App, _ *acl.Key) { a.State = acl.Suspended }, acl.ErrAppSuspended},
		"the app has expired":      {func(a *acl.App, _ *acl.Key) { a.ExpiresAt = &gone }, acl.ErrAppExpired},
		"the key is another app's": {func(a *acl.App, k *acl.Key) { a.ID, a.Namespace, k.App = "other", "other", "other" }, tokens.UnknownCaller},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			seen, unseen := w.issue(t).Token, w.issue(t).Token
			w.opens(t, seen)
			w.reload(t, c.change)
			for _, token := range []string{seen, unseen} {
				if _, err := w.verifier.Authenticate(token); !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
			}
		})
	}
}

func TestPermissionsAreIntersectedWithThoseOfTheMoment(t *testing.T) {
	w := newWorld(t)
	made := w.issue(t, "strings:*").Token
	entries := func() string { return strings.Join(w.opens(t, made).Permissions.Entries(commands), " ") }
	if got := entries(); got != "strings:*" {
		t.Errorf("at first: %s", got)
	}
	w.reload(t, func(_ *acl.App, k *acl.Key) { k.Permissions = []string{"strings:read", "keys:read"} })
	if got := entries(); got != "strings:read" {
		t.Errorf("when the key was narrowed: %s", got)
	}
	w.reload(t, func(a *acl.App, k *acl.Key) { a.Permissions, k.Permissions = []string{"hashes:*"}, nil })
	if got := entries(); got != "" {
		t.Errorf("when the app lost the class: %s", got)
	}
	w.reload(t, func(a *acl.App, _ *acl.Key) { a.Permissions = []string{"*"} })
	if got := entries(); got != "strings:*" {
		t.Errorf("a token grew with its app: %s", got)
	}
}

func TestTimes(t *testing.T) {
	w := newWorld(t)
	seen, unseen := w.issue(t).Token, w.issue(t).Token
	w.opens(t, seen)
	w.clock.advance(tokens.DefaultTTL + 29*time.Second)
	w.opens(t, seen)
	w.opens(t, unseen)
	late := w.issue(t).Token // by a gateway whose clock goes fast
	w.clock.advance(2 * time.Second)
	w.refused(t, seen, tokens.Expired)
	w.refused(t, unseen, tokens.Expired)
	w.clock.advance(-30 * time.Second)
	w.opens(t, late)
	w.clock.advance(-10 * time.Second)
	w.refused(t, w.sign(t, func(c jwt.MapClaims) { c["iat"], c["nbf"] = w.clock.now().Unix()+31, w.clock.now().Unix() }), tokens.NotYetValid)
}

// sign makes a token as the gateways do, but for what change does to its claims.
func (w *world) sign(t testing.TB, change func(jwt.MapClaims)) string {
	t.Helper()
	return w.signWith(t, jwt.SigningMethodEdDSA, gatewayKey(t), nil, change)
}

func (w *world) signWith(t testing.TB, method jwt.SigningMethod, key any, header map[string]any, change func(jwt.MapClaims)) string {
	t.Helper()
	like := w.issue(t).Token
	c := claimsOf(t, like)
	if change != nil {
		change(c)
	}
	token := jwt.NewWithClaims(method, c)
	token.Header["kid"] = part(t, like, 0)["kid"]
	for name, value := range header {
		if value == nil {
			delete(token.Header, name)
		} else {
			token.Header[name] = value
		}
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSecretsRotateWithOverlap(t *testing.T) {
	next, err := acl.NewSecret([]byte(strings.Repeat("next", 16)))
	if err != nil {
		t.Fatal(err)
	}
	before := newWorld(t)
	made := before.issue(t)
	both := newWorldWith(t, tokens.EdDSA, []acl.Secret{next, acltest.Secret(t)}) // the same secret twice is one key
	if got := keySet(t, both.issuer.Keys); len(got) != 2 {
		t.Errorf("the set has %d keys", len(got))
	}
	both.reload(t, func(_ *acl.App, k *acl.Key) { *k = before.keyEntry })
	both.opens(t, made.Token)

	after, err := tokens.DeriveKeys(tokens.EdDSA, next, acltest.Secret(t))
	if err != nil {
		t.Fatal(err)
	}
	before.issuer.Keys = after
	signedByNext := before.issue(t)
	both.opens(t, signedByNext.Token)
	before.refused(t, signedByNext.Token, tokens.UnknownKey)
}

func keySet(t *testing.T, k *tokens.Keys) []map[string]string {
	t.Helper()
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(k.JWKS(), &set); err != nil {
		t.Fatal(err)
	}
	return set.Keys
}

// Whoever has the set can verify a token without knowing anything of slotgate.
func TestOthersVerifyByTheSet(t *testing.T) {
	w := newWorld(t)
	set := keySet(t, w.issuer.Keys)
	if len(set) != 1 || set[0]["kty"] != "OKP" || set[0]["crv"] != "Ed25519" || set[0]["use"] != "sig" || set[0]["alg"] != "EdDSA" || set[0]["d"] != "" {
		t.Fatalf("%v", set)
	}
	x, err := base64.RawURLEncoding.DecodeString(set[0]["x"])
	if err != nil {
		t.Fatal(err)
	}
	_, err = jwt.Parse(w.issue(t).Token, func(token *jwt.Token) (any, error) {
		if token.Header["kid"] != set[0]["kid"] {
			t.Errorf("kid %v, the set has %s", token.Header["kid"], set[0]["kid"])
		}
		return ed25519.PublicKey(x), nil
	}, jwt.WithTimeFunc(w.clock.now))
	if err != nil {
		t.Error(err)
	}
	if set := keySet(t, newWorldWith(t, tokens.HS256, nil).issuer.Keys); set == nil || len(set) != 0 {
		t.Errorf("with HS256 the set is %v", set)
	}
}

func TestNoOtherAlgorithmOfOurs(t *testing.T) {
	for _, algorithm := range []string{"none", "RS256", "HS512", "eddsa", ""} {
		if _, err := tokens.DeriveKeys(algorithm, acltest.Secret(t)); err == nil {
			t.Errorf("%q is taken", algorithm)
		}
	}
}

func TestKeysPassThrough(t *testing.T) {
	w := newWorld(t)
	if id := w.opens(t, w.key); id != w.identity(t) || id.JWT != nil {
		t.Errorf("%+v", id)
	}
	if _, err := w.verifier.Authenticate(w.key[:len(w.key)-1]); err != acl.ErrUnauthenticated { //nolint:errorlint // no refusal of a token
		t.Error(err)
	}
}
