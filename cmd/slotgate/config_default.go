package main

import (
	"github.com/slotgate/slotgate/acl/tokens"
	"github.com/slotgate/slotgate/middleware"
	"github.com/slotgate/slotgate/store/limits"
	"github.com/slotgate/slotgate/store/pools"
)

// defaultConfig is the weakest layer. It lacks what has no right default: a cluster's addresses and the secret.
func defaultConfig() Config {
	return Config{
		Listen:           "127.0.0.1:8080",
		AdminListen:      "127.0.0.1:8081",
		CompressMinBytes: 512,
		TLS:              TLS{MinVersion: "1.2"},
		AdminTLS:         AdminTLS{MinVersion: "1.2"},
		Clusters:         map[string]Cluster{defaultCluster: {}},
		Control:          Control{PasswordDir: "/etc/slotgate/passwords"},
		Limits: Limits{
			KeyMaxBytes:            1 << 10,
			ValueMaxBytes:          1 << 20,
			RequestMaxBytes:        8 << 20,
			ResponseMaxBytes:       16 << 20,
			BytesInFlight:          256 << 20,
			DeadlineMS:             1000,
			IdempotencyTTLS:        86_400,
			IdempotencyRecordsPerS: middleware.DefaultRecordsPerSecond,
			Mode:                   limitsShared,
		},
		Redis: Redis{
			PoolSize:         32,
			PipelinePoolSize: 8,
			DialTimeoutMS:    300,
			ReadTimeoutMS:    1000,
			WriteTimeoutMS:   1000,
			PoolTimeoutMS:    50,
			TopologyReloadMS: 5000,
			CircuitOpenMS:    500,
			CircuitProbeMS:   400,
			MaxDials:         10,
		},
		Coalesce:   Coalesce{MaxBatch: 256, MaxQueued: 4096},
		Batch:      Batch{Chunk: 100, ParallelPerRequest: 4, ParallelPerNode: 8, MaxKeys: 5000},
		Durability: Durability{ReplicaWaitMS: 200, FsyncWaitMS: 1500},
		Replicas:   ReplicaReads{Enabled: true, MaxStalenessMS: 5000},
		RateLimits: RateLimits{TimeoutMS: int(limits.DefaultTimeout.Milliseconds()), BlockedMS: int(limits.DefaultBlocked.Milliseconds())},
		Pools:      Pools{TimeoutMS: int(pools.DefaultTimeout.Milliseconds()), MemberSeries: 256},
		Retries:    Retries{Read: 3, Write: 3, BudgetPercent: 10},
		Overload:   Overload{Enabled: true, ShardInitial: 1024, ShardMin: 8, ShardMax: 4096, GatewayInitial: 1024, GatewayMin: 64, GatewayMax: 16_384},
		Auth:       Auth{FailuresPerMinute: 60, Burst: 20},
		JWT:        JWT{Issuer: "slotgate", Audience: "slotgate", Algorithm: tokens.EdDSA},
		Log:        Log{Level: "info", Sample: 100, SlowMS: 100, FailuresPerS: 10},
		HTTP: HTTP{
			H2:                   true,
			MaxConcurrentStreams: 100,
			ReadHeaderTimeoutMS:  5000,
			ReadTimeoutMS:        30_000,
			BodyTimeoutMS:        10_000,
			BodyMinBytesPerS:     64 << 10,
			WriteTimeoutMS:       30_000,
			SendBufferBytes:      128 << 10,
			IdleTimeoutMS:        60_000,
			MaxHeaderBytes:       16 << 10,
			DrainDelayMS:         5000,
			ShutdownTimeoutMS:    25_000,
		},
		Metrics: Metrics{RedisPollMS: 60_000},
		Push:    Push{StepS: 60, Chunk: 500},
		Runtime: Runtime{GCPercent: 400},
		Alerts: Alerts{
			ErrorRatio:               0.01,
			AppErrorRatio:            0.05,
			AppLatencySeconds:        0.1,
			RouteLatencySeconds:      0.1,
			QuotaRejectionRatio:      0.2,
			AuthFailuresPerSecond:    5,
			KeyExpirySeconds:         7 * 86_400,
			CertificateExpirySeconds: 14 * 86_400,
			PoolSaturationRatio:      0.001,
			BytesInFlightRatio:       0.9,
			DescriptorRatio:          0.8,
			NodeMemoryRatio:          0.9,
			EvictionsPerSecond:       0,
			ReplicaLagBytes:          10 << 20,
			Overrides:                []string{},
		},
	}
}

// controlCluster is the name of the cluster that keeps apps and keys, "" when a file does.
func (c Config) controlCluster() string {
	switch {
	case c.Control.File != "":
		return ""
	case c.Control.Cluster == "":
		return defaultCluster
	}
	return c.Control.Cluster
}

// secret is text that is never shown: not by fmt, not by slog, not by an encoder.
type secret string

const redacted = "[redacted]"

func (s secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

func (s secret) GoString() string             { return s.String() }
func (s secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
