package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// A gateway that is told of an issuer fetches its keys and takes its tokens; one that is not refuses them.
func TestTokensOfATrustedIssuer(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := private.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	number := base64.RawURLEncoding.EncodeToString
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"keys":[{"kty":"EC","crv":"P-256","kid":"k1","x":%q,"y":%q}]}`, number(point[1:33]), number(point[33:]))
	}))
	defer login.Close()
	apps := "apps:\n  - {id: shop, namespace: shop, permissions: ['strings:*']}\n"
	stranger := startGateway(t, fileVars(t, apps))
	g := startGateway(t, append(fileVars(t, apps),
		"SLOTGATE_JWT_TRUSTED_LOGIN_ISSUER=https://login.example.com", "SLOTGATE_JWT_TRUSTED_LOGIN_AUDIENCE=gateways",
		"SLOTGATE_JWT_TRUSTED_LOGIN_JWKS_URL="+login.URL, "SLOTGATE_JWT_TRUSTED_LOGIN_ALGORITHMS=ES256",
		"SLOTGATE_JWT_TRUSTED_LOGIN_PERMISSIONS_CLAIM=scope",
	))
	token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"iss": "https://login.example.com", "aud": "gateways", "exp": time.Now().Add(time.Hour).Unix(), "slotgate_app": "shop", "scope": "openid strings:read",
	})
	token.Header["kid"] = "k1"
	signed, err := token.SignedString(private)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return g.says(t, signed) == "200" })
	expect(t, call(t, "GET", g.api+"/v1/whoami", signed, ""), 200,
		`"id":"shop"`, `"key":{"id":"",`, `"permissions":["strings:read"]`, `"issuer":"https://login.example.com"`)
	expect(t, call(t, "POST", g.api+"/v1/token", signed, ""), 403, "a token is not exchanged for another")
	expect(t, call(t, "PUT", g.api+"/v1/strings/a", signed, `{"value":"x"}`), 403, "strings:write")
	if got := stranger.says(t, signed); got != "401 unauthenticated" {
		t.Errorf("a gateway that trusts nobody says %s", got)
	}
}

func TestAMissingKeyFileEndsTheStart(t *testing.T) {
	vars := append(fileVars(t, "apps: []\n"), "SLOTGATE_JWT_TRUSTED_LOGIN_ISSUER=i", "SLOTGATE_JWT_TRUSTED_LOGIN_AUDIENCE=a",
		"SLOTGATE_JWT_TRUSTED_LOGIN_ALGORITHMS=ES256", "SLOTGATE_JWT_TRUSTED_LOGIN_JWKS_FILE="+filepath.Join(t.TempDir(), "none"))
	got := slotgate(t, vars, "serve")
	if got.code == 0 {
		t.Error("it starts")
	}
	contains(t, "stderr", got.stderr, "jwt.trusted.login.jwks_file: open ")
}
