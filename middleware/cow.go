package middleware

import (
	"maps"
	"sync"
	"sync/atomic"
)

// cowMap is a map that is read on every request and hardly ever grows: readers take no lock and allocate nothing, an insert copies it.
// Whoever uses it bounds its size. A sync.Map would box the key of every look-up.
type cowMap[K comparable, V any] struct {
	mu sync.Mutex
	m  atomic.Pointer[map[K]V]
}

func (c *cowMap[K, V]) get(k K) (v V, ok bool) {
	if m := c.m.Load(); m != nil {
		v, ok = (*m)[k]
	}
	return v, ok
}

// getOrMake calls make at most once for each key.
func (c *cowMap[K, V]) getOrMake(k K, make func() V) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.m.Load()
	if old == nil {
		old = &map[K]V{}
	}
	if v, ok := (*old)[k]; ok {
		return v
	}
	grown := maps.Clone(*old)
	grown[k] = make()
	c.m.Store(&grown)
	return grown[k]
}

func (c *cowMap[K, V]) len() int {
	if m := c.m.Load(); m != nil {
		return len(*m)
	}
	return 0
}
