package tokens

import (
	"slices"
	"testing"
)

func FuzzJWKS(f *testing.F) {
	for _, set := range []string{
		`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`,
		`{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","x":"AA","y":"AA"},{"kty":"RSA","n":"wQAB","e":"AQAB"}]}`,
		`{"keys":[{"kty":"EC","crv":"P-521","x":"","y":""},null,{"kty":"RSA","e":"AQAAAAAB"}]}`, `{"keys":null}`, `[]`,
	} {
		f.Add([]byte(set))
	}
	f.Fuzz(func(t *testing.T, set []byte) {
		keys, _, err := parseJWKS(set, OutsideAlgorithms)
		if (err == nil) != (len(keys) > 0) {
			t.Fatalf("%d keys and %v", len(keys), err)
		}
		for _, k := range keys {
			if !slices.Contains(OutsideAlgorithms, k.algorithm) || k.public == nil {
				t.Fatalf("%+v", k)
			}
		}
	})
}
