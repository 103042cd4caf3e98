package tokens

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestTheCacheIsBounded(t *testing.T) {
	c, key := newCache(), &verifyKey{}
	start := time.Unix(1_800_000_000, 0)
	lasting := &grant{token: "lasting", key: key, until: start.Add(time.Hour)}
	c.put(lasting)
	for i := range 10 * cacheShards * cacheRoom {
		c.put(&grant{token: fmt.Sprint("t", i), key: key, until: start.Add(time.Duration(i) * time.Millisecond)})
	}
	n := 0
	for i := range c.shards {
		n += len(c.shards[i].grants)
	}
	if n > cacheShards*cacheRoom || n < cacheShards*cacheRoom/2 {
		t.Errorf("%d tokens are remembered", n)
	}
	if c.find("lasting") != lasting {
		t.Error("the token that lives longest was forgotten")
	}
}

func TestTokensWithOneEndAreTwo(t *testing.T) {
	c, key := newCache(), &verifyKey{}
	end := strings.Repeat("s", hashed)
	one, other := &grant{token: "one" + end, key: key}, &grant{token: "other" + end, key: key}
	c.put(one)
	if c.find(other.token) != nil || c.find(end) != nil || c.find(one.token) != one {
		t.Error("a token is taken for another")
	}
	c.put(other)
	if c.find(one.token) != nil || c.find(other.token) != other {
		t.Error("two tokens in one place")
	}
}
