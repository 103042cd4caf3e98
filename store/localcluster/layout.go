package localcluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// layout is what a folder remembers of its cluster, in the file layoutName.
type layout struct {
	Version   int      `json:"version"`
	Formed    bool     `json:"formed"` // false: the program was killed while the cluster was being made
	Primaries int      `json:"primaries"`
	Replicas  int      `json:"replicas"`
	Ports     [][2]int `json:"ports"` // of each node: data and bus
}

const (
	layoutName    = "cluster.json"
	layoutVersion = 1
)

func readLayout(dir string) (layout, error) {
	var l layout
	raw, err := os.ReadFile(filepath.Join(dir, layoutName))
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &l)
	}
	if err == nil && l.Version != layoutVersion {
		err = fmt.Errorf("version %d is not %d", l.Version, layoutVersion)
	}
	if err != nil {
		return l, fmt.Errorf("reading the cluster in %s: %w", dir, err)
	}
	return l, nil
}

func (l layout) write(dir string) error {
	raw, err := json.Marshal(l)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, layoutName)
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// choosePorts fills in a pair for every node: those it had, if both are free, otherwise new ones. Data ports that the caller
// asked for are taken or fail.
func (l *layout) choosePorts(wanted []int) error {
	taken := map[int]bool{}
	for i, pair := range l.Ports {
		if wanted != nil && pair[0] != wanted[i] {
			pair = [2]int{wanted[i], 0}
		}
		if !free(pair[0], taken) {
			if wanted != nil {
				return fmt.Errorf("port %d is in use", pair[0])
			}
			pair[0] = freePort(taken)
		}
		taken[pair[0]] = true
		if !free(pair[1], taken) {
			pair[1] = freePort(taken)
		}
		taken[pair[1]] = true
		if pair[0] == 0 || pair[1] == 0 {
			return errors.New("no free port found")
		}
		l.Ports[i] = pair
	}
	return nil
}

// freePort looks below the range from which systems take the ports of outgoing connections: a node that is down must find its
// own port free when it comes back. It returns 0 if there is none.
func freePort(taken map[int]bool) int {
	for range 1000 {
		if port := 10_000 + rand.IntN(22_000); free(port, taken) {
			return port
		}
	}
	return 0
}

func free(port int, taken map[int]bool) bool {
	if port == 0 || taken[port] {
		return false
	}
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

const loopback = "127.0.0.1"

// readdress changes the addresses in the file by which nodes find each other again, for a cluster whose ports have changed
// while it was down. Only the second field of each line is touched, so that every version's file is understood:
//
//	<id> 127.0.0.1:7001@17001[,…] master - …
func readdress(nodesConf string, old, now [][2]int) error {
	raw, err := os.ReadFile(nodesConf)
	if err != nil {
		return fmt.Errorf("reading where the other nodes were: %w", err)
	}
	lines := bytes.SplitAfter(raw, []byte("\n"))
	for i, line := range lines {
		fields := bytes.SplitN(line, []byte(" "), 3)
		if len(fields) != 3 {
			continue
		}
		for n := range old {
			rest, found := bytes.CutPrefix(fields[1], []byte(endpoint(old[n])))
			if found && (len(rest) == 0 || rest[0] == ',') {
				fields[1] = append([]byte(endpoint(now[n])), rest...)
				lines[i] = bytes.Join(fields, []byte(" "))
				break
			}
		}
	}
	return os.WriteFile(nodesConf, bytes.Join(lines, nil), 0o600)
}

func endpoint(ports [2]int) string { return fmt.Sprintf("%s:%d@%d", loopback, ports[0], ports[1]) }

// directives is a node's configuration.
func (o *Options) directives(dir string, ports [2]int) map[string]string {
	d := map[string]string{
		"bind":                      loopback,
		"port":                      strconv.Itoa(ports[0]),
		"dir":                       quote(dir),
		"set-proc-title":            "no", // the folder stays in the command line: Sweep knows a server by it
		"save":                      `""`,
		"shutdown-timeout":          "1",
		"enable-debug-command":      "local",
		"repl-diskless-sync-delay":  "0", // a replica does not wait for others to share the transfer
		"repl-ping-replica-period":  "1",
		"cluster-enabled":           "yes",
		"cluster-port":              strconv.Itoa(ports[1]),
		"cluster-config-file":       "nodes.conf",
		"cluster-node-timeout":      strconv.FormatInt(o.NodeTimeout.Milliseconds(), 10),
		"cluster-migration-barrier": "100", // replicas stay where they were put
		// A replica takes over however long it was stalled before: tests stall replicas.
		"cluster-replica-validity-factor": "0",
	}
	if o.Dir != "" {
		d["appendonly"] = "yes"
	}
	if t := o.TLS; t != nil {
		d["port"], d["tls-port"] = "0", d["port"]
		d["tls-cluster"], d["tls-replication"] = "yes", "yes"
		d["tls-ca-cert-file"], d["tls-cert-file"], d["tls-key-file"] = quote(t.CAFile), quote(t.CertFile), quote(t.KeyFile)
	}
	if o.Password != "" {
		d["masterauth"] = quote(o.Password)
		if o.Username == "" {
			d["requirepass"] = quote(o.Password)
		} else {
			d["masteruser"] = o.Username
			d["user "+o.Username] = "on " + quote(">"+o.Password) + " ~* &* +@all"
			d["user default"] = "off"
		}
	}
	maps.Copy(d, o.Config)
	return d
}

// writeConfig writes the configuration file; it may hold a password, which a command line would show to everybody.
func (o *Options) writeConfig(path, dir string, ports [2]int) error {
	d := o.directives(dir, ports)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(d)) {
		fmt.Fprintf(&b, "%s %s\n", name, d[name])
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

// quote writes an argument as redis.conf wants it: any byte, in double quotes.
func quote(argument string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(argument) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\x%02x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
