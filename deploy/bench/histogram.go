//go:build linux

package main

import (
	"math/bits"
	"slices"
	"time"
)

// histogram counts durations in log-linear buckets, 32 to each power of two, so that a percentile is right to 3 %. It is plain counts: the
// load generator sends it as JSON and rounds are added up.
type histogram []uint32

const histogramSize = 40 * 32 // up to 2^40 ns, 18 minutes

func newHistogram() histogram { return make(histogram, histogramSize) }

func (h histogram) record(d time.Duration) { h[bucketOf(d)]++ }

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < 32 {
		return int(v)
	}
	shift := bits.Len64(v) - 6
	return min((shift+1)*32+int(v>>shift)-32, histogramSize-1)
}

// lowerBound is the smallest duration of a bucket.
func lowerBound(bucket int) time.Duration {
	if bucket < 32 {
		return time.Duration(bucket)
	}
	return time.Duration(uint64(bucket%32+32) << (bucket/32 - 1))
}

func (h *histogram) add(other histogram) {
	if len(*h) < len(other) {
		*h = append(*h, make(histogram, len(other)-len(*h))...)
	}
	for i, n := range other {
		(*h)[i] += n
	}
}

// quantile returns the duration that the share q of all recorded ones do not exceed (by more than a bucket); 0 when nothing was recorded.
func (h histogram) quantile(q float64) time.Duration {
	total := uint64(0)
	for _, n := range h {
		total += uint64(n)
	}
	if total == 0 {
		return 0
	}
	rank, seen := uint64(q*float64(total-1)), uint64(0)
	for i, n := range h {
		if seen += uint64(n); seen > rank {
			return lowerBound(i)
		}
	}
	return lowerBound(len(h) - 1)
}

// spread is the middle, the least and the greatest of some figures.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf returns the zero spread for no figures.
func spreadOf(figures []float64) spread {
	if len(figures) == 0 {
		return spread{}
	}
	f := slices.Sorted(slices.Values(figures))
	middle := f[len(f)/2]
	if len(f)%2 == 0 {
		middle = (f[len(f)/2-1] + middle) / 2
	}
	return spread{Median: middle, Min: f[0], Max: f[len(f)-1]}
}
