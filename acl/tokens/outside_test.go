package tokens_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
	"github.com/slotgate/slotgate/acl/tokens"
)

// outsider is an issuer of tokens that is none of ours.
type outsider struct {
	t       testing.TB
	private map[string]crypto.Signer // by kid
	methods map[string]jwt.SigningMethod
}

var outsideRealm = tokens.Realm{Issuer: "https://login.example.com", Audience: "slotgate-prod"}

// rsaKey is made once: it takes a while.
var rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func newOutsider(t testing.TB) *outsider {
	t.Helper()
	o := &outsider{t, map[string]crypto.Signer{}, map[string]jwt.SigningMethod{}}
	_, ed, err1 := ed25519.GenerateKey(nil)
	p256, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, err3 := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	p521, err4 := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	o.add("ed", ed, jwt.SigningMethodEdDSA)
	o.add("p256", p256, jwt.SigningMethodES256)
	o.add("p384", p384, jwt.SigningMethodES384)
	o.add("p521", p521, jwt.SigningMethodES512)
	o.add("rsa", rsaKey(), jwt.SigningMethodRS256)
	return o
}

func (o *outsider) add(kid string, key crypto.Signer, method jwt.SigningMethod) {
	o.private[kid], o.methods[kid] = key, method
}

// jwk writes the public half of a key.
func jwk(key crypto.PublicKey) map[string]any {
	b64 := base64.RawURLEncoding.EncodeToString
	switch k := key.(type) {
	case ed25519.PublicKey:
		return map[string]any{"kty": "OKP", "crv": "Ed25519", "x": b64(k)}
	case *ecdsa.PublicKey:
		size := (k.Curve.Params().BitSize + 7) / 8
		point, _ := k.Bytes()
		return map[string]any{"kty": "EC", "crv": k.Curve.Params().Name, "x": b64(point[1 : 1+size]), "y": b64(point[1+size:])}
	case *rsa.PublicKey:
		return map[string]any{"kty": "RSA", "n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes())}
	}
	panic("no such key")
}

// set is the issuer's key set of these kids, all of them without any.
func (o *outsider) set(kids ...string) string {
	if len(kids) == 0 {
		kids = slices.Sorted(maps.Keys(o.private))
	}
	list := []any{}
	for _, kid := range kids {
		k := jwk(o.private[kid].Public())
		k["kid"], k["use"] = kid, "sig"
		list = append(list, k)
	}
	return text(o.t, map[string]any{"keys": list})
}

func (o *outsider) file() string {
	path := filepath.Join(o.t.TempDir(), "jwks.json")
	o.write(path, o.set())
	return path
}

func (o *outsider) write(path, set string) {
	o.t.Helper()
	if err := os.WriteFile(path+".new", []byte(set), 0o600); err != nil {
		o.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		o.t.Fatal(err)
	}
}

// trusted are the settings for the issuer.
func (o *outsider) trusted() tokens.Trusted {
	return tokens.Trusted{
		Name: "login", Realm: outsideRealm, JWKSFile: o.file(), Algorithms: []string{"EdDSA", "ES256", "ES384", "ES512", "RS256"}, PermissionsClaim: "scope",
	}
}

// token signs claims with a key.
func (o *outsider) token(kid string, change func(jwt.MapClaims)) string {
	o.t.Helper()
	c := jwt.MapClaims{
		"iss": outsideRealm.Issuer, "aud": []string{"other", outsideRealm.Audience}, "sub": "user|42", "slotgate_app": "shop",
		"scope": "openid strings:read profile", "exp": acltest.Start.Add(time.Hour).Unix(), "groups": []string{"a", "b"},
	}
	if change != nil {
		change(c)
	}
	token := jwt.NewWithClaims(o.methods[kid], c)
	token.Header["kid"] = kid
	if kid == "" {
		delete(token.Header, "kid")
	}
	signed, err := token.SignedString(o.private[kid])
	if err != nil {
		o.t.Fatal(err)
	}
	return signed
}

func TestTokensOfOutsideIssuers(t *testing.T) {
	o := newOutsider(t)
	w := newWorld(t, o.trusted())
	for kid := range o.private {
		id := w.opens(t, o.token(kid, nil))
		if id.App.ID != "shop" || id.Key == nil || id.Key.ID != "" || id.JWT == nil || id.JWT.Issuer != outsideRealm.Issuer || id.Prefix != "shop:" {
			t.Errorf("%s: %+v", kid, id)
		}
		if got := strings.Join(id.Permissions.Entries(commands), " "); got != "strings:read" {
			t.Errorf("%s: may do %q", kid, got)
		}
	}
	w.opens(t, w.key)
	w.opens(t, w.issue(t).Token)
	if _, err := w.issuer.Issue(w.opens(t, o.token("ed", nil)), time.Minute, nil); err != tokens.ErrFromToken { //nolint:errorlint // the value itself
		t.Errorf("an outside token was exchanged for one of ours: %v", err)
	}
}

func TestPermissionsOfOutsideTokens(t *testing.T) {
	o := newOutsider(t)
	for name, c := range map[string]struct {
		claim any
		want  string
	}{
		"words":                     {"strings:write keys:read", "strings:write keys:read"},
		"a list":                    {[]string{"strings:write", "keys:read"}, "strings:write keys:read"},
		"more than the app may do":  {"*", "strings:* keys:read commands:ZADD"},
		"none that we know":         {"openid profile", ""},
		"nothing":                   {"", ""},
		"the claim is not there":    {nil, ""},
		"words in a list":           {[]string{"strings:read keys:read"}, ""},
		"a class that is not there": {"streams:read", ""},
	} {
		w := newWorld(t, o.trusted())
		id := w.opens(t, o.token("ed", func(m jwt.MapClaims) {
			if m["scope"] = c.claim; c.claim == nil {
				delete(m, "scope")
			}
		}))
		if got := strings.Join(id.Permissions.Entries(commands), " "); got != c.want {
			t.Errorf("%s: may do %q, want %q", name, got, c.want)
		}
	}
	trusted := o.trusted()
	trusted.PermissionsClaim, trusted.AppClaim = "", "team"
	w := newWorld(t, trusted)
	id := w.opens(t, o.token("ed", func(m jwt.MapClaims) { m["team"] = "shop" }))
	if got := strings.Join(id.Permissions.Entries(commands), " "); got != "strings:* keys:read commands:ZADD" {
		t.Errorf("without a claim for permissions: may do %q", got)
	}
	w.refused(t, o.token("ed", nil), tokens.UnknownCaller) // it names its app in the usual claim only
}

func TestBadOutsideTokens(t *testing.T) {
	o := newOutsider(t)
	w := newWorld(t, o.trusted())
	public := o.private["ed"].Public().(ed25519.PublicKey)
	claim := func(name string, value any) string {
		return o.token("p256", func(m jwt.MapClaims) {
			if m[name] = value; value == nil {
				delete(m, name)
			}
		})
	}
	other := newOutsider(t)
	for name, c := range map[string]struct {
		token  string
		reason tokens.Refusal
	}{
		"the key of another issuer":              {other.token("ed", nil), tokens.BadSignature},
		"HS256 with the public key":              {o.forged("ed", jwt.SigningMethodHS256, []byte(public)), tokens.BadSignature},
		"HS256 with the RSA modulus":             {o.forged("rsa", jwt.SigningMethodHS256, rsaKey().N.Bytes()), tokens.BadSignature},
		"none":                                   {o.forged("rsa", jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType), tokens.BadSignature},
		"another algorithm of the same RSA key":  {o.forged("rsa", jwt.SigningMethodRS512, rsaKey()), tokens.BadSignature},
		"PSS with the same RSA key":              {o.forged("rsa", jwt.SigningMethodPS256, rsaKey()), tokens.BadSignature},
		"the kid of another key":                 {o.forged("p256", jwt.SigningMethodEdDSA, o.private["ed"]), tokens.BadSignature},
		"an unknown kid":                         {o.forged("new", jwt.SigningMethodEdDSA, o.private["ed"]), tokens.UnknownKey},
		"a kid of the gateways":                  {o.forged(w.header(t)["kid"].(string), jwt.SigningMethodEdDSA, o.private["ed"]), tokens.UnknownKey},
		"the gateways' audience":                 {claim("aud", "slotgate"), tokens.WrongAudience},
		"the gateways' issuer":                   {claim("iss", "slotgate"), tokens.UnknownKey},
		"the issuer with a slash behind":         {claim("iss", outsideRealm.Issuer+"/"), tokens.UnknownIssuer},
		"no expiry":                              {claim("exp", nil), tokens.Malformed},
		"expired":                                {claim("exp", acltest.Start.Add(-31*time.Second).Unix()), tokens.Expired},
		"not yet valid":                          {claim("nbf", acltest.Start.Add(31*time.Second).Unix()), tokens.NotYetValid},
		"issued in the future":                   {claim("iat", acltest.Start.Add(31*time.Second).Unix()), tokens.NotYetValid},
		"no app":                                 {claim("slotgate_app", nil), tokens.UnknownCaller},
		"an empty app":                           {claim("slotgate_app", ""), tokens.UnknownCaller},
		"an app that does not exist":             {claim("slotgate_app", "../shop"), tokens.UnknownCaller},
		"an app that is a list":                  {claim("slotgate_app", []string{"shop"}), tokens.Malformed},
		"permissions that are a number":          {claim("scope", 7), tokens.Malformed},
		"permissions that are an object":         {claim("scope", map[string]any{"strings:read": true}), tokens.Malformed},
		"a token of ours with our issuer's name": {w.sign(t, func(m jwt.MapClaims) { m["iss"] = outsideRealm.Issuer }), tokens.UnknownKey},
	} {
		t.Run(name, func(t *testing.T) { w.refused(t, c.token, c.reason) })
	}
}

// forged signs good claims under a kid with whatever key.
func (o *outsider) forged(kid string, method jwt.SigningMethod, key any) string {
	o.t.Helper()
	like := o.token("ed", nil)
	token := jwt.NewWithClaims(method, claimsOf(o.t, like))
	token.Header["kid"] = kid
	signed, err := token.SignedString(key)
	if err != nil {
		o.t.Fatal(err)
	}
	return signed
}

// An outside token has no key to revoke: its app is what the operator has a hand on.
func TestASuspendedAppEndsOutsideTokens(t *testing.T) {
	o := newOutsider(t)
	w := newWorld(t, o.trusted())
	token := o.token("ed", nil)
	w.opens(t, token)
	w.reload(t, func(a *acl.App, _ *acl.Key) { a.State = acl.Suspended })
	if _, err := w.verifier.Authenticate(token); err != acl.ErrAppSuspended { //nolint:errorlint // the value itself
		t.Error(err)
	}
	w.reload(t, func(a *acl.App, _ *acl.Key) { a.State, a.Permissions = acl.Active, []string{"strings:write"} })
	if got := w.opens(t, token).Permissions.Entries(commands); len(got) != 0 {
		t.Errorf("it may do %v, which its app may not", got)
	}
	w.reload(t, func(a *acl.App, _ *acl.Key) { a.State = acl.Deleted })
	w.refused(t, token, tokens.UnknownCaller)
}

// run keeps the keys up to date until the test ends.
func (w *world) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.verifier.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func (w *world) accepts(token string) func() bool {
	return func() bool { _, err := w.verifier.Authenticate(token); return err == nil }
}

func TestAKeyFileIsReadAgain(t *testing.T) {
	o := newOutsider(t)
	trusted := o.trusted()
	o.write(trusted.JWKSFile, o.set("p256", "ed"))
	w := newWorld(t, trusted)
	w.run(t)
	stays, goes, comes := o.token("ed", nil), o.token("p256", nil), o.token("p384", nil)
	identity := w.opens(t, stays)
	w.opens(t, goes)
	w.refused(t, comes, tokens.UnknownKey)

	o.write(trusted.JWKSFile, o.set("p384", "ed"))
	acltest.Eventually(t, "a new key is known", w.accepts(comes))
	w.refused(t, goes, tokens.UnknownKey) // though it was verified before
	if w.opens(t, stays) != identity {
		t.Error("a token was verified again though its key has stayed")
	}

	o.write(trusted.JWKSFile, `{"keys":[`) // half of it
	if err := os.Remove(trusted.JWKSFile); err != nil {
		t.Fatal(err)
	}
	w.opens(t, comes)
	o.write(trusted.JWKSFile, o.set("p521"))
	acltest.Eventually(t, "the file is back", w.accepts(o.token("p521", nil)))
	w.refused(t, stays, tokens.UnknownKey)
}

// keyServer serves what the test says.
type keyServer struct {
	*httptest.Server
	answer atomic.Pointer[http.HandlerFunc]
	asked  atomic.Int64
}

func newKeyServer(t *testing.T, answer http.HandlerFunc) *keyServer {
	s := &keyServer{}
	s.answer.Store(&answer)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		(*s.answer.Load())(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
}

func TestKeysAreFetched(t *testing.T) {
	o := newOutsider(t)
	server := newKeyServer(t, says(o.set("ed")))
	trusted := o.trusted()
	trusted.JWKSFile, trusted.JWKSURL = "", server.URL
	w := newWorld(t, trusted)
	first, second := o.token("ed", nil), o.token("p256", nil)
	w.refused(t, first, tokens.UnknownKey) // nothing was fetched yet, and no request waits for it
	w.run(t)
	acltest.Eventually(t, "the keys are there", w.accepts(first))

	// A key that is not known is asked for, but not more often than once a minute, however many tokens name it.
	next := says(o.set("ed", "p256"))
	server.answer.Store(&next)
	for range 100 {
		w.refused(t, second, tokens.UnknownKey)
	}
	looks := w.clock.looks.Load()
	acltest.Eventually(t, "it was looked whether the keys are due", func() bool { return w.clock.looks.Load() >= looks+5 })
	if n := server.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	w.clock.advance(61 * time.Second)
	acltest.Eventually(t, "the new key is there", w.accepts(second))
	if n := server.asked.Load(); n != 2 {
		t.Errorf("asked %d times", n)
	}

	// Without a reason it is asked after ten minutes.
	last := says(o.set("p256"))
	server.answer.Store(&last)
	w.clock.advance(10*time.Minute + time.Second)
	acltest.Eventually(t, "the old key is gone", func() bool { return !w.accepts(first)() })
	w.opens(t, second)
}

func TestBadAnswersLeaveTheLastKeys(t *testing.T) {
	o := newOutsider(t)
	elsewhere := newKeyServer(t, says(o.set()))
	for name, bad := range map[string]http.HandlerFunc{
		"a failure":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"not found":   http.NotFound,
		"a redirect":  func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) },
		"no JSON":     says("<html>"),
		"no keys":     says(`{"keys":[]}`),
		"no set":      says(`{}`),
		"two objects": says(o.set() + o.set()),
		"keys twice":  says(`{"keys":[],"keys":[]}`),
		"too long":    says(o.set() + strings.Repeat(" ", tokens.MaxJWKSBytes)),
		"endless": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 4096))
			}
		},
		"a broken connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"only weak keys":      says(weakSet(t)),
		"only other keys":     says(`{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"ed"},{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			server := newKeyServer(t, says(o.set("ed")))
			trusted := o.trusted()
			trusted.JWKSFile, trusted.JWKSURL = "", server.URL
			w := newWorld(t, trusted)
			w.run(t)
			good := o.token("ed", nil)
			acltest.Eventually(t, "the keys are there", w.accepts(good))
			server.answer.Store(&bad)
			before := server.asked.Load()
			w.clock.advance(10*time.Minute + time.Second)
			acltest.Eventually(t, "it is asked", func() bool { return server.asked.Load() > before })
			w.opens(t, good)
			again := says(o.set("p256"))
			server.answer.Store(&again)
			comes := o.token("p256", nil)
			acltest.Eventually(t, "good keys again", func() bool { w.clock.advance(6 * time.Second); return w.accepts(comes)() })
			if elsewhere.asked.Load() > 0 {
				t.Error("a redirect was followed")
			}
		})
	}
}

func weakSet(t *testing.T) string {
	t.Helper()
	n := base64.RawURLEncoding.EncodeToString(append(append([]byte{0xc1}, make([]byte, 126)...), 1))
	return fmt.Sprintf(`{"keys":[{"kty":"RSA","n":%q,"e":"AQAB","kid":"weak"}]}`, n)
}

func TestKeysThatArePassedOver(t *testing.T) {
	o := newOutsider(t)
	good := jwk(o.private["ed"].Public())
	for name, bad := range map[string]map[string]any{
		"a short RSA key":        {"kty": "RSA", "n": "wQAB", "e": "AQAB"},
		"an even exponent":       {"kty": "RSA", "n": jwk(rsaKey().Public())["n"], "e": "Ag"},
		"exponent one":           {"kty": "RSA", "n": jwk(rsaKey().Public())["n"], "e": "AQ"},
		"a huge exponent":        {"kty": "RSA", "n": jwk(rsaKey().Public())["n"], "e": "AQAAAAAB"},
		"a huge modulus":         {"kty": "RSA", "n": base64.RawURLEncoding.EncodeToString(append([]byte{1}, make([]byte, 4096)...)), "e": "AQAB"},
		"no modulus":             {"kty": "RSA", "e": "AQAB"},
		"padded base64":          {"kty": "OKP", "crv": "Ed25519", "x": good["x"].(string) + "="},
		"half a key":             {"kty": "OKP", "crv": "Ed25519", "x": good["x"].(string)[:20]},
		"another curve":          {"kty": "OKP", "crv": "X25519", "x": good["x"]},
		"a point off the curve":  {"kty": "EC", "crv": "P-256", "x": good["x"], "y": good["x"]},
		"a point too short":      {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
		"a key for encryption":   {"kty": "OKP", "crv": "Ed25519", "x": good["x"], "use": "enc"},
		"a key for signing":      {"kty": "OKP", "crv": "Ed25519", "x": good["x"], "key_ops": []string{"sign"}},
		"an algorithm not ours":  {"kty": "OKP", "crv": "Ed25519", "x": good["x"], "alg": "ES256"},
		"a number for text":      {"kty": "OKP", "crv": "Ed25519", "x": 7},
		"a list for text":        {"kty": "OKP", "crv": []string{"Ed25519"}, "x": good["x"]},
		"a shared key":           {"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"},
		"the kid of another key": {"kty": "OKP", "crv": "Ed25519", "x": good["x"], "kid": "ed"},
	} {
		t.Run(name, func(t *testing.T) {
			first := maps.Clone(good)
			first["kid"] = "ed"
			if bad["kid"] == nil {
				bad["kid"] = "bad"
			}
			trusted := o.trusted()
			o.write(trusted.JWKSFile, text(t, map[string]any{"keys": []any{first, bad}}))
			w := newWorld(t, trusted)
			w.opens(t, o.token("ed", nil))
			w.refused(t, o.forged("bad", jwt.SigningMethodEdDSA, o.private["ed"]), tokens.UnknownKey)
			o.write(trusted.JWKSFile, text(t, map[string]any{"keys": []any{bad}}))
			if err := tokens.CheckJWKS(trusted.JWKSFile, trusted.Algorithms); (err == nil) != (bad["kid"] == "ed") {
				t.Errorf("alone: %v", err)
			}
		})
	}
}

func TestAKeyWithoutAnID(t *testing.T) {
	o := newOutsider(t)
	o.add("", o.private["ed"], jwt.SigningMethodEdDSA)
	trusted := o.trusted()
	only := jwk(o.private["ed"].Public())
	o.write(trusted.JWKSFile, text(t, map[string]any{"keys": []any{only}}))
	w := newWorld(t, trusted)
	w.opens(t, o.token("", nil))
	w.refused(t, o.token("ed", nil), tokens.UnknownKey)
}

func TestSettingsOfIssuers(t *testing.T) {
	o := newOutsider(t)
	for name, change := range map[string]func(*tokens.Trusted){
		"no issuer":            func(c *tokens.Trusted) { c.Realm.Issuer = "" },
		"no audience":          func(c *tokens.Trusted) { c.Realm.Audience = "" },
		"no keys":              func(c *tokens.Trusted) { c.JWKSFile = "" },
		"a file and a URL":     func(c *tokens.Trusted) { c.JWKSURL = "https://login.example.com/keys" },
		"no algorithm":         func(c *tokens.Trusted) { c.Algorithms = nil },
		"none":                 func(c *tokens.Trusted) { c.Algorithms = []string{"RS256", "none"} },
		"HS256":                func(c *tokens.Trusted) { c.Algorithms = []string{"HS256"} },
		"no such algorithm":    func(c *tokens.Trusted) { c.Algorithms = []string{"ES257"} },
		"a missing file":       func(c *tokens.Trusted) { c.JWKSFile = "/nowhere" },
		"http":                 func(c *tokens.Trusted) { c.JWKSFile, c.JWKSURL = "", "http://login.example.com/keys" },
		"a file as a URL":      func(c *tokens.Trusted) { c.JWKSFile, c.JWKSURL = "", "file:///etc/passwd" },
		"a password in it":     func(c *tokens.Trusted) { c.JWKSFile, c.JWKSURL = "", "https://u:p@login.example.com/keys" },
		"no URL":               func(c *tokens.Trusted) { c.JWKSFile, c.JWKSURL = "", "login" },
		"loopback in the name": func(c *tokens.Trusted) { c.JWKSFile, c.JWKSURL = "", "http://127.0.0.1.example.com/" },
		"the gateways' name":   func(c *tokens.Trusted) { c.Realm.Issuer = realm.Issuer },
		"no key by algorithms": func(c *tokens.Trusted) { o.write(c.JWKSFile, o.set("rsa")); c.Algorithms = []string{"ES256"} },
	} {
		c := o.trusted()
		change(&c)
		keys, err := tokens.DeriveKeys(tokens.EdDSA, acltest.Secret(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tokens.NewVerifier(tokens.VerifierConfig{Realm: realm, Keys: keys, Trusted: []tokens.Trusted{c}}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	for _, good := range []string{"https://login.example.com/keys?v=1", "http://127.0.0.1:80/", "http://[::1]/k", "http://localhost/k"} {
		if err := tokens.CheckJWKSURL(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}
