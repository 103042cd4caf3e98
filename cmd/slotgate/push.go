package main

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotgate/slotgate/cmd/slotgate/falcon"
)

// newPusher makes what pushes the registry's figures to an agent. Without push.url its counters are all there is of it.
func newPusher(cfg Push, registry *prometheus.Registry, log *slog.Logger) (*falcon.Pusher, error) {
	endpoint := cfg.Endpoint
	if endpoint == "" && cfg.URL != "" {
		var err error
		if endpoint, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("the host has no name, write push.endpoint: %w", err)
		}
	}
	return falcon.New(falcon.Config{
		URL: cfg.URL, Step: time.Duration(cfg.StepS) * time.Second, Endpoint: endpoint, Chunk: cfg.Chunk,
	}, registry, registry, log), nil
}
