package store

import "testing"

func TestNodesThatAClusterLists(t *testing.T) {
	const list = "07c37df 127.0.0.1:30004@31004,host-4 slave e7d1eec 0 1426238317239 4 connected\n" +
		"67ed2db 127.0.0.1:30002@31002 master,fail - 0 1426238316232 2 disconnected 5461-10922\n" +
		"cut\n6ec2392 ::1:30003@31003,,tls-port=1 master - 0 1426238318243 3 connected 10923-16383\n"
	for addr, want := range map[string]bool{
		"127.0.0.1:30004": true, "host-4:30004": true, "127.0.0.1:30002": true, "host-4:30002": false,
		"127.0.0.1:3000": false, "127.0.0.1:31004": false, "[::1]:30003": true, "no port": false, "": false,
	} {
		if got := listed(list, addr); got != want {
			t.Errorf("%q is listed: %v, want %v", addr, got, want)
		}
	}
}
