package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/cmd/slotgate/doctor"
	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/certtest"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

func TestStoredClusterOverTLS(t *testing.T) {
	ca := certtest.New(t)
	nodes := ca.Issue(t, certtest.Options{Hosts: []string{"127.0.0.1", "redis.example"}})
	cluster := clustertest.Run(t, localcluster.Options{TLS: &localcluster.TLS{CAFile: ca.File, CertFile: nodes.CertFile, KeyFile: nodes.KeyFile}})
	dir := t.TempDir()
	vars := append(clusterVars(t), "SLOTGATE_CONTROL_PASSWORD_DIR="+dir, "SLOTGATE_METRICS_REDIS_POLL_MS=1000")
	g := startGateway(t, vars)
	g.waitReady(t)

	caFile, own := filepath.Join(dir, "ca.pem"), certtest.Pair{CertFile: filepath.Join(dir, "own.pem"), KeyFile: filepath.Join(dir, "own-key.pem")}
	mustRun(t, vars, "cluster", "add", "safe", "--addr", strings.Join(cluster.Addrs(), ","), "--tls-ca", caFile, "--tls-cert", own.CertFile,
		"--tls-key", own.KeyFile, "--tls-server-name", "redis.example")
	mustRun(t, vars, "app", "create", "shop", "--cluster", "safe", "--permission", "*")
	token := tokenForm.FindString(mustRun(t, vars, "key", "create", "shop").stdout)
	put := func() int { return call(t, "PUT", g.api+"/v1/strings/a", token, `{"value":"x"}`).StatusCode }
	eventually(t, func() bool { return put() == 503 }) // the app is known, the files are not there yet
	contains(t, "the log", g.stderr.String(), "nobody connects to the cluster until they can", "tls.ca_file")
	got := slotgate(t, vars, "cluster", "check", "safe")
	contains(t, "cluster check without the files", got.stderr, "cluster safe: tls.ca_file", "ca.pem")

	copyFile(t, ca.File, caFile)
	ca.Write(t, own, certtest.Options{Name: "gateway", NotAfter: time.Unix(4_000_000_000, 0)})
	eventually(t, func() bool { return put() == 200 })
	expect(t, call(t, "GET", g.api+"/v1/strings/a", token, ""), 200, `"x"`)
	expect(t, call(t, "GET", g.api+"/v1/keys", token, ""), 200, `"a"`)
	contains(t, "readyz", call(t, "GET", g.admin+"/readyz?verbose", "", "").body, "[+]cluster-safe ok")

	t.Run("cluster list, check, export and doctor know of it", func(t *testing.T) {
		contains(t, "cluster list", mustRun(t, vars, "cluster", "list").stdout, "safe     stored  1     -     -              yes")
		contains(t, "cluster list", mustRun(t, vars, "cluster", "list", "-o", "json").stdout, `"server_name": "redis.example"`)
		contains(t, "cluster check", mustRun(t, vars, "cluster", "check", "safe").stdout, "all slots are covered")
		contains(t, "export", mustRun(t, vars, "export").stdout, "    tls:\n      enabled: true\n      ca_file: "+caFile)
		var seen bool
		for _, f := range decode[[]doctor.Finding](t, mustRun(t, vars, "doctor", "-o", "json").stdout) {
			seen = seen || f.Where == "cluster-safe" && f.Check == "certificate" && strings.Contains(f.Detail, "2096-10-02")
		}
		if !seen {
			t.Error("doctor does not look at the certificate")
		}
	})
	t.Run("metrics are polled over TLS and tell of the certificate", func(t *testing.T) {
		eventually(t, func() bool {
			body := call(t, "GET", g.admin+"/metrics", "", "").body
			return strings.Contains(body, `slotgate_certificate_expiry_timestamp_seconds{listener="cluster-safe"} 4e+09`) &&
				strings.Contains(body, `slotgate_cluster_up{cluster="safe"} 1`)
		})
	})
	t.Run("a change holds for the next connections", func(t *testing.T) {
		mustRun(t, vars, "cluster", "set", "safe", "--tls-server-name", "other.example")
		eventually(t, func() bool { return put() == 503 })
		expect(t, call(t, "PUT", g.api+"/v1/strings/a", token, `{"value":"x"}`), 503, "cluster_down", `"outcome":"not_applied"`)
		mustRun(t, vars, "cluster", "set", "safe", "--tls-server-name", "")
		eventually(t, func() bool { return put() == 200 })
	})
	t.Run("without TLS nobody gets in", func(t *testing.T) {
		mustRun(t, vars, "cluster", "set", "safe", "--tls=false")
		lacks(t, "cluster list", mustRun(t, vars, "cluster", "list", "-o", "json").stdout, caFile)
		eventually(t, func() bool { return put() >= 500 })
		mustRun(t, vars, "cluster", "set", "safe", "--tls-ca", caFile, "--tls-cert", own.CertFile, "--tls-key", own.KeyFile)
		eventually(t, func() bool { return put() == 200 })
	})
	t.Run("a purge goes over TLS too", func(t *testing.T) {
		contains(t, "purge", mustRun(t, vars, "app", "delete", "shop", "--confirm=shop", "--purge", "--settle=1ms").stdout, "and 1 keys with it")
	})
}

func TestTLSOfStoredClustersIsChecked(t *testing.T) {
	dir := t.TempDir()
	vars := append(fileVars(t, "apps: []\n"), "SLOTGATE_CONTROL_PASSWORD_DIR="+dir)
	for _, c := range []struct{ args, want string }{
		{"--tls-ca /etc/ssl/ca.pem", "tls.ca_file: /etc/ssl/ca.pem is not in control.password_dir"},
		{"--tls-cert /a.pem --tls-key " + dir + "/b.pem", "tls.cert_file: /a.pem is not in"},
		{"--tls-cert " + dir + "/a.pem --tls-key " + dir + "/../b.pem", "tls.key_file: "},
		{"--tls-cert " + dir + "/a.pem", "tls.key_file: is empty"},
		{"--tls-key " + dir + "/a.pem", "tls.cert_file: is empty"},
		{"--tls=perhaps", "invalid argument"},
	} {
		got := slotgate(t, vars, append([]string{"cluster", "add", "eu", "--addr", "a:1"}, strings.Fields(c.args)...)...)
		if got.code != exitUsage || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%s: code %d, %s", c.args, got.code, got.stderr)
		}
	}
	contains(t, "--tls alone", mustRun(t, vars, "cluster", "add", "eu", "--addr", "a:1", "--tls").stdout, "tls:", "enabled: true")
	lacks(t, "--tls=false", mustRun(t, vars, "cluster", "add", "eu", "--addr", "a:1", "--tls-ca", dir+"/ca", "--tls=false").stdout, "tls:")
}

// What is written into the control store must not make a gateway read elsewhere, whatever the command line refuses.
func TestTLSFilesElsewhereAreNotRead(t *testing.T) {
	dir, ca := t.TempDir(), certtest.New(t)
	pair := ca.Issue(t, certtest.Options{})
	link := filepath.Join(dir, "link.pem")
	if err := os.Symlink(pair.KeyFile, link); err != nil {
		t.Fatal(err)
	}
	copyFile(t, pair.CertFile, filepath.Join(dir, "cert.pem"))
	cfg := defaultConfig()
	cfg.Control.PasswordDir = dir
	for what, c := range map[string]acl.ClusterTLS{
		"an authority":               {Enabled: true, CAFile: ca.File},
		"a certificate":              {Enabled: true, CertFile: pair.CertFile, KeyFile: filepath.Join(dir, "key.pem")},
		"a key":                      {Enabled: true, CertFile: filepath.Join(dir, "cert.pem"), KeyFile: pair.KeyFile},
		"a key behind a link":        {Enabled: true, CertFile: filepath.Join(dir, "cert.pem"), KeyFile: link},
		"an authority that is a dir": {Enabled: true, CAFile: dir},
	} {
		if _, found := readStoredTLS(cfg, "eu", c, time.Now()); len(found) == 0 {
			t.Errorf("%s elsewhere was read", what)
		}
	}
}

func TestStoredTLSOutlivesBadFiles(t *testing.T) {
	dir, ca := t.TempDir(), certtest.New(t)
	cfg := defaultConfig()
	cfg.Control.PasswordDir = dir
	certs, err := newCertificates(cfg, discard(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	pair := certtest.Pair{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	stored := &acl.Cluster{Name: "eu", TLS: acl.ClusterTLS{Enabled: true, CertFile: pair.CertFile, KeyFile: pair.KeyFile}}
	place := certs.storedPlace(cfg, stored)
	certs.keepStored(map[string]*storedPlace{clusterPlace("eu"): place})
	if place.look(t.Context()) == nil || !certs.good() {
		t.Error("files that are not there yet are a fault of the cluster, not of a reload")
	}
	ca.Write(t, pair, certtest.Options{})
	if err := place.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := place.state.Load()
	copyFile(t, ca.Issue(t, certtest.Options{}).CertFile, pair.CertFile) // of another key
	certs.look(t.Context())
	if place.state.Load() != first || certs.good() {
		t.Error("a certificate that does not go with its key was taken, or is called good")
	}
	ca.Write(t, pair, certtest.Options{})
	certs.look(t.Context())
	if place.state.Load() == first || !certs.good() {
		t.Error("a renewed certificate was not taken")
	}
	if certs.storedPlace(cfg, stored) != place {
		t.Error("what is known of a cluster is forgotten when another changes")
	}
}
