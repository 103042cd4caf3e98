package tokens_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
	"github.com/slotgate/slotgate/acl/tokens"
)

// header is that of a good token.
func (w *world) header(t testing.TB) map[string]any { return part(t, w.issue(t).Token, 0) }

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Every row is a token that somebody with the gateways' own key has signed, or that somebody else wants to pass for one.
func TestBadTokens(t *testing.T) {
	w := newWorld(t)
	key := gatewayKey(t)
	kid := w.header(t)["kid"].(string)
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	public := key.Public().(ed25519.PublicKey)
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	now := w.clock.now().Unix()
	claim := func(name string, value any) string {
		return w.sign(t, func(c jwt.MapClaims) {
			if value == nil {
				delete(c, name)
			} else {
				c[name] = value
			}
		})
	}
	with := func(header map[string]any) string { return w.signWith(t, jwt.SigningMethodEdDSA, key, header, nil) }
	hmac := func(secret []byte) string { return w.signWith(t, jwt.SigningMethodHS256, secret, nil, nil) }
	goodHeader, goodClaims := text(t, w.header(t)), text(t, claimsOf(t, w.issue(t).Token))
	member := func(object, more string) string { return strings.TrimSuffix(object, "}") + "," + more + "}" }

	for name, c := range map[string]struct {
		token  string
		reason tokens.Refusal
	}{
		"alg none, unsigned":                   {w.signWith(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil), tokens.BadSignature},
		"alg none with a good signature":       {with(map[string]any{"alg": "none"}), tokens.BadSignature},
		"alg nOnE":                             {with(map[string]any{"alg": "nOnE"}), tokens.BadSignature},
		"no alg":                               {with(map[string]any{"alg": nil}), tokens.BadSignature},
		"alg that is a number":                 {with(map[string]any{"alg": 7}), tokens.BadSignature},
		"alg in lower case":                    {with(map[string]any{"alg": "eddsa"}), tokens.BadSignature},
		"HS256 with the public key":            {hmac(public), tokens.BadSignature},
		"HS256 with the public key as PEM":     {hmac(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), tokens.BadSignature},
		"HS256 with the public key in base64":  {hmac([]byte(base64.RawURLEncoding.EncodeToString(public))), tokens.BadSignature},
		"HS256 with the HS256 key of the same": {hmac(acltest.Secret(t).Sub(acl.LabelJWTHS256)), tokens.BadSignature},
		"HS256 with nothing":                   {hmac(nil), tokens.BadSignature},
		"RS256 in the header":                  {with(map[string]any{"alg": "RS256"}), tokens.BadSignature},
		"signed with a stranger's key":         {w.signWith(t, jwt.SigningMethodEdDSA, stranger, nil, nil), tokens.BadSignature},
		"a stranger's key in the header":       {w.signWith(t, jwt.SigningMethodEdDSA, stranger, map[string]any{"jwk": map[string]any{"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(stranger.Public().(ed25519.PublicKey))}}, nil), tokens.BadSignature},
		"an unknown kid":                       {with(map[string]any{"kid": "nobody"}), tokens.UnknownKey},
		"no kid":                               {with(map[string]any{"kid": nil}), tokens.UnknownKey},
		"an empty kid":                         {with(map[string]any{"kid": ""}), tokens.UnknownKey},
		"a kid that is a path":                 {with(map[string]any{"kid": "../../../../dev/null"}), tokens.UnknownKey},
		"a kid that is an absolute path":       {with(map[string]any{"kid": "/proc/self/environ"}), tokens.UnknownKey},
		"a kid that is SQL":                    {with(map[string]any{"kid": "x' UNION SELECT 'key';--"}), tokens.UnknownKey},
		"a kid that is a URL":                  {with(map[string]any{"kid": "https://evil.example/key"}), tokens.UnknownKey},
		"a kid with a zero byte behind":        {with(map[string]any{"kid": kid + "\x00"}), tokens.UnknownKey},
		"a kid that is a number":               {with(map[string]any{"kid": 7}), tokens.Malformed},
		"a kid that is a list":                 {with(map[string]any{"kid": []string{kid}}), tokens.Malformed},
		"a kid that is null":                   {raw(t, key, strings.Replace(goodHeader, `"`+kid+`"`, "null", 1), goodClaims), tokens.Malformed},
		"a kid longer than any":                {with(map[string]any{"kid": strings.Repeat("k", 300)}), tokens.Malformed},
		"an extension that must be understood": {with(map[string]any{"crit": []string{"exp"}}), tokens.Malformed},
		"an unencoded payload (RFC 7797)":      {with(map[string]any{"b64": false, "crit": []string{"b64"}}), tokens.Malformed},
		"another issuer":                       {claim("iss", "slotgate2"), tokens.UnknownIssuer},
		"no issuer":                            {claim("iss", nil), tokens.UnknownIssuer},
		"an issuer in capitals":                {claim("iss", "SLOTGATE"), tokens.UnknownIssuer},
		"an issuer that is a list":             {claim("iss", []string{"slotgate"}), tokens.Malformed},
		"another audience":                     {claim("aud", "billing"), tokens.WrongAudience},
		"other audiences":                      {claim("aud", []string{"billing", "slotgate2"}), tokens.WrongAudience},
		"no audience":                          {claim("aud", nil), tokens.Malformed},
		"an empty audience":                    {claim("aud", ""), tokens.Malformed},
		"an audience that is a number":         {claim("aud", 7), tokens.Malformed},
		"an audience of numbers":               {claim("aud", []int{7}), tokens.Malformed},
		"no expiry":                            {claim("exp", nil), tokens.Malformed},
		"expired":                              {claim("exp", now-31), tokens.Expired},
		"expired long ago":                     {claim("exp", 0), tokens.Expired},
		"an expiry in quotes":                  {claim("exp", fmt.Sprint(now+60)), tokens.Malformed},
		"an expiry that is null":               {raw(t, key, goodHeader, replaced(t, goodClaims, "exp", "null")), tokens.Malformed},
		"an expiry beyond all time":            {raw(t, key, goodHeader, replaced(t, goodClaims, "exp", "1e300")), tokens.Malformed},
		"an expiry beyond a float":             {raw(t, key, goodHeader, replaced(t, goodClaims, "exp", "1e999")), tokens.Malformed},
		"an expiry in milliseconds":            {claim("exp", (now+60)*1000), tokens.Malformed},
		"a negative expiry":                    {claim("exp", -1), tokens.Malformed},
		"an expiry that is true":               {claim("exp", true), tokens.Malformed},
		"not yet valid":                        {claim("nbf", now+31), tokens.NotYetValid},
		"a beginning in quotes":                {claim("nbf", "0"), tokens.Malformed},
		"issued in the future":                 {claim("iat", now+31), tokens.NotYetValid},
		"issued at no time":                    {claim("iat", []int{}), tokens.Malformed},
		"no subject":                           {claim("sub", nil), tokens.Malformed},
		"a subject that is an object":          {claim("sub", map[string]any{"a": 1}), tokens.Malformed},
		"another app":                          {claim("sub", "other"), tokens.UnknownCaller},
		"no key":                               {claim("key_id", nil), tokens.Malformed},
		"an empty key":                         {claim("key_id", ""), tokens.Malformed},
		"an unknown key":                       {claim("key_id", "000000000000"), tokens.UnknownCaller},
		"a key that is a number":               {claim("key_id", 7), tokens.Malformed},
		"no permissions":                       {claim("permissions", nil), tokens.Malformed},
		"permissions that are a string":        {claim("permissions", "*"), tokens.Malformed},
		"permissions of numbers":               {claim("permissions", []int{1}), tokens.Malformed},
		"an id that is a number":               {claim("jti", 7), tokens.Malformed},
		"a claim twice":                        {raw(t, key, goodHeader, member(goodClaims, `"sub":"other"`)), tokens.Malformed},
		"a claim twice, the same":              {raw(t, key, goodHeader, member(goodClaims, `"sub":"shop"`)), tokens.Malformed},
		"a claim twice, once with an escape":   {raw(t, key, goodHeader, member(goodClaims, `"s\u0075b":"other"`)), tokens.Malformed},
		"a member of a claim twice":            {raw(t, key, goodHeader, member(goodClaims, `"x":{"a":1,"a":2}`)), tokens.Malformed},
		"alg twice":                            {raw(t, key, member(goodHeader, `"alg":"none"`), goodClaims), tokens.Malformed},
		"kid twice":                            {raw(t, key, member(goodHeader, `"kid":"x"`), goodClaims), tokens.Malformed},
		"claims that are null":                 {raw(t, key, goodHeader, "null"), tokens.Malformed},
		"claims that are a list":               {raw(t, key, goodHeader, "["+goodClaims+"]"), tokens.Malformed},
		"claims that are a string":             {raw(t, key, goodHeader, `"`+"sub"+`"`), tokens.Malformed},
		"claims that are empty":                {raw(t, key, goodHeader, "{}"), tokens.UnknownIssuer},
		"claims that are nothing":              {raw(t, key, goodHeader, ""), tokens.Malformed},
		"claims with more behind them":         {raw(t, key, goodHeader, goodClaims+"{}"), tokens.Malformed},
		"claims that are not UTF-8":            {raw(t, key, goodHeader, member(goodClaims, "\"x\":\"\xff\"")), tokens.Malformed},
		"claims cut short":                     {raw(t, key, goodHeader, goodClaims[:len(goodClaims)-1]), tokens.Malformed},
		"claims nested very deep":              {raw(t, key, goodHeader, member(goodClaims, `"x":`+strings.Repeat("[", 1000))), tokens.Malformed},
		"a header that is null":                {raw(t, key, "null", goodClaims), tokens.Malformed},
		"a header that is empty":               {raw(t, key, "{}", goodClaims), tokens.UnknownKey},
		"a header that is nothing":             {raw(t, key, "", goodClaims), tokens.Malformed},
		"longer than any":                      {claim("x", strings.Repeat("x", tokens.MaxBytes)), tokens.Malformed},
	} {
		t.Run(name, func(t *testing.T) { w.refused(t, c.token, c.reason) })
	}
}

// replaced writes a value of an object as it is, valid or not.
func replaced(t *testing.T, object, name, value string) string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &m); err != nil {
		t.Fatal(err)
	}
	m[name] = json.RawMessage(`"HERE"`)
	return strings.Replace(text(t, m), `"HERE"`, value, 1)
}

// Where the header says to find a key nobody looks.
func TestNoKeyIsFetchedBecauseATokenSaysSo(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	w := newWorld(t)
	for _, name := range []string{"jku", "x5u"} {
		w.opens(t, w.signWith(t, jwt.SigningMethodEdDSA, gatewayKey(t), map[string]any{name: server.URL}, nil))
		w.refused(t, w.signWith(t, jwt.SigningMethodEdDSA, gatewayKey(t), map[string]any{name: server.URL, "kid": server.URL}, nil), tokens.UnknownKey)
	}
	if asked.Load() > 0 {
		t.Error("somebody has looked")
	}
}

// What is made of a good token by changing how it is written.
func mutations(t testing.TB, good string) map[string]string {
	t.Helper()
	parts := strings.Split(good, ".")
	join := func(h, c, s string) string { return h + "." + c + "." + s }
	h, c, s := parts[0], parts[1], parts[2]
	all := map[string]string{
		"without a signature":           join(h, c, ""),
		"without claims":                join(h, "", s),
		"without a header":              join("", c, s),
		"nothing but dots":              "..",
		"two parts":                     h + "." + c,
		"one part":                      h,
		"four parts":                    good + ".",
		"four parts, the last twice":    good + "." + s,
		"a dot before":                  "." + good,
		"five parts (encrypted)":        good + "." + h + "." + c,
		"padded signature":              good + "=",
		"padded claims":                 join(h, c+"==", s),
		"padded header":                 join(h+"=", c, s),
		"header and claims exchanged":   join(c, h, s),
		"the signature doubled":         join(h, c, s+s),
		"the signature of nothing":      join(h, c, base64.RawURLEncoding.EncodeToString(make([]byte, 64))),
		"a signature too short":         join(h, c, s[:len(s)-4]),
		"a signature too long":          join(h, c, s+"AAAA"),
		"a line end inside":             join(h, c[:8]+"\n"+c[8:], s),
		"a carriage return behind":      good + "\r",
		"a space behind":                good + " ",
		"a space before":                " " + good,
		"a tab inside":                  join(h, c, s[:8]+"\t"+s[8:]),
		"a zero byte behind":            good + "\x00",
		"the standard alphabet":         join(h, c, "+/"+s[2:]),
		"not base64":                    join(h, "!!!!", s),
		"an impossible length":          join(h, c, s+"AAA"[:1+(4-len(s)%4)%3]),
		"not ASCII":                     join(h, c, "ä"+s),
		"in quotes":                     `"` + good + `"`,
		"all in capitals":               strings.ToUpper(good),
		"the scheme before it":          "Bearer " + good,
		"a comma and another":           good + "," + good,
		"percent-encoded dots":          strings.ReplaceAll(good, ".", "%2E"),
		"the claims of another token":   join(h, encode(`{"iss":"slotgate","aud":"slotgate","sub":"shop","exp":9999999999}`), s),
		"the claims in another spacing": join(h, encode(strings.Replace(decoded(t, c), `,`, `, `, 1)), s),
		"the header in another spacing": join(encode(strings.Replace(decoded(t, h), `,`, `, `, 1)), c, s),
	}
	for i, name := range []string{"header", "claims", "signature"} {
		for _, at := range []int{0, 1, len(parts[i]) / 2, len(parts[i]) - 2, len(parts[i]) - 1} {
			changed := []byte(parts[i])
			for bit := range 3 {
				changed[at] = parts[i][at] ^ 1<<bit
				flipped := append([]string{}, parts...)
				flipped[i] = string(changed)
				all[fmt.Sprintf("bit %d of byte %d of the %s flipped", bit, at, name)] = strings.Join(flipped, ".")
			}
			cut := append([]string{}, parts...)
			cut[i] = parts[i][:at]
			all[fmt.Sprintf("the %s cut at %d", name, at)] = strings.Join(cut, ".")
		}
	}
	return all
}

func decoded(t testing.TB, part string) string {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMutationsOfAGoodToken(t *testing.T) {
	for _, algorithm := range []string{tokens.EdDSA, tokens.HS256} {
		w := newWorldWith(t, algorithm, nil)
		good := w.issue(t).Token
		all := mutations(t, good)
		for _, seen := range []bool{false, true} { // neither does a remembered token let a changed one in
			if seen {
				w.opens(t, good)
			}
			for name, token := range all {
				if id, err := w.verifier.Authenticate(token); id != nil || !errors.Is(err, acl.ErrUnauthenticated) {
					t.Errorf("%s, %s: %v", algorithm, name, err)
				}
			}
		}
		if len(all) < 40 {
			t.Errorf("only %d mutations", len(all))
		}
		w.opens(t, good)
	}
}

// CVE-2025-30204 was a parser that allocated for every dot.
func TestHugeTokensCostNothing(t *testing.T) {
	w := newWorld(t)
	for name, token := range map[string]string{
		"dots":               strings.Repeat(".", 1<<20),
		"one part":           strings.Repeat("e", 1<<20),
		"two dots":           strings.Repeat("e", 1<<20) + "." + strings.Repeat("y", 1<<20) + ".J",
		"a header of braces": encode(strings.Repeat("{", 3000)) + ".e30.e30",
	} {
		var before, after uint64
		before = allocated()
		if _, err := w.verifier.Authenticate(token); !errors.Is(err, acl.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
		if after = allocated(); after-before > 64<<10 {
			t.Errorf("%s: %d bytes were allocated", name, after-before)
		}
	}
}

// A refusal is one answer to the caller and one word to the operator, and quotes nothing of the token.
func TestRefusalsTellNothing(t *testing.T) {
	for _, reason := range []tokens.Refusal{tokens.Malformed, tokens.UnknownIssuer, tokens.UnknownKey, tokens.BadSignature, tokens.WrongAudience, tokens.Expired, tokens.NotYetValid, tokens.UnknownCaller} {
		if !errors.Is(reason, acl.ErrUnauthenticated) || errors.Is(reason, acl.ErrAppSuspended) {
			t.Errorf("%v is not a refusal like any other", reason)
		}
	}
}

// Whatever the bytes are: no panic, no identity without the gateways' signature.
func FuzzTokens(f *testing.F) {
	w := newWorld(f)
	good := w.issue(f).Token
	f.Add(good)
	for token := range maps.Values(mutations(f, good)) {
		f.Add(token)
	}
	w.opens(f, good)
	f.Fuzz(func(t *testing.T, token string) {
		id, err := w.verifier.Authenticate(token)
		if (id == nil) == (err == nil) {
			t.Fatalf("%v and %v", id, err)
		}
		if id != nil && token != good && token != w.key {
			t.Fatalf("%q is let in", token)
		}
		if err != nil && !errors.Is(err, acl.ErrUnauthenticated) {
			t.Fatalf("%v", err)
		}
	})
}

// The same with a good signature, so that what is behind it is reached.
func FuzzSignedTokens(f *testing.F) {
	w := newWorld(f)
	good := w.issue(f).Token
	parts := strings.Split(good, ".")
	f.Add(decoded(f, parts[0]), decoded(f, parts[1]))
	f.Add(`{"alg":"EdDSA","kid":null}`, `{"iss":"slotgate","exp":1e300}`)
	f.Add(`{}`, `null`)
	key := gatewayKey(f)
	f.Fuzz(func(t *testing.T, header, payload string) {
		signed := encode(header) + "." + encode(payload)
		signature, err := key.Sign(nil, []byte(signed), crypto.Hash(0))
		if err != nil {
			t.Fatal(err)
		}
		id, err := w.verifier.Authenticate(signed + "." + base64.RawURLEncoding.EncodeToString(signature))
		if (id == nil) == (err == nil) {
			t.Fatalf("%v and %v", id, err)
		}
		if id != nil && (id.App.ID != "shop" || id.JWT == nil || !w.clock.now().Before(id.JWT.ExpiresAt.Add(31*time.Second))) {
			t.Fatalf("%+v", id)
		}
	})
}
