package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// onEveryNode sends a command to each node of the shared cluster.
func onEveryNode(t *testing.T, args ...any) {
	t.Helper()
	err := redisClient(t).ForEachShard(t.Context(), func(ctx context.Context, node *redis.Client) error {
		return node.Do(ctx, args...).Err()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// clientsOf counts the connections of a Redis user on the shared cluster.
func clientsOf(t *testing.T, username string) (n int) {
	t.Helper()
	for _, node := range clustertest.Shared(t).Nodes() {
		list, err := node.Client().Do(t.Context(), "client", "list").Text()
		if err != nil {
			t.Fatal(err)
		}
		n += strings.Count(list, " user="+username+" ")
	}
	return n
}

func TestStoredClusters(t *testing.T) {
	dir := t.TempDir()
	vars := append(clusterVars(t), "SLOTGATE_CONTROL_PASSWORD_DIR="+dir)
	onEveryNode(t, "acl", "setuser", "gw", "reset", "on", ">hunter2", "~*", "&*", "+@all")
	nodes := clustertest.Shared(t).Nodes()
	t.Cleanup(func() {
		for _, node := range nodes {
			_ = node.Client().Do(context.Background(), "acl", "deluser", "gw").Err()
		}
	})
	addrs := strings.Join(clustertest.Shared(t).Addrs(), ",")
	file := filepath.Join(dir, "eu")
	g, other := startGateway(t, vars), startGateway(t, vars)
	g.waitReady(t)
	other.waitReady(t)

	contains(t, "cluster add", mustRun(t, vars, "cluster", "add", "eu", "--addr", addrs, "--username", "gw", "--password-file", file).stdout,
		"Cluster eu is added; try it with: slotgate cluster check eu")
	contains(t, "cluster list", mustRun(t, vars, "cluster", "list").stdout, "default  config  0", "eu       stored  0     gw    "+file)
	mustRun(t, vars, "app", "create", "shop", "--cluster", "eu", "--permission", "*")
	token := tokenForm.FindString(mustRun(t, vars, "key", "create", "shop").stdout)

	put := func(g *running) int {
		return call(t, "PUT", g.api+"/v1/strings/a", token, `{"value":"x"}`).StatusCode
	}
	eventually(t, func() bool { return put(g) == 503 && put(other) == 503 }) // the app is known, the password is not there yet
	if err := os.WriteFile(file, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return put(g) == 200 && put(other) == 200 })
	if clientsOf(t, "gw") == 0 {
		t.Error("nobody is connected as gw")
	}
	contains(t, "readyz", call(t, "GET", g.admin+"/readyz?verbose", "", "").body, "[+]cluster-default ok", "[+]cluster-eu ok")

	t.Run("what cannot be is refused", func(t *testing.T) {
		for _, c := range []struct {
			args string
			code int
			want string
		}{
			{"cluster add eu --addr a:1", 1, `cluster "eu": acl: already exists`},
			{"cluster add default --addr a:1", 2, `"default" is a cluster of the configuration file; change it there`},
			{"cluster add EU --addr a:1", 2, `"EU" is not a cluster name`},
			{"cluster add us", 2, "addrs: has 0 addresses"},
			{"cluster add us --addr 10.0.0.1", 2, `"10.0.0.1" is not host:port`},
			{"cluster add us --addr a:1 --password-file /etc/passwd", 2, "/etc/passwd is not in control.password_dir"},
			{"cluster add us --addr a:1 --password-file " + dir + "/../x", 2, "is not in control.password_dir"},
			{"cluster add us --addr a:1 --password hunter2", 2, "unknown flag: --password"},
			{"cluster set eu", 2, "nothing to set was given"},
			{"cluster set us --addr a:1", 1, `cluster "us": acl: not found`},
			{"cluster remove eu", 1, `cluster "eu" holds the data of shop: acl: still in use`},
			{"cluster remove default", 2, "is a cluster of the configuration file"},
			{"cluster remove us", 1, "not found"},
			{"app create a1 --cluster mars", 2, `no cluster "mars" is configured or stored; there are [default eu]`},
		} {
			got := slotgate(t, vars, strings.Fields(c.args)...)
			if got.code != c.code || !strings.Contains(got.stderr, c.want) {
				t.Errorf("slotgate %s: code %d, %s", c.args, got.code, got.stderr)
			}
			lacks(t, c.args, got.stderr, "hunter2 ")
		}
	})
	t.Run("a purge finds a stored cluster", func(t *testing.T) {
		contains(t, "purge", mustRun(t, vars, "app", "delete", "shop", "--confirm=shop", "--purge", "--settle=1ms").stdout, "and 1 keys with it")
	})
	t.Run("a removed cluster is closed", func(t *testing.T) {
		mustRun(t, vars, "cluster", "remove", "eu")
		lacks(t, "cluster list", mustRun(t, vars, "cluster", "list").stdout, "eu")
		eventually(t, func() bool { return clientsOf(t, "gw") == 0 })
		lacks(t, "readyz", call(t, "GET", g.admin+"/readyz?verbose", "", "").body, "cluster-eu")
	})
}

func TestStoredClustersOnAFile(t *testing.T) {
	vars := fileVars(t, "clusters:\n- name: eu\n  addrs: ['10.0.0.1:6379']\n- name: default\n  addrs: ['10.0.0.2:6379']\napps:\n- id: shop\n  namespace: shop\n  cluster: eu\n")
	contains(t, "cluster list", mustRun(t, vars, "cluster", "list").stdout, "default  config", "default  stored, not used", "eu       stored            1")
	contains(t, "cluster add", mustRun(t, vars, "cluster", "add", "us", "--addr", "10.0.0.3:6379").stdout, "under clusters", "- name: us")
	contains(t, "cluster set", mustRun(t, vars, "cluster", "set", "eu", "--addr", "10.0.0.4:6379").stdout, "replace the entry eu", "10.0.0.4:6379")
	if got := slotgate(t, vars, "cluster", "remove", "eu"); got.code != exitFailure {
		t.Errorf("%+v", got)
	}
}

// A symbolic link must not lead out of the folder either.
func TestAPasswordFileElsewhereIsNotRead(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(elsewhere, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	cfg := defaultConfig()
	cfg.Control.PasswordDir = dir
	for _, path := range []string{elsewhere, dir, filepath.Join(dir, "link"), filepath.Join(dir, "../secret"), filepath.Join(dir, "none")} {
		if password, err := cfg.storedPassword(path); err == nil {
			t.Errorf("%s was read: %q", path, password)
		}
	}
}
