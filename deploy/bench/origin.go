//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// The origin's own test: what the article that the project goes back to measured.
const (
	originPrimaries = 4
	originKeys      = 100_000
	originValue     = 100
	originConns     = 256

	// originShare of the cores that the gateway may use is to be in use.
	originShare = 0.5
)

// originResult is one measured stretch of the origin's test.
type originResult struct {
	Name        string  `json:"name"`
	CoresMay    int     `json:"cores_may"`  // that the gateway may use
	CoresUsed   float64 `json:"cores_used"` // that it did use
	Rate        float64 `json:"rate"`       // requests per second, as scheduled
	Requests    int64   `json:"requests"`
	Errors      int64   `json:"errors"`
	CPUUS       float64 `json:"cpu_us"`
	RedisCores  float64 `json:"redis_cores_used"`
	LoadCores   float64 `json:"load_cores_used"`
	MeanMS      float64 `json:"mean_ms"`
	P50MS       float64 `json:"p50_ms"`
	P99MS       float64 `json:"p99_ms"`
	P999MS      float64 `json:"p999_ms"`
	LateMeanMS  float64 `json:"late_mean_ms"` // how late the load generator itself was, which is part of the latencies
	LateP99MS   float64 `json:"late_p99_ms"`
	Calibrated  bool    `json:"calibrated"` // the rate was found, and the share was reached
	Explanation string  `json:"explanation,omitempty"`
}

// origin runs the test for the JSON door of each variant.
func (s *stage) origin(ctx context.Context, o options, res *results, stdout, stderr io.Writer) error {
	if len(o.Variants) == 0 {
		return errors.New("the origin's test needs -gateway-bin")
	}
	if err := s.startCluster(ctx, originPrimaries, 1); err != nil {
		return err
	}
	load, err := startLoader(s)
	if err != nil {
		return err
	}
	o.Keys, o.Values, o.Data, o.H2C = max(o.Keys, originKeys), []int{originValue}, []string{dataRandom}, false
	res.Valid = true
	fmt.Fprintf(stdout, "The origin's test: %d primaries with a replica each, %d keys of %d bytes, 9 GET to 1 PUT, %d connections,\n"+
		"open loop, latency from the moment a request was due, at the rate at which the gateway uses half of the cores it may use\n\n",
		originPrimaries, o.Keys, originValue, originConns)
	for _, v := range o.Variants {
		doors, err := s.startVariant(ctx, o, v)
		if err != nil {
			return err
		}
		c := &comparison{options: o, load: load, stderr: stderr, workload: newWorkload(o, originValue, dataRandom)}
		one, err := c.originDoor(ctx, doors[0], v.cores()*v.Gateways)
		if err != nil {
			return err
		}
		res.Origin = append(res.Origin, one)
		res.Valid = res.Valid && one.Errors == 0
		one.print(stdout)
		for _, g := range doors[0].gateways {
			g.stop()
		}
	}
	return nil
}

func (r originResult) print(out io.Writer) {
	fmt.Fprintf(out, "%s: mean %.2f ms, p50 %.2f, p99 %.2f, p99.9 %.2f at %.0f requests/s; %d requests, %d errors\n",
		r.Name, r.MeanMS, r.P50MS, r.P99MS, r.P999MS, r.Rate, r.Requests, r.Errors)
	fmt.Fprintf(out, "  gateway: %.2f of %d cores, %.0f us a request; Redis %.2f cores, load generator %.2f; itself it was late by %.2f ms on average, %.2f at p99, which is in the latencies\n",
		r.CoresUsed, r.CoresMay, r.CPUUS, r.RedisCores, r.LoadCores, r.LateMeanMS, r.LateP99MS)
	if r.Explanation != "" {
		fmt.Fprintln(out, "  "+r.Explanation)
	}
}

func (c *comparison) originDoor(ctx context.Context, d *door, cores int) (originResult, error) {
	s := scenario{Op: opMix, Batch: 1, Conns: originConns, Value: originValue, Data: dataRandom}
	fmt.Fprintf(c.stderr, "%s: writing %d values\n", d.name, c.workload.keys)
	if err := c.workload.seedDoor(ctx, d, []scenario{s}); err != nil {
		return originResult{}, err
	}
	if err := c.open(ctx, s, d); err != nil {
		return originResult{}, err
	}
	rate, note := c.OriginRate, ""
	if rate == 0 {
		var err error
		if rate, note, err = c.calibrate(ctx, d, cores); err != nil {
			return originResult{}, err
		}
	}
	r, err := c.paced(ctx, d, rate, c.OriginTime)
	if err != nil {
		return r, err
	}
	r.CoresMay, r.Explanation = cores, note
	r.Calibrated = c.OriginRate == 0 && note == ""
	return r, c.load.close(ctx, d)
}

// The calibration: steps of so long, until the share is right to a twentieth.
const (
	calibrationStep  = 2 * time.Second
	calibrationSteps = 8
)

// calibrate finds the rate at which the gateway uses its share. It begins low, because the costs of a request fall with the load, and
// stops where requests begin to wait: there the machine has no more to give.
func (c *comparison) calibrate(ctx context.Context, d *door, cores int) (rate float64, note string, err error) {
	target := originShare * float64(cores)
	rate = 2000 * float64(cores)
	var good float64
	for step := range calibrationSteps {
		r, err := c.paced(ctx, d, rate, calibrationStep)
		if err != nil {
			return 0, "", err
		}
		fmt.Fprintf(c.stderr, "calibration %d: %.0f requests/s use %.2f cores (%.2f wanted), mean %.1f ms\n", step+1, rate, r.CoresUsed, target, r.MeanMS)
		if r.Errors > 0 || r.MeanMS > 50 {
			return max(good, rate/2), fmt.Sprintf("the machine's cores are all busy before the gateway uses %.2f of them", target), nil
		}
		if r.MeanMS < 5 {
			good = rate
		}
		if r.CoresUsed > target*0.95 && r.CoresUsed < target*1.05 {
			return rate, "", nil
		}
		rate *= min(target/max(r.CoresUsed, 0.01), 3)
	}
	return rate, "", nil
}

// paced runs one stretch of the open loop.
func (c *comparison) paced(ctx context.Context, d *door, rate float64, length time.Duration) (originResult, error) {
	before, err := c.usage(d)
	if err != nil {
		return originResult{}, err
	}
	r, err := c.load.do(ctx, order{Do: "pace", Row: d.name, Rate: rate, Duration: length})
	if err != nil {
		return originResult{}, err
	}
	after, err := c.usage(d)
	if err != nil {
		return originResult{}, err
	}
	cores := func(group int) float64 { return (after[group] - before[group]).Seconds() / r.Elapsed.Seconds() }
	one := originResult{
		Name: d.build, Rate: rate, Requests: r.Requests, Errors: r.Errors,
		CoresUsed: cores(0), RedisCores: cores(1), LoadCores: cores(2),
		P50MS: millis(r.Latency.quantile(0.5)), P99MS: millis(r.Latency.quantile(0.99)), P999MS: millis(r.Latency.quantile(0.999)),
		LateP99MS: millis(r.Late.quantile(0.99)),
	}
	if r.Requests > 0 {
		one.CPUUS = cores(0) * r.Elapsed.Seconds() * 1e6 / float64(r.Requests)
		one.LateMeanMS = float64(r.LateTotal.Microseconds()) / 1e3 / float64(r.Requests)
		one.MeanMS = float64(r.Total.Microseconds()) / 1e3 / float64(r.Requests)
	}
	if r.FirstError != "" {
		one.Explanation = r.FirstError
	}
	return one, nil
}
