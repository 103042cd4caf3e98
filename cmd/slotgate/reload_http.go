package main

import (
	"net"
	"net/http"
	"net/netip"
)

// handler answers POST /reload. What it can do to the gateway is bounded by the files that it reads, but whoever calls it makes work, and
// learns what is wrong with them: so it is for this machine, or for those who show a certificate where one is asked for.
func (r *reloader) handler() http.Handler {
	serve := func(w http.ResponseWriter, req *http.Request) {
		// Not what the guard before has found: since then a certificate may be asked for, or no more.
		if asked, shown := r.gateway.certs.client(req); asked && !shown || !asked && !fromThisMachine(req) {
			http.Error(w, "reload is for clients on the gateway's own machine, by a loopback address and not through a proxy; from elsewhere it needs admin_tls.client_ca_file and a client certificate",
				http.StatusForbidden)
			return
		}
		result := r.reload(req.Context())
		status := http.StatusOK
		switch {
		case result.OK:
		case r.gateway.drain.Draining():
			status = http.StatusConflict
		default:
			status = http.StatusUnprocessableEntity
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = writeJSON(w, result)
	}
	// A page in a browser on this machine could send the request, too; it cannot without a sign of where it comes from.
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(serve))
}

// fromThisMachine says whether a request comes by loopback from whoever made it: not through a proxy on this machine, and not from a
// page whose name was made to point here.
func fromThisMachine(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return false
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header[name] != nil {
			return false
		}
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
