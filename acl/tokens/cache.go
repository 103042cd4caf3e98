package tokens

import (
	"hash/maphash"
	"sync"
)

const (
	cacheShards = 16
	// cacheRoom is how many verified tokens a shard remembers. A token costs 1 KB here, so all of them some 16 MB at most.
	cacheRoom = 1024
	// cacheLooks is how many tokens compete when one must go.
	cacheLooks = 8
	// hashed is how much of a token finds it: its end, the signature, in which no two tokens agree. All of it would take 60 ns more.
	hashed = 64
)

// cache remembers tokens that were verified, because verifying one costs a hundred times what looking up a key does. What a token may
// do is not remembered here: that is asked at every request. Only tokens with a good signature get in, so nobody but holders of
// keys can fill it, and who fills it costs the others a verification each.
type cache struct {
	seed   maphash.Seed
	shards [cacheShards]cacheShard
}

type cacheShard struct {
	mu     sync.RWMutex
	grants map[uint64]*grant
}

func newCache() *cache {
	c := &cache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].grants = map[uint64]*grant{}
	}
	return c
}

// find looks the token up, nil when it was not verified before, or with a key that is withdrawn. The whole token is compared, but not in constant time: to get as far
// as a comparison one must know the end of its signature, or hit a hash under a seed that nobody knows.
func (c *cache) find(token string) *grant {
	if len(token) > MaxBytes {
		return nil
	}
	hash := c.hash(token)
	s := &c.shards[hash%cacheShards]
	s.mu.RLock()
	g := s.grants[hash]
	s.mu.RUnlock()
	if g == nil || g.token != token || g.key.withdrawn.Load() {
		return nil
	}
	return g
}

func (c *cache) hash(token string) uint64 {
	return maphash.String(c.seed, token[max(0, len(token)-hashed):])
}

// put remembers a token. When there is no room, of a few others the one goes that expires first.
func (c *cache) put(g *grant) {
	hash := c.hash(g.token)
	s := &c.shards[hash%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.grants[hash]; !there && len(s.grants) >= cacheRoom {
		s.evict()
	}
	s.grants[hash] = g
}

func (s *cacheShard) evict() {
	var first uint64
	var least *grant
	looks := 0
	for hash, g := range s.grants { // a map's order is random enough
		if least == nil || g.until.Before(least.until) {
			first, least = hash, g
		}
		if looks++; looks == cacheLooks {
			break
		}
	}
	delete(s.grants, first)
}
