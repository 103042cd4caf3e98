package middleware

import (
	"encoding/base64"
	"strings"

	"github.com/slotgate/slotgate/acl/tokens"
)

// maxAuthorization is the longest token behind its scheme; a longer header is not looked into. In Basic, which is a third longer than
// what it says, a token may have 3 KiB.
const maxAuthorization = len("Bearer ") + tokens.MaxBytes

// usualBasic is longer than any app key in Basic.
const usualBasic = 512

// credentials takes the token out of the Authorization headers of a request: one header, `Bearer TOKEN` or Basic with the token as
// password and any user (curl -u :TOKEN). The scheme's name is matched without case, as HTTP says; everything else is exact. It does not
// judge the token.
func credentials(headers []string) (token string, ok bool) {
	if len(headers) != 1 || len(headers[0]) > maxAuthorization {
		return "", false
	}
	scheme, rest, found := strings.Cut(headers[0], " ")
	switch {
	case !found || rest == "":
		return "", false
	case strings.EqualFold(scheme, "Bearer"):
		return rest, !strings.ContainsAny(rest, " ,\t")
	case strings.EqualFold(scheme, "Basic"):
		return basicPassword(rest)
	}
	return "", false
}

func basicPassword(encoded string) (string, bool) {
	var usual [usualBasic]byte
	buf := usual[:]
	if len(encoded) > len(usual) {
		buf = make([]byte, len(encoded))
	}
	n, err := base64.StdEncoding.Strict().Decode(buf, []byte(encoded))
	if err != nil {
		return "", false
	}
	for i := range n {
		if buf[i] == ':' {
			return string(buf[i+1 : n]), i+1 < n
		}
	}
	return "", false
}
