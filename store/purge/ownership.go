package purge

import "strings"

// internalPrefix is where the gateway keeps its own keys; no namespace can begin with it.
const internalPrefix = "slotgate:"

// ownership says which stored keys belong to an app.
type ownership struct {
	prefix    string // of the app's keys, "ns:" or "{ns}:"
	namespace string
}

// patterns are the SCAN patterns that find the app's keys: those it wrote, and the gateway's keys about it, which
// are slotgate:<kind>:{<namespace>/<name>}….
func (o ownership) patterns() []string {
	return []string{
		escape(o.prefix) + "*",
		internalPrefix + "*:{" + escape(o.namespace) + "/*",
	}
}

// owns is the final word on a key that a pattern matched. The * of a pattern also matches braces and colons.
func (o ownership) owns(key string) bool {
	if strings.HasPrefix(key, o.prefix) {
		return true
	}
	rest, ok := strings.CutPrefix(key, internalPrefix)
	kind, rest, ok2 := strings.Cut(rest, ":")
	return ok && ok2 && kind != "" && !strings.ContainsAny(kind, "{}") && strings.HasPrefix(rest, "{"+o.namespace+"/")
}

// escape makes text literal in a glob pattern of Redis.
func escape(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if strings.IndexByte(`*?[]\`, text[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
