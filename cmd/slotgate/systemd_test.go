package main

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// managerSocket is what systemd listens on.
func managerSocket(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func hears(t *testing.T, conn *net.UnixConn, want string) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	n, err := conn.Read(b)
	if err != nil || string(b[:n]) != want {
		t.Errorf("systemd hears %q (%v), want %q", b[:n], err, want)
	}
}

func TestServeTellsSystemdOfItsLife(t *testing.T) {
	for name, socket := range map[string]string{
		"a socket in a folder":    filepath.Join(t.TempDir(), "notify"),
		"a socket without a file": "@slotgate-test-" + filepath.Base(t.TempDir()) + t.Name(),
	} {
		t.Run(name, func(t *testing.T) {
			manager := managerSocket(t, socket)
			// Its cluster is away: it is started all the same.
			g := startGateway(t, append(fileVars(t, "apps: []\n"), "NOTIFY_SOCKET="+socket))
			hears(t, manager, "READY=1")
			g.stop()
			hears(t, manager, "STOPPING=1")
		})
	}
}

func TestServeGoesOnWhenSystemdIsDeaf(t *testing.T) {
	g := startGateway(t, append(fileVars(t, "apps: []\n"), "NOTIFY_SOCKET="+filepath.Join(t.TempDir(), "nobody")))
	eventually(t, func() bool { return g.logLine("systemd was not told") != nil })
	if got := call(t, "GET", g.admin+"/livez", "", ""); got.StatusCode != 200 {
		t.Errorf("livez: %d", got.StatusCode)
	}
}
