package pools

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/alive"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/pool"
)

// The names of an app's pools are in a sorted set in a slot of its own, as definitions are each in the slot of its pool: by the time in us
// when they were added, which is how who takes one out again knows that nobody has added it since. A name may be there without its pool,
// after a request that was cut off between the two; never a pool without its name.
var (
	scriptList = store.NewScript(`
-- KEYS: 1 the names. ARGV: 1 a name, 2 the most. Returns {0} if there are too many, {1}.
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return {0} end
local t = redis.call('TIME')
redis.call('ZADD', KEYS[1], t[1] * 1000000 + t[2], ARGV[1])
return {1}`)
	scriptListed = store.NewScript(`
-- KEYS: 1 the names. ARGV: 1 a name. Returns {when it was added, '' = it is not there}.
return {redis.call('ZSCORE', KEYS[1], ARGV[1]) or ''}`)
	scriptUnlist = store.NewScript(`
-- KEYS: 1 the names. ARGV: 1 a name, 2 when it was added. Takes it out, unless it was added anew.
if redis.call('ZSCORE', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('ZREM', KEYS[1], ARGV[1]) end
return {1}`)
	scriptNames = store.NewScript(`
-- KEYS: 1 the names. Returns {the time in us, and for each the name and when it was added}.
local t = redis.call('TIME')
local reply = redis.call('ZRANGE', KEYS[1], '0', '-1', 'WITHSCORES')
table.insert(reply, 1, string.format('%.0f', t[1] * 1000000 + t[2]))
return reply`)
)

// namesKey has a tag that no pool has, since no name is empty.
func namesKey(id *acl.Identity) []string {
	return []string{"slotgate:p:{" + id.App.Namespace + "/}:names"}
}

// list adds a name, or makes it new. Errors: validation_failed, and those of a command, nothing being defined.
func (p *Pools) list(ctx context.Context, id *acl.Identity, name string) error {
	reply, err := p.Redis.RunScript(ctx, id, pool.CommandDefine, scriptList, namesKey(id), name, MaxPools)
	if err != nil {
		return store.NotDone(err)
	}
	if reply[0] != any(int64(1)) {
		return store.Invalid("path:pool", "the app has "+strconv.Itoa(MaxPools)+" pools, and may have no more; delete one that is not used")
	}
	return nil
}

// listed is when a name was added, "" = it is not there. Errors: those of a command, nothing being deleted.
func (p *Pools) listed(ctx context.Context, id *acl.Identity, name string) (string, error) {
	reply, err := p.Redis.RunScript(ctx, id, pool.CommandDefine, scriptListed, namesKey(id), name)
	if err != nil {
		return "", store.NotDone(err)
	}
	since, _ := reply[0].(string)
	return since, nil
}

// unlist takes a name out that was added then. That it may fail costs nothing but a place.
func (p *Pools) unlist(ctx context.Context, id *acl.Identity, name, since string) {
	_, _ = p.Redis.RunScript(ctx, id, pool.CommandDefine, scriptUnlist, namesKey(id), name, since)
}

// Listed is a pool in a list.
type Listed struct {
	Name string
	*Defined
}

// Page is a part of the list of an app's pools.
type Page struct {
	Pools []Listed // by name; those that were deleted meanwhile are missing
	After string   // behind which the next page begins; "" = this is the last one
}

// parallel definitions are loaded at once for one list: it shall not be more to the cluster than eight callers are.
const parallel = 8

// cutOffAfter is how old a name without a pool must be to be taken for one whose request was cut off: longer than any request lasts.
const cutOffAfter = time.Hour

// List gives up to limit definitions, 1 to MaxPage, whose names come after another, "" = from the first. Errors: forbidden, validation_failed,
// and those of a command.
func (p *Pools) List(ctx context.Context, id *acl.Identity, after string, limit int) (Page, error) {
	if err := store.Allow(id, pool.CommandShow); err != nil {
		return Page{}, err
	}
	if limit < 1 || limit > MaxPage {
		return Page{}, store.Invalid("query:limit", "is "+strconv.Itoa(limit)+"; give 1 to "+strconv.Itoa(MaxPage))
	}
	names, err := p.names(ctx, id)
	if err != nil {
		return Page{}, err
	}
	names = slices.DeleteFunc(names, func(n named) bool { return n.name <= after })
	var page Page
	if len(names) > limit {
		names = names[:limit]
		page.After = names[limit-1].name
	}
	found, err := p.definitionsOf(ctx, id, names)
	if err != nil {
		return Page{}, err
	}
	for i, d := range found {
		if d != nil {
			page.Pools = append(page.Pools, Listed{names[i].name, d})
		}
	}
	return page, nil
}

// named is a name as it is stored.
type named struct {
	name, since string
	age         time.Duration
}

// names are all of an app, in their order.
func (p *Pools) names(ctx context.Context, id *acl.Identity) ([]named, error) {
	reply, err := p.Redis.RunScript(ctx, id, pool.CommandShow, scriptNames, namesKey(id))
	if err != nil {
		return nil, err
	}
	micros := func(text any) float64 {
		s, _ := text.(string)
		f, _ := strconv.ParseFloat(s, 64) // of no number 0: then it is as if it were new
		return f
	}
	now := micros(reply[0])
	var all []named
	for i := 1; i+1 < len(reply); i += 2 {
		n := named{}
		n.name, _ = reply[i].(string)
		n.since, _ = reply[i+1].(string)
		n.age = time.Duration(now-micros(n.since)) * time.Microsecond
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b named) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// definitionsOf are the definitions of names, in their order; nil = there is none.
func (p *Pools) definitionsOf(ctx context.Context, id *acl.Identity, names []named) ([]*Defined, error) {
	found := make([]*Defined, len(names))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, n := range names {
		group.Go(func() (err error) {
			err = &store.Error{Code: store.CodeInternal} // unless it ends
			alive.Once(p.Log, "list of pools", func() { found[i], err = p.defined.Load(ctx, id, pool.CommandShow, n.name) })
			if e, ok := errors.AsType[*store.Error](err); !ok || e.Code != store.CodePoolNotFound {
				return err
			}
			if n.age > cutOffAfter && store.Allow(id, pool.CommandDefine) == nil {
				p.unlist(ctx, id, n.name, n.since)
			}
			return nil
		})
	}
	return found, group.Wait()
}
