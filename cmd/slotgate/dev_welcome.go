package main

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"
)

// redisServer returns the name of the installed server program, "" if there is none.
func redisServer() string {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if _, err := exec.LookPath(name); err == nil {
			return name
		}
	}
	return ""
}

// welcome prints what there is and what to paste. Everything that is no command is a comment, so that all of it can be pasted.
func (d *dev) welcome(api, admin net.Addr, token string, nodes devCluster, took time.Duration) {
	gateway := "http://" + dialable(api)
	addrs := nodes.Addrs()
	_, port, _ := net.SplitHostPort(addrs[0])
	kept := "removed at the end"
	if d.keep != "" {
		kept = "kept"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Cluster on %s; files in %s, %s.\n", strings.Join(addrs, ", "), d.folder.Path(), kept)
	fmt.Fprintf(&b, "# API %[1]s/v1 · documentation %[1]s/docs · metrics http://%[2]s/metrics\n", gateway, dialable(admin))
	fmt.Fprintf(&b, "# Paste into another terminal:\n")
	fmt.Fprintf(&b, "export GW=%s\n", gateway)
	if token == "" {
		fmt.Fprintf(&b, "# The app %s of this folder was deleted. Make another: slotgate app create …; slotgate key create …\n", devApp)
	} else {
		fmt.Fprintf(&b, "export KEY=%s\n", token)
	}
	fmt.Fprintf(&b, "export SLOTGATE_CONFIG=%s\n", shellQuote(d.config))
	b.WriteString(`# Try:
curl -H "Authorization: Bearer $KEY" $GW/v1/whoami
curl -X PUT -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' -d '{"value":"hello","ttl_ms":600000}' $GW/v1/strings/greeting
curl -H "Authorization: Bearer $KEY" $GW/v1/strings/greeting
slotgate app list
`)
	fmt.Fprintf(&b, "redis-cli -c -p %s get %s:greeting\n", port, devApp)
	b.WriteString("# Ctrl-C stops everything.\n")
	fmt.Fprint(d.env.Stdout, b.String())
	d.say("Ready after %.1f s.", took.Seconds())
}

// shellQuote quotes a path for a POSIX shell if it needs that.
func shellQuote(path string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-", r)
	}
	if strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
