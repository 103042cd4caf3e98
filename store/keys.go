package store

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/balance"
	"github.com/slotgate/slotgate/store/slot"
)

// KeyInfo describes a key of any type.
type KeyInfo struct {
	Type        string // Redis' name: string, hash, list, set, zset, stream
	Encoding    string // how Redis holds it, "" if it would not say
	TTLMS       int64  // -1 = does not expire
	Slot        int
	HashTag     string // the caller's own tag, "" = none
	MemoryBytes int64  // with memory asked for; 0 = not known
}

// KeyInfo looks at a key. Memory costs Redis more, so it is asked for. Errors: key_not_found.
func (s *Store) KeyInfo(ctx context.Context, id *acl.Identity, key string, memory bool, rd Reading) (KeyInfo, error) {
	if memory {
		if err := rowMemory.allow(id); err != nil {
			return KeyInfo{}, err
		}
	}
	if err := rowType.allow(id); err != nil {
		return KeyInfo{}, err
	}
	stored, err := storedKey(id, key)
	if err != nil {
		return KeyInfo{}, err
	}
	c, err := s.clusters.get(id.App.Cluster)
	if err != nil {
		return KeyInfo{}, err
	}
	info := KeyInfo{Slot: slot.Of(stored), HashTag: ownTag(key)}
	if !rd.Replicas || !s.keyInfoFrom(ctx, id, c, rd, stored, memory, &info) {
		fail := c.try(ctx, rowType, s.retries(id, false), func() (*way, error) {
			w, err := c.wayTo(ctx, info.Slot)
			if err != nil {
				return nil, err
			}
			return w, info.read(ctx, id, w, c.client.Pipeline(), stored, memory)
		})
		if servedBy(rd, fail); fail != nil {
			return KeyInfo{}, fail
		}
	}
	if info.absent() {
		return KeyInfo{}, errKeyNotFound
	}
	return info, nil
}

// keyInfoFrom lets somebody else than the primary tell. It is false if the primary must be asked.
func (s *Store) keyInfoFrom(ctx context.Context, id *acl.Identity, c *cluster, rd Reading, stored string, memory bool, info *KeyInfo) bool {
	start := time.Now()
	var at *way
	done := s.askSomebody(ctx, rd, c, info.Slot, balance.Range, func(ctx context.Context, w *way) asked {
		at = w
		err := info.read(ctx, id, w, w.node.Pipeline(), stored, memory)
		return asked{err, err == nil && info.absent()}
	})
	if done {
		c.settled(ctx, rowType, at, start, nil)
	}
	return done
}

// absent says whether there is no such key.
func (i *KeyInfo) absent() bool { return i.Type == "none" || i.TTLMS == -2 }

// read asks for all at once, in a pipeline to the node of w.
func (i *KeyInfo) read(ctx context.Context, id *acl.Identity, w *way, pipe redis.Pipeliner, stored string, memory bool) error {
	place, err := w.admitOne(ctx, id)
	if err != nil {
		return err
	}
	defer place.Release(false)
	kind := pipe.Type(ctx, stored)
	ttl := onceCmd{redis.NewCmd(ctx, "PTTL", stored)}
	_ = pipe.Process(ctx, ttl)
	encoding := pipe.ObjectEncoding(ctx, stored)
	var used *redis.IntCmd
	if memory {
		used = pipe.MemoryUsage(ctx, stored)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	i.Type, i.Encoding = kind.Val(), encoding.Val()
	i.TTLMS, _ = ttl.Val().(int64)
	if used != nil {
		i.MemoryBytes = used.Val()
	}
	return nil
}

// ownTag is the hash tag in the caller's key; "" if the whole key is hashed.
func ownTag(key string) string {
	if tag := slot.Tag(key); len(tag) < len(key) {
		return tag
	}
	return ""
}

// Conditions of Expire, as Redis names them.
var expireWhen = map[string]string{"": "", "nx": "NX", "xx": "XX", "gt": "GT", "lt": "LT"}

// Expire sets when a key expires; e is ExpireIn or ExpireAt. when is "", nx (only if it had none), xx, gt (only to
// lengthen) or lt. applied is false if that was not met; ttlMS is the lifetime afterwards, -1 = none.
// Errors: key_not_found, ttl_too_long, or an outcome.
func (s *Store) Expire(ctx context.Context, id *acl.Identity, key string, e Expiry, when string, d Delivery) (applied bool, ttlMS int64, err error) {
	word, ok := expireWhen[when]
	if !ok {
		return false, 0, Invalid("/when", "unknown condition; it must be nx, xx, gt or lt")
	}
	r := rowPExpire
	if e.Mode == ExpireAt {
		r = rowPExpireAt
	}
	if err := r.allow(id); err != nil {
		return false, 0, err
	}
	if err := e.check(id.App, s.now()); err != nil {
		return false, 0, err
	}
	return s.expire(ctx, id, d, r, key, strconv.FormatInt(e.Millis, 10), word)
}

// Persist removes the expiry of a key; a key without one stays as it is. Errors: key_not_found, ttl_required.
func (s *Store) Persist(ctx context.Context, id *acl.Identity, key string, d Delivery) error {
	if err := rowPersist.allow(id); err != nil {
		return err
	}
	if id.App.MaxTTLMS > 0 {
		return ttlProblem(statusTTLRequired, id.App)
	}
	_, _, err := s.expire(ctx, id, d, rowPersist, key, "0", "")
	return err
}

// expire runs the command of the row r, as the script knows it by the same name.
func (s *Store) expire(ctx context.Context, id *acl.Identity, d Delivery, r *row, key, ms, when string) (bool, int64, error) {
	reply, err := s.run(ctx, id, d, r, scriptExpire, key, r.name, ms, when)
	if err != nil {
		return false, 0, err
	}
	if reply.status() == statusUnmet {
		return false, 0, errKeyNotFound
	}
	return reply.integer(1) == 1, reply.integer(2), nil
}

// types are the values of ListOptions.Type.
var types = []string{"string", "hash", "list", "set", "zset", "stream"}

func checkType(name string) *Error {
	if name == "" {
		return nil
	}
	for _, t := range types {
		if t == name {
			return nil
		}
	}
	return Invalid("query:type", "unknown type; it must be one of "+strings.Join(types, ", "))
}
