//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
)

// nodeTimeout is long: measuring loads all cores, and a failover in the middle of a round would be no figure of anything.
const nodeTimeout = 15 * time.Second

// startCluster runs the Redis behind the gateways.
func (s *stage) startCluster(ctx context.Context, primaries, replicas int) error {
	c, err := localcluster.Start(ctx, localcluster.Options{Primaries: primaries, Replicas: replicas, NodeTimeout: nodeTimeout})
	if err != nil {
		return err
	}
	s.cluster = c
	s.closers = append(s.closers, func() { _ = c.Close() })
	return nil
}

func (s *stage) clusterPIDs() []int {
	var pids []int
	for _, n := range s.cluster.Nodes() {
		pids = append(pids, n.PID())
	}
	return pids
}

// gateway is one running process of a variant.
type gateway struct {
	*process
	addr, admin string
	tokens      []string // of its apps
}

// startVariant runs the processes of a variant and returns its doors.
func (s *stage) startVariant(ctx context.Context, o options, v variant) ([]*door, error) {
	t, err := s.tenancyOf(ctx, v.Apps)
	if err != nil {
		return nil, err
	}
	var all []*gateway
	for i := range v.Gateways {
		name := v.Name
		if v.Gateways > 1 {
			name += "-" + strconv.Itoa(i+1)
		}
		g, err := s.startGateway(ctx, o, v, name, t)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	doors := gatewayDoors(v, all, fmt.Sprintf("cluster of %d apps", v.Apps), o.H2C)
	for _, d := range doors {
		d.backend = s.clusterPIDs
	}
	return doors, nil
}

// startGateway runs a build with its defaults: authentication, permissions, a limit (too high to refuse), metrics and the log are on, as
// in production.
func (s *stage) startGateway(ctx context.Context, o options, v variant, name string, t *tenancy) (*gateway, error) {
	return s.startGatewayOn(ctx, o, v, name, t, s.cluster.Addrs())
}

// startGatewayOn is startGateway with other addresses of the cluster, such as those of proxies.
func (s *stage) startGatewayOn(ctx context.Context, o options, v variant, name string, t *tenancy, addrs []string) (*gateway, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	config, err := s.writeConfig(o, name, ports[0], ports[1], t, addrs)
	if err != nil {
		return nil, err
	}
	args := []string{"serve", "--config", config}
	for _, set := range v.Set {
		args = append(args, "--set", set)
	}
	p, err := s.launch(ctx, loopback(ports[0]), name, v.Env, v.Binary, args...)
	if err != nil {
		return nil, err
	}
	g := &gateway{process: p, addr: loopback(ports[0]), admin: "http://" + loopback(ports[1]), tokens: t.tokens}
	return g, g.waitReady(ctx)
}

func (s *stage) writeConfig(o options, name string, port, admin int, t *tenancy, addrs []string) (string, error) {
	secret := filepath.Join(s.dir, "secret")
	if err := os.WriteFile(secret, []byte(benchSecret), 0o600); err != nil {
		return "", err
	}
	settings := map[string]any{
		"listen": loopback(port), "admin_listen": loopback(admin), "secret_file": secret, "pprof": o.Profile != "",
		"clusters": map[string]any{
			"default": map[string]any{"addrs": addrs},
			"control": map[string]any{"addrs": t.addrs},
		},
		"control": map[string]any{"cluster": "control"},
		"http":    map[string]any{"drain_delay_ms": 0, "h2c": o.H2C},
	}
	// JSON is YAML too, and cannot be quoted wrongly.
	text, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.dir, name+".yaml")
	return path, os.WriteFile(path, text, 0o600)
}

func (g *gateway) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		resp, err := get(ctx, g.admin+"/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", g.name, err, g.lastWords())
		case <-g.done:
			return fmt.Errorf("%s ended:\n%s", g.name, g.lastWords())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}
