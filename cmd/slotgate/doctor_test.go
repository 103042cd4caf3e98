package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/cmd/slotgate/doctor"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

func TestDoctor(t *testing.T) {
	vars := append(clusterVars(t), "SLOTGATE_CONTROL_PASSWORD_DIR="+t.TempDir())
	start := time.Now()
	found := decode[[]doctor.Finding](t, mustRun(t, vars, "doctor", "-o", "json").stdout)
	t.Logf("%d findings in %v (bound 5 s)", len(found), time.Since(start))
	counts := map[string]int{}
	for _, f := range found {
		counts[f.Check]++
		if f.Status == doctor.Fail || f.Detail == "" || (f.Status == doctor.OK) != (f.Do == "") {
			t.Errorf("%+v", f)
		}
	}
	for check, want := range map[string]int{
		"slots": 1, "versions": 1, "apps and keys": 1, "round trip": 6, "clock": 6, "cluster_state": 6, "version": 6, "commands": 6, "memory": 6,
		"persistence": 6, "rights": 6, "descriptors": 1, "listen": 1, "admin_listen": 1,
	} {
		if counts[check] != want {
			t.Errorf("%d findings about %s, want %d", counts[check], check, want)
		}
	}
	contains(t, "cluster check", mustRun(t, vars, "cluster", "check", "default").stdout, "STATUS", "all are covered, 3 primaries and 3 replicas")

	t.Run("a user without rights", func(t *testing.T) {
		for _, node := range clustertest.Shared(t).Nodes() {
			err := node.Client().Do(t.Context(), "acl", "setuser", "weak", "reset", "on", ">pw", "~*", "+@all", "-eval", "-unlink").Err()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = node.Client().Do(context.Background(), "acl", "deluser", "weak").Err() })
		}
		weak := append([]string{"SLOTGATE_CLUSTERS_DEFAULT_USERNAME=weak", "SLOTGATE_CLUSTERS_DEFAULT_PASSWORD=pw"}, vars...)
		got := slotgate(t, weak, "cluster", "check", "default")
		if got.code != exitCheck {
			t.Errorf("code %d", got.code)
		}
		contains(t, "stdout", got.stdout, "user weak may not: unlink, eval", "→ ACL SETUSER weak")
		wrong := append([]string{"SLOTGATE_CLUSTERS_DEFAULT_USERNAME=weak", "SLOTGATE_CLUSTERS_DEFAULT_PASSWORD=other"}, vars...)
		if got = slotgate(t, wrong, "cluster", "check", "default"); got.code != exitCheck {
			t.Errorf("a wrong password: code %d", got.code)
		}
		contains(t, "stdout", got.stdout, "look at username and password_file")
	})
	t.Run("a control store that evicts", func(t *testing.T) {
		policy := func(p string) {
			for _, node := range clustertest.Shared(t).Nodes() {
				if err := node.Client().ConfigSet(context.Background(), "maxmemory-policy", p).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		policy("allkeys-lru")
		got := slotgate(t, vars, "doctor")
		policy("noeviction")
		if got.code != exitCheck {
			t.Errorf("code %d", got.code)
		}
		contains(t, "stdout", got.stdout, "allkeys-lru evicts any key, so the apps and keys")
	})
	t.Run("a stored cluster that nobody reaches", func(t *testing.T) {
		mustRun(t, vars, "cluster", "add", "away", "--addr", "127.0.0.1:1")
		got := slotgate(t, vars, "cluster", "check", "away")
		if got.code != exitUnreachable {
			t.Errorf("code %d, %s", got.code, got.stderr)
		}
		if got = slotgate(t, vars, "doctor"); got.code != exitUnreachable {
			t.Errorf("doctor: code %d, %s", got.code, got.stderr)
		}
		contains(t, "stdout", got.stdout, "away ", "look at addrs")
		mustRun(t, vars, "cluster", "remove", "away")
	})
	t.Run("a node that is down", func(t *testing.T) {
		cluster := clustertest.Shared(t)
		primary, err := cluster.PrimaryOfKey(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		replica, err := cluster.ReplicaOf(t.Context(), primary)
		if err != nil {
			t.Fatal(err)
		}
		replica.Kill()
		if got := slotgate(t, vars, "cluster", "check", "default"); got.code == exitOK && !strings.Contains(got.stdout, "2 replicas") {
			t.Errorf("a killed replica is not noticed:\n%s", got.stdout)
		}
	})
	if got := slotgate(t, vars, "cluster", "check", "mars"); got.code != exitUsage {
		t.Errorf("an unknown cluster: %+v", got)
	}
}

func TestDoctorQuick(t *testing.T) {
	vars := clusterVars(t)
	g := startGateway(t, vars)
	port := strings.TrimPrefix(g.admin, "http://")
	mustRun(t, append(vars, "SLOTGATE_ADMIN_LISTEN="+port), "doctor", "--quick")
	got := slotgate(t, append(vars, "SLOTGATE_ADMIN_LISTEN=127.0.0.1:1"), "doctor", "--quick")
	if got.code != exitUnreachable {
		t.Errorf("without a gateway: %+v", got)
	}
}

func TestDoctorOnAFile(t *testing.T) {
	vars := fileVars(t, "apps: []\n")
	got := slotgate(t, vars, "doctor")
	if got.code != exitUnreachable {
		t.Errorf("%+v", got)
	}
	contains(t, "doctor", got.stdout, "control store", "0 apps, 0 keys", "connection refused")
	if err := os.Remove(filepath.Join(filepath.Dir(strings.TrimPrefix(vars[1], "SLOTGATE_CONTROL_FILE=")), "apps.yaml")); err != nil {
		t.Fatal(err)
	}
	if got := slotgate(t, vars, "doctor"); got.code != exitFailure {
		t.Errorf("without the file: %+v", got)
	}
}
