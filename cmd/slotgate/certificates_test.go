package main

import (
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crypto/tls"

	"github.com/slotgate/slotgate/store/localcluster/certtest"
)

// tlsConfig is a configuration with a certificate for the API listener.
func tlsConfig(p certtest.Pair) Config {
	cfg := defaultConfig()
	cfg.TLS.CertFile, cfg.TLS.KeyFile = p.CertFile, p.KeyFile
	return cfg
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestBadCertificateFiles(t *testing.T) {
	ca := certtest.New(t)
	good, other := ca.Issue(t, certtest.Options{}), ca.Issue(t, certtest.Options{})
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "x.pem")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	read := func(file string) string {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, c := range []struct{ what, cert, key, want string }{
		{"a key of another certificate", good.CertFile, other.KeyFile, "tls.key_file: " + other.KeyFile + " is not the key of " + good.CertFile},
		{"a certificate in the key's place", good.CertFile, other.CertFile, "tls.key_file: "},
		{"a key in the certificate's place", good.KeyFile, good.KeyFile, "tls.cert_file: " + good.KeyFile + ": it holds no certificate"},
		{"an expired one", ca.Issue(t, certtest.Options{NotAfter: time.Now().Add(-time.Minute)}).CertFile, good.KeyFile, "tls.key_file"},
		{"one that is missing", "/nowhere/cert.pem", good.KeyFile, "tls.cert_file: stat /nowhere/cert.pem: no such file"},
		{"a missing key", good.CertFile, "/nowhere/key.pem", "tls.key_file: stat /nowhere/key.pem"},
		{"an empty file", write(""), good.KeyFile, "it holds no certificate in PEM form"},
		{"half a file", write(read(good.CertFile)[:200]), good.KeyFile, "it holds no certificate in PEM form"},
		{"PEM around nonsense", write("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), good.KeyFile, "tls.cert_file: "},
		{"a folder", t.TempDir(), good.KeyFile, "is not a file"},
		{"a device that never ends", "/dev/zero", good.KeyFile, "tls.cert_file: /dev/zero is not a file"},
		{"a huge file", write(strings.Repeat("x", maxTLSFile+1)), good.KeyFile, "has more than 1048576 bytes"},
	} {
		cfg := tlsConfig(certtest.Pair{CertFile: c.cert, KeyFile: c.key})
		_, err := newCertificates(cfg, discard(), time.Now)
		if err == nil {
			t.Errorf("%s is taken", c.what)
			continue
		}
		contains(t, c.what, err.Error(), c.want)
		lacks(t, c.what, err.Error(), "PRIVATE KEY-----")
	}
	for _, c := range []struct {
		what, want string
		o          certtest.Options
	}{
		{"an expired pair", "the certificate expired at ", certtest.Options{NotAfter: time.Now().Add(-time.Minute)}},
		{"a pair of tomorrow", "the certificate is not valid before ", certtest.Options{NotBefore: time.Now().Add(time.Minute)}},
	} {
		_, err := newCertificates(tlsConfig(ca.Issue(t, c.o)), discard(), time.Now)
		if err == nil || !strings.Contains(err.Error(), "tls.cert_file: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	t.Run("config check and serve name the setting", func(t *testing.T) {
		set := []string{"--set", "tls.cert_file=" + good.CertFile, "--set", "tls.key_file=" + other.KeyFile}
		vars := fileVars(t, "apps: []\n")
		for command, code := range map[string]int{"config check": exitCheck, "serve": exitFailure} {
			got := slotgate(t, vars, append(strings.Fields(command), set...)...)
			if got.code != code {
				t.Errorf("%s: code %d", command, got.code)
			}
			contains(t, command, got.stderr, "tls.key_file: ", "(flag --set)")
		}
	})
}

// tlsServer serves with certs on a port of its own; greet dials it anew and says whose certificate it shows.
func tlsServer(t *testing.T, ca *certtest.CA, certs *certificates) (addr string, greet func() string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(defaultConfig().HTTP, discard())
	s.TLSConfig = certs.server(placeAPI)
	s.Handler = http.HandlerFunc(livez)
	ended := make(chan error, 1)
	go func() { ended <- serveUntilShutdown(s, l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), func() string {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: ca.Pool()})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
}

func TestCertificatesAreReplaced(t *testing.T) {
	ca := certtest.New(t)
	pair := ca.Issue(t, certtest.Options{Name: "first"})
	var log lockedBuffer
	certs, err := newCertificates(tlsConfig(pair), newLogger(Log{Level: "info"}, &log), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	addr, greet := tlsServer(t, ca, certs)
	open, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool()})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()

	ca.Write(t, pair, certtest.Options{Name: "second"})
	if got := greet(); got != "first" {
		t.Errorf("before the files were read again a connection got %q", got)
	}
	certs.look(t.Context())
	if got := greet(); got != "second" {
		t.Errorf("afterwards it got %q", got)
	}

	good := ca.Issue(t, certtest.Options{})
	key, err := os.ReadFile(good.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pair.KeyFile, key, 0o600); err != nil { // half of a renewal
		t.Fatal(err)
	}
	for range 3 {
		certs.look(t.Context())
	}
	if got := greet(); got != "second" || certs.good() {
		t.Errorf("with a bad pair connections get %q, good is %v", got, certs.good())
	}
	if n := strings.Count(log.String(), "the old ones stay in use"); n != 1 {
		t.Errorf("the fault was logged %d times:\n%s", n, log.String())
	}
	ca.Write(t, pair, certtest.Options{Name: "third"})
	certs.look(t.Context())
	if got := greet(); got != "third" || !certs.good() {
		t.Errorf("after the repair connections get %q, good is %v", got, certs.good())
	}
	contains(t, "the log", log.String(), "certificates can be read again", "certificates were replaced")

	if _, err := open.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 12)
	if _, err := open.Read(answer); err != nil || string(answer) != "HTTP/1.1 200" {
		t.Errorf("a connection from before got %q, %v", answer, err)
	}
}

func TestCertificatesAreWatched(t *testing.T) {
	ca := certtest.New(t)
	pair := ca.Issue(t, certtest.Options{Name: "first"})
	certs, err := newCertificates(tlsConfig(pair), discard(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = certs.watch(t.Context(), time.Millisecond) }()
	_, greet := tlsServer(t, ca, certs)
	ca.Write(t, pair, certtest.Options{Name: "second"})
	eventually(t, func() bool { return greet() == "second" })
}

func TestVariablesOfClusterTLS(t *testing.T) {
	l := load(sources{Environ: []string{
		"SLOTGATE_CLUSTERS_NEW_ADDRS=10.0.0.1:6379", "SLOTGATE_CLUSTERS_NEW_TLS_ENABLED=true",
		"SLOTGATE_CLUSTERS_NEW_TLS_CA_FILE=ca.pem", "SLOTGATE_CLUSTERS_NEW_TLS_SERVER_NAME=redis.example",
	}})
	want := Cluster{Addrs: []string{"10.0.0.1:6379"}, TLS: ClusterTLS{Enabled: true, CAFile: "ca.pem", ServerName: "redis.example"}}
	if got := l.Config.Clusters["new"]; len(l.Faults) > 0 || len(l.Strangers) > 0 || got.TLS != want.TLS || len(got.Addrs) != 1 {
		t.Errorf("got %+v, faults %v %v", got, l.Faults, l.Strangers)
	}
}
