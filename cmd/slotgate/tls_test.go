package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/certtest"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

// tlsClient is a client that trusts the authority and, with a pair, shows its certificate.
func tlsClient(t *testing.T, ca *certtest.CA, pair *certtest.Pair, change ...func(*http.Transport)) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}
	if pair != nil {
		own, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		// Not Certificates: those are shown only to a server that names their authority, and this is about servers that do not.
		transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	}
	for _, f := range change {
		f(transport)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(t *testing.T, client *http.Client, url string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, client, req)
}

func TestTLSListeners(t *testing.T) {
	ca, clients := certtest.New(t), certtest.New(t)
	api, admin := ca.Issue(t, certtest.Options{}), ca.Issue(t, certtest.Options{NotAfter: time.Unix(4_000_000_000, 0)})
	g := startGateway(t, fileVars(t, "apps: []\n"), "--set", "tls.cert_file="+api.CertFile, "--set", "tls.key_file="+api.KeyFile,
		"--set", "admin_tls.cert_file="+admin.CertFile, "--set", "admin_tls.key_file="+admin.KeyFile,
		"--set", "admin_tls.client_ca_file="+clients.File, "--set", "admin_tls.min_version=1.3")

	http1 := func(tr *http.Transport) { tr.Protocols = new(http.Protocols); tr.Protocols.SetHTTP1(true) }
	http2 := func(tr *http.Transport) { tr.Protocols = new(http.Protocols); tr.Protocols.SetHTTP2(true) }
	t.Run("both versions of HTTP by ALPN", func(t *testing.T) {
		for major, change := range map[int]func(*http.Transport){1: http1, 2: http2} {
			got := get(t, tlsClient(t, ca, nil, change), g.api+"/v1/whoami")
			if got.ProtoMajor != major || got.TLS == nil {
				t.Errorf("want HTTP/%d over TLS, got %s", major, got.Proto)
			}
			expect(t, got, 401, "unauthenticated")
			if got.Header.Get("X-Request-Id") == "" {
				t.Error("the answer has no request id")
			}
		}
	})
	t.Run("plain HTTP to a TLS port is a clear 400", func(t *testing.T) {
		for _, url := range []string{g.api, g.admin} {
			got := call(t, "GET", strings.Replace(url, "https:", "http:", 1)+"/livez", "", "")
			expect(t, got, 400, "Client sent an HTTP request to an HTTPS server")
		}
	})
	t.Run("old versions are refused", func(t *testing.T) {
		for _, c := range []struct {
			addr    string
			version uint16
			ok      bool
		}{
			{g.api, tls.VersionTLS11, false}, {g.api, tls.VersionTLS12, true}, {g.api, tls.VersionTLS13, true},
			{g.admin, tls.VersionTLS12, false}, {g.admin, tls.VersionTLS13, true},
		} {
			conn, err := tls.Dial("tcp", strings.TrimPrefix(c.addr, "https://"), &tls.Config{RootCAs: ca.Pool(), MinVersion: c.version, MaxVersion: c.version})
			if (err == nil) != c.ok {
				t.Errorf("%s with %s: %v", c.addr, tls.VersionName(c.version), err)
			}
			if err == nil {
				_ = conn.Close()
			}
		}
	})
	t.Run("probes need no client certificate and learn no more than yes or no", func(t *testing.T) {
		client := tlsClient(t, ca, nil)
		expect(t, get(t, client, g.admin+"/livez"), 200, "ok")
		got := get(t, client, g.admin+"/readyz?verbose")
		expect(t, got, 503, "readyz check failed")
		lacks(t, "readyz without a certificate", got.body, "cluster-default", "127.0.0.1")
		for _, path := range []string{"/metrics", "/nothing", "//metrics", "/livez/../metrics"} {
			expect(t, get(t, client, g.admin+path), 403, "a client certificate")
		}
	})
	t.Run("with one all is open", func(t *testing.T) {
		pair := clients.Issue(t, certtest.Options{Name: "prometheus"})
		client := tlsClient(t, ca, &pair)
		expect(t, get(t, client, g.admin+"/readyz?verbose"), 503, "[-]cluster-default failed")
		expect(t, get(t, client, g.admin+"/metrics"), 200, `slotgate_certificate_expiry_timestamp_seconds{listener="admin"} 4e+09`,
			`slotgate_certificate_expiry_timestamp_seconds{listener="api"} `)
	})
	t.Run("one of another authority, or expired, is refused", func(t *testing.T) {
		for name, pair := range map[string]certtest.Pair{
			"of another": ca.Issue(t, certtest.Options{}), "expired": clients.Issue(t, certtest.Options{NotAfter: time.Now().Add(-time.Second)}),
		} {
			resp, err := tlsClient(t, ca, &pair).Get(g.admin + "/metrics")
			if err == nil {
				_ = resp.Body.Close()
				t.Errorf("a certificate %s gets %s", name, resp.Status)
			}
		}
	})
	t.Run("who only connects is noted for those who debug", func(t *testing.T) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.api, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "nonsense nonsense\r\n\r\n")
		_, _ = bufio.NewReader(conn).ReadString(0) // until the gateway hangs up
		_ = conn.Close()
		lacks(t, "the log", g.stderr.String(), "handshake")
	})
}

func TestHTTP2OverTLSCanBeOff(t *testing.T) {
	ca := certtest.New(t)
	pair := ca.Issue(t, certtest.Options{})
	g := startGateway(t, fileVars(t, "apps: []\n"), "--set", "tls.cert_file="+pair.CertFile, "--set", "tls.key_file="+pair.KeyFile, "--set", "http.h2=false")
	got := get(t, tlsClient(t, ca, nil, func(tr *http.Transport) { tr.ForceAttemptHTTP2 = true }), g.api+"/v1/whoami")
	if got.ProtoMajor != 1 {
		t.Errorf("got %s", got.Proto)
	}
	expect(t, call(t, "GET", g.admin+"/livez", "", ""), 200) // the other listener is plain
}

// A client certificate that has opened the admin listener must not do so for as long as its connection lives.
func TestAdmitsLooksAtEachRequest(t *testing.T) {
	ca, clients := certtest.New(t), certtest.New(t)
	server, client := ca.Issue(t, certtest.Options{}), clients.Issue(t, certtest.Options{})
	cfg := defaultConfig()
	cfg.AdminTLS = AdminTLS{CertFile: server.CertFile, KeyFile: server.KeyFile, MinVersion: "1.2", ClientCAFile: clients.File}
	now := time.Now()
	certs, err := newCertificates(cfg, discard(), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	own, err := tls.LoadX509KeyPair(client.CertFile, client.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := parseCertificates(mustRead(t, client.CertFile))
	if err != nil || len(own.Certificate) == 0 {
		t.Fatal(err)
	}
	r := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: shown}}
	if !certs.admits(r) || certs.admits(&http.Request{}) || certs.admits(&http.Request{TLS: &tls.ConnectionState{}}) {
		t.Error("the certificate is what should open")
	}
	now = now.Add(2 * time.Hour)
	if certs.admits(r) {
		t.Error("an expired certificate opens")
	}
	now = now.Add(-2 * time.Hour)
	copyFile(t, certtest.New(t).File, clients.File)
	certs.look(t.Context())
	if certs.admits(r) {
		t.Error("a certificate opens after its authority was removed")
	}
}

func TestTLSToRedis(t *testing.T) {
	ca := certtest.New(t)
	nodes, own := ca.Issue(t, certtest.Options{Hosts: []string{"127.0.0.1", "redis.example"}}), ca.Issue(t, certtest.Options{Name: "gateway"})
	cluster := clustertest.Run(t, localcluster.Options{TLS: &localcluster.TLS{CAFile: ca.File, CertFile: nodes.CertFile, KeyFile: nodes.KeyFile}})
	vars := func(more ...string) []string {
		return append([]string{
			"SLOTGATE_CLUSTERS_DEFAULT_ADDRS=" + strings.Join(cluster.Addrs(), ","),
			"SLOTGATE_CLUSTERS_DEFAULT_TLS_ENABLED=true",
			"SLOTGATE_CLUSTERS_DEFAULT_TLS_CA_FILE=" + ca.File,
			"SLOTGATE_CLUSTERS_DEFAULT_TLS_CERT_FILE=" + own.CertFile,
			"SLOTGATE_CLUSTERS_DEFAULT_TLS_KEY_FILE=" + own.KeyFile,
			"SLOTGATE_SECRET_FILE=testdata/secret", "SLOTGATE_LISTEN=127.0.0.1:0", "SLOTGATE_ADMIN_LISTEN=127.0.0.1:0", "SLOTGATE_HTTP_DRAIN_DELAY_MS=0",
		}, more...)
	}
	token := newToken(t, vars(), "shop") // the command line and the control store
	g := startGateway(t, vars("SLOTGATE_CLUSTERS_DEFAULT_TLS_SERVER_NAME=redis.example"))
	g.waitReady(t)
	for i := range 20 { // keys on all nodes
		url := fmt.Sprint(g.api, "/v1/strings/k", i)
		expect(t, call(t, "PUT", url, token, `{"value":"hello"}`), 200)
		expect(t, call(t, "GET", url, token, ""), 200, "hello")
	}
	expect(t, call(t, "GET", g.api+"/v1/keys?limit=100", token, ""), 200, `"k19"`)
	expect(t, call(t, "GET", g.admin+"/metrics", "", ""), 200, `slotgate_certificate_expiry_timestamp_seconds{listener="cluster-default"} `)
	mustRun(t, vars(), "app", "delete", "shop", "--confirm=shop", "--purge", "--settle=0s")

	for _, c := range []struct{ what, set, want string }{
		{"an authority that has not signed", "clusters.default.tls.ca_file=" + certtest.New(t).File, "certificate signed by unknown authority"},
		{"a name that the nodes do not have", "clusters.default.tls.server_name=other.example", "not other.example"},
		{"no client certificate", "clusters.default.tls.cert_file=", ""}, // Redis hangs up
		{"plain TCP", "clusters.default.tls.enabled=false", ""},
	} {
		args := []string{"app", "list", "--set", c.set, "--set", "redis.dial_timeout_ms=2000"}
		switch {
		case strings.HasSuffix(c.set, "cert_file="):
			args = append(args, "--set", "clusters.default.tls.key_file=")
		case strings.HasSuffix(c.set, "enabled=false"):
			for _, f := range []string{"ca_file", "cert_file", "key_file"} {
				args = append(args, "--set", "clusters.default.tls."+f+"=")
			}
		}
		got := slotgate(t, vars(), args...)
		if got.code == 0 {
			t.Errorf("%s: apps were listed", c.what)
		}
		contains(t, c.what, got.stderr, c.want)
	}
}
