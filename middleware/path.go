package middleware

import (
	"net/url"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/store"
)

// PathGuard refuses paths that programs on the way read differently: raw empty segments and raw dot segments, which many a proxy
// removes, and raw characters beside an encoded slash. It looks at the escaped path, as the router does, so %2F, %2E%2E and every other
// encoded byte are part of a key and pass.
func PathGuard() gin.HandlerFunc {
	return func(c *gin.Context) {
		for _, p := range c.Params {
			if p.Value == "" { // /v1/keys//ttl: the router matches an empty segment in the middle
				refuse(c, emptyKey(p.Key))
				return
			}
		}
		if why := badPath(c.Request.URL); why != "" {
			refuse(c, store.Unparsable("path", why))
		}
	}
}

// NoRoute answers what no route matches: 404, or 400 invalid_key for a path that ends where its key should begin, such as
// /v1/strings/. keyed are the prefixes of routes that a parameter follows, see KeyedPrefixes.
func NoRoute(keyed []string) gin.HandlerFunc {
	params := make(map[string]string, len(keyed))
	for _, template := range keyed {
		prefix, param, _ := strings.Cut(template, ":")
		params[prefix] = param
	}
	return func(c *gin.Context) {
		if param, ok := params[c.Request.URL.EscapedPath()]; ok {
			refuse(c, emptyKey(param))
			return
		}
		refuse(c, store.NewError(store.CodeNotFound, "there is no such resource; a / inside a key is sent as %2F"))
	}
}

// KeyedPrefixes cuts every route template after its first parameter: "/v1/keys/:key/ttl" gives "/v1/keys/:key".
func KeyedPrefixes(routes gin.RoutesInfo) []string {
	var prefixes []string
	seen := map[string]bool{}
	for _, r := range routes {
		i := strings.IndexByte(r.Path, ':')
		if i < 0 {
			continue
		}
		end := len(r.Path)
		if j := strings.IndexByte(r.Path[i:], '/'); j >= 0 {
			end = i + j
		}
		if p := r.Path[:end]; !seen[p] {
			seen[p] = true
			prefixes = append(prefixes, p)
		}
	}
	return prefixes
}

// NoMethod answers a method that the resource does not know; gin has set Allow.
func NoMethod() gin.HandlerFunc {
	return func(c *gin.Context) {
		e := store.NewError(store.CodeMethodNotAllowed, "")
		e.Allow = c.Writer.Header().Get("Allow")
		refuse(c, e)
	}
}

func emptyKey(param string) error {
	e := store.NewError(store.CodeInvalidKey, "the "+param+" is empty")
	e.Fields = []store.FieldError{{Pointer: "path:" + param, Code: string(store.CodeInvalidKey), Detail: e.Detail}}
	return e
}

// badPath says what is wrong with a path, "" when nothing is.
func badPath(u *url.URL) string {
	escaped := u.EscapedPath()
	// net/url keeps the path as sent only while it is validly encoded; otherwise it decodes and encodes again, and what was %2F
	// inside a key becomes a slash between segments: /v1/keys/a^%2Fttl would be the TTL of "a^".
	if u.RawPath != "" && u.RawPath != escaped && hasEncodedSlash(u.RawPath) {
		return "the path has an encoded slash beside characters that must be percent-encoded too"
	}
	if len(escaped) < 2 || escaped[0] != '/' { // "/", "*" or CONNECT's empty one
		return ""
	}
	for rest, more := escaped[1:], true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		switch {
		case segment == "" && more:
			return "the path has an empty segment (//)"
		case segment == "." || segment == "..":
			return "the path has a dot segment; a key that is a dot or two is sent as %2E or %2E%2E"
		}
	}
	return ""
}

func hasEncodedSlash(s string) bool {
	return strings.Contains(s, "%2F") || strings.Contains(s, "%2f")
}
