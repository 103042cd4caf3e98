package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

// version is major, minor and patch.
type version [3]int

func parseVersion(text string) (v version, ok bool) {
	parts := strings.SplitN(text, ".", 3)
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, len(parts) >= 2
}

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

func (v version) before(o version) bool {
	for i := range v {
		if v[i] != o[i] {
			return v[i] < o[i]
		}
	}
	return false
}

// leastVersion is the oldest that the project is tested with.
var leastVersion = version{7, 0, 0}

// scriptFixes are the first releases of each line of Redis and Valkey without CVE-2025-49844, in which a script could break out of
// Lua. The gateway itself sends scripts, so the command cannot be switched off.
var scriptFixes = map[string][]version{
	"redis":  {{6, 2, 20}, {7, 2, 11}, {7, 4, 6}, {8, 0, 4}, {8, 2, 2}},
	"valkey": {{7, 2, 11}, {8, 0, 6}, {8, 1, 4}},
}

// checkVersion judges the version of a node. name is redis or valkey.
func checkVersion(where, name, text string) Finding {
	const check = "version"
	v, good := parseVersion(text)
	switch {
	case !good:
		return warn(where, check, "look at what answers there", "%s %q is no version", name, text)
	case name == "redis" && v.before(leastVersion):
		return fail(where, check, "upgrade to Redis 7 or newer", "Redis %v is older than anything that is tested", v)
	case !scriptsFixed(name, v):
		return warn(where, check, "upgrade, unless your distribution has mended this version",
			"%s %v is known for CVE-2025-49844: a script can break out of Lua", name, v)
	}
	return ok(where, check, "%s %v", name, v)
}

func scriptsFixed(name string, v version) bool {
	newest := version{}
	for _, fix := range scriptFixes[name] {
		if v[0] == fix[0] && v[1] == fix[1] {
			return !v.before(fix)
		}
		newest = fix
	}
	return newest.before(v)
}
