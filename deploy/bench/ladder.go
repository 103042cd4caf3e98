//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// The steps of the ladder: how mget and mset over a cluster are written before one measures. The last step is the gateway.
const (
	stepPerKey = "per-key" // a goroutine and a command for each key
	stepMerged = "merged"  // a pipeline for each node, all at once
	stepCapped = "capped"  // the same in chunks, so many at once
)

var ladderSteps = []string{stepPerKey, stepMerged, stepCapped}

// As the gateway's batch.chunk and batch.parallel_per_request.
const (
	ladderChunk    = 100
	ladderParallel = 4
)

// ladder answers the gateway's /v1/mget and /v1/mset straight from go-redis, with nothing else: no authentication, no limits, no
// metrics. It follows no redirections in pipelines: its cluster stands still.
type ladder struct {
	step   string
	client *redis.ClusterClient
}

// serveLadder's arguments are the address, the step and the cluster's addresses.
func serveLadder(ctx context.Context, args []string) error {
	if len(args) < 3 || !slices.Contains(ladderSteps, args[1]) {
		return fmt.Errorf("usage: bench ladder ADDRESS %v CLUSTER-ADDRESS…", ladderSteps)
	}
	l := &ladder{step: args[1], client: redis.NewClusterClient(&redis.ClusterOptions{Addrs: args[2:]})}
	defer l.client.Close()
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.POST("/v1/mget", l.mget)
	engine.POST("/v1/mset", l.mset)
	return serveHTTP(ctx, args[0], engine)
}

func (l *ladder) mget(c *gin.Context) {
	var in struct{ Keys []string }
	if err := json.NewDecoder(c.Request.Body).Decode(&in); err != nil {
		c.String(http.StatusBadRequest, err.Error())
		return
	}
	got := make([]*redis.StringCmd, len(in.Keys))
	ctx := c.Request.Context()
	err := l.each(ctx, in.Keys, func(p redis.Cmdable, i int) error {
		got[i] = p.Get(ctx, in.Keys[i])
		return got[i].Err()
	})
	if err != nil {
		c.String(http.StatusBadGateway, err.Error())
		return
	}
	out := []byte(`{"items":[`)
	for i, key := range in.Keys {
		if i > 0 {
			out = append(out, ',')
		}
		// Keys and values of the benchmark are plain ASCII.
		out = strconv.AppendQuote(append(out, `{"key":`...), key)
		out = append(strconv.AppendQuote(append(out, `,"found":true,"value":`...), got[i].Val()), '}')
	}
	c.Data(http.StatusOK, "application/json", append(out, `],"errors":false}`...))
}

func (l *ladder) mset(c *gin.Context) {
	var in struct{ Items []batchItem }
	if err := json.NewDecoder(c.Request.Body).Decode(&in); err != nil {
		c.String(http.StatusBadRequest, err.Error())
		return
	}
	keys := make([]string, len(in.Items))
	for i := range in.Items {
		keys[i] = in.Items[i].Key
	}
	ctx := c.Request.Context()
	err := l.each(ctx, keys, func(p redis.Cmdable, i int) error { return p.Set(ctx, keys[i], in.Items[i].Value, 0).Err() })
	if err != nil {
		c.String(http.StatusBadGateway, err.Error())
		return
	}
	c.Data(http.StatusOK, "application/json", fmt.Appendf(nil, `{"written":%d}`, len(keys)))
}

// each calls command for every key, as the step says: on the cluster, or on a pipeline, where its error comes later.
func (l *ladder) each(ctx context.Context, keys []string, command func(redis.Cmdable, int) error) error {
	if l.step == stepPerKey {
		errs := make([]error, len(keys))
		var all sync.WaitGroup
		for i := range keys {
			all.Go(func() { errs[i] = command(l.client, i) })
		}
		all.Wait()
		return errors.Join(errs...)
	}
	nodes := map[*redis.Client][]int{}
	for i, key := range keys {
		node, err := l.client.MasterForKey(ctx, key)
		if err != nil {
			return err
		}
		nodes[node] = append(nodes[node], i)
	}
	var g errgroup.Group
	chunk := len(keys)
	if l.step == stepCapped {
		g.SetLimit(ladderParallel)
		chunk = ladderChunk
	}
	for node, indexes := range nodes {
		for part := range slices.Chunk(indexes, chunk) {
			g.Go(func() error {
				_, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
					for _, i := range part {
						_ = command(p, i) // Pipelined returns the first failure
					}
					return nil
				})
				return err
			})
		}
	}
	return g.Wait()
}

func (s *stage) startLadder(ctx context.Context, step string) (*door, error) {
	p, addr, err := s.startSelf(ctx, "ladder-"+step, func(addr string) []string {
		return append([]string{"ladder", addr, step}, s.cluster.Addrs()...)
	})
	if err != nil {
		return nil, err
	}
	d := batchDoor("ladder: "+step, func(int) string { return "" })
	d.addrs, d.data, d.kind = []string{addr}, "cluster", "JSON"
	d.build = d.name
	d.server = p.pids
	return d, nil
}
