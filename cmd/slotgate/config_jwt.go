package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/slotgate/slotgate/acl/tokens"
)

func (v *validation) jwt(j JWT) {
	if j.Issuer == "" {
		v.fault("jwt.issuer", "is empty; write a name, for example slotgate")
	}
	if j.Audience == "" {
		v.fault("jwt.audience", "is empty; write a name, for example slotgate")
	}
	if own := []string{tokens.EdDSA, tokens.HS256}; !slices.Contains(own, j.Algorithm) {
		v.fault("jwt.algorithm", "%q is not one; write %s", j.Algorithm, strings.Join(own, " or "))
	}
	seen := map[string]string{j.Issuer: "jwt.issuer"}
	for _, name := range slices.Sorted(maps.Keys(j.Trusted)) {
		path := "jwt.trusted." + name
		v.trusted(path, j.Trusted[name])
		issuer := j.Trusted[name].Issuer
		if other := seen[issuer]; other != "" && issuer != "" {
			v.fault(path+".issuer", "%q is %s too; each issuer has a name of its own", issuer, other)
		}
		seen[issuer] = path + ".issuer"
	}
}

func (v *validation) trusted(path string, t TrustedIssuer) {
	if t.Issuer == "" {
		v.fault(path+".issuer", "is empty; write what its tokens have in the claim iss, for example https://login.example.com")
	}
	if t.Audience == "" {
		v.fault(path+".audience", "is empty; write what tokens for this gateway have in the claim aud, for example slotgate")
	}
	switch {
	case t.JWKSFile == "" && t.JWKSURL == "":
		v.fault(path+".jwks_url", "is empty; write where its public keys are, or their file in jwks_file")
	case t.JWKSFile != "" && t.JWKSURL != "":
		v.fault(path+".jwks_url", "%q is set together with jwks_file; keep one", t.JWKSURL)
	case t.JWKSURL != "":
		if err := tokens.CheckJWKSURL(t.JWKSURL); err != nil {
			v.fault(path+".jwks_url", "%v", err)
		}
	}
	if len(t.Algorithms) == 0 {
		v.fault(path+".algorithms", "is empty; write those its tokens are signed with, for example [RS256]")
	}
	for _, a := range t.Algorithms {
		if !slices.Contains(tokens.OutsideAlgorithms, a) {
			v.fault(path+".algorithms", "%q is not accepted; write some of %s", a, strings.Join(tokens.OutsideAlgorithms, ", "))
		}
	}
}

// jwksFaults looks at the files with keys.
func (v *validation) jwksFaults(j JWT) {
	for _, name := range slices.Sorted(maps.Keys(j.Trusted)) {
		t := j.Trusted[name]
		if t.JWKSFile == "" || t.JWKSURL != "" || len(t.Algorithms) == 0 {
			continue
		}
		if err := tokens.CheckJWKS(t.JWKSFile, t.Algorithms); err != nil {
			v.fault("jwt.trusted."+name+".jwks_file", "%v", err)
		}
	}
}

// trustedIssuers are the settings as package tokens wants them, in the order of their names.
func (j JWT) trustedIssuers() []tokens.Trusted {
	var list []tokens.Trusted
	for _, name := range slices.Sorted(maps.Keys(j.Trusted)) {
		t := j.Trusted[name]
		list = append(list, tokens.Trusted{
			Name: name, Realm: tokens.Realm{Issuer: t.Issuer, Audience: t.Audience},
			JWKSFile: t.JWKSFile, JWKSURL: t.JWKSURL, Algorithms: t.Algorithms, AppClaim: t.AppClaim, PermissionsClaim: t.PermissionsClaim,
		})
	}
	return list
}
