package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// adminWriteTimeout lets a CPU profile of a minute pass.
const adminWriteTimeout = 2 * time.Minute

// newAdminServer answers the operators: health, metrics and, when switched on, profiles.
func (g *gateway) newAdminServer(registry *prometheus.Registry) *http.Server {
	s := newServer(g.cfg.HTTP, g.log)
	s.TLSConfig = g.certs.server(placeAdmin)
	s.WriteTimeout = adminWriteTimeout
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", livez)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { g.readiness.serve(w, r, g.certs.admits(r)) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		Registry: registry, ErrorLog: s.ErrorLog, EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError,
	}))
	mux.HandleFunc("GET /replicas", replicaReads(g.store.ReadNodes))
	mux.Handle("POST /reload", g.reload.handler())
	if g.cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	s.Handler = closeAfterDoubtfulFraming(adminGuard(g.certs, mux))
	return s
}

// adminGuard refuses those without the certificate that admin_tls.client_ca_file asks for. Probes have none and learn little: whether
// the process lives and whether it is ready.
func adminGuard(certs *certificates, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/livez" && r.URL.Path != "/readyz" && !certs.admits(r) {
			http.Error(w, "a client certificate of an authority in admin_tls.client_ca_file is needed", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// livez says that the process runs. It asks nobody: a gateway must not be restarted because Redis is down.
func livez(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

// serve answers /readyz: 200 or 503, the checks in detail with ?verbose or when one fails, as Kubernetes' own
// components write them; JSON for those who accept it. Without details it only tells ready or not.
func (r *readiness) serve(w http.ResponseWriter, req *http.Request, details bool) {
	_, verbose := req.URL.Query()["verbose"]
	checks, ready := r.check(req.Context(), verbose && details)
	if !details {
		checks, verbose = []check{}, false
	}
	w.Header().Set("Cache-Control", "no-store")
	status := http.StatusOK
	if !ready {
		status = http.StatusServiceUnavailable
	}
	if strings.Contains(req.Header.Get("Accept"), "application/json") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"ready": ready, "checks": checks})
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	if ready && !verbose {
		fmt.Fprintln(w, "ok")
		return
	}
	for _, c := range checks {
		fmt.Fprintln(w, c)
	}
	outcome := "passed"
	if !ready {
		outcome = "failed"
	}
	fmt.Fprintln(w, "readyz check "+outcome)
}
