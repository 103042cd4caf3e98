//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
)

// startCluster runs the three primaries behind the gateways. The timeout of a node is long: measuring loads both cores, and a failover
// in the middle of a round would be no figure of anything.
func (s *stage) startCluster(ctx context.Context) error {
	c, err := localcluster.Start(ctx, localcluster.Options{Primaries: 3, NodeTimeout: 15 * time.Second})
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

// gateway is one running build.
type gateway struct {
	*process
	addr, token string
}

// startGateway runs a build with its defaults: authentication, permissions, a limit (too high to refuse), metrics and the log are on, as
// in production. All builds serve the same app on the same cluster.
func (s *stage) startGateway(ctx context.Context, name, binary string) (*gateway, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	config, err := s.writeConfig(name, ports[0], ports[1])
	if err != nil {
		return nil, err
	}
	token, err := s.token(ctx, binary, config)
	if err != nil {
		return nil, err
	}
	p, err := s.launch(ctx, loopback(ports[0]), name, nil, binary, "serve", "--config", config)
	if err != nil {
		return nil, err
	}
	g := &gateway{process: p, addr: loopback(ports[0]), token: token}
	return g, g.waitReady(ctx, "http://"+loopback(ports[1])+"/readyz")
}

func (s *stage) writeConfig(name string, port, admin int) (string, error) {
	secret := filepath.Join(s.dir, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("bench-secret-", 4)), 0o600); err != nil {
		return "", err
	}
	// JSON is YAML too, and cannot be quoted wrongly.
	text, err := json.MarshalIndent(map[string]any{
		"listen": loopback(port), "admin_listen": loopback(admin), "secret_file": secret,
		"clusters": map[string]any{"default": map[string]any{"addrs": s.cluster.Addrs()}},
		"http":     map[string]any{"drain_delay_ms": 0},
	}, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.dir, name+".yaml")
	return path, os.WriteFile(path, text, 0o600)
}

// token makes the app, unless an earlier build has, and a key of it.
func (s *stage) token(ctx context.Context, binary, config string) (string, error) {
	if _, err := s.run(ctx, nil, binary, "app", "show", "bench", "--config", config); err != nil {
		_, err := s.run(ctx, nil, binary, "app", "create", "bench", "--config", config,
			"--permission", "*", "--limit", "id=bench,limit=100000000,period_ms=1000,burst=100000000")
		if err != nil {
			return "", err
		}
	}
	out, err := s.run(ctx, nil, binary, "key", "create", "bench", "--config", config, "-o", "json")
	if err != nil {
		return "", err
	}
	var created struct{ Token string }
	if err := json.Unmarshal(out, &created); err != nil || created.Token == "" {
		return "", fmt.Errorf("key create printed no token (%w): %.200s", err, out)
	}
	return created.Token, nil
}

func (g *gateway) waitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		resp, err := get(ctx, url)
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
