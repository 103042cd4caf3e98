package limits

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// Defined is a limit as it is stored. It must not be changed.
type Defined struct {
	ratelimit.Definition
	Version   int64  // grows with every change of definition and overrides
	ETag      string // of the definition
	Overrides map[string]Override
}

// known is a limit as this gateway knows it.
type known struct {
	*Defined
	asked time.Time // when Redis was asked last
}

// The fields of a limit's hash. An override's is its prefix and the subject.
const (
	fieldVersion    = "v"
	fieldDefinition = "d"
	prefixOverride  = "o"
)

// definitionKey is in the slot of all that isolation atomic keeps together.
func definitionKey(id *acl.Identity, name string) string {
	return "slotgate:r:{" + id.App.Namespace + "/" + name + "}:d"
}

func cacheKey(id *acl.Identity, name string) string {
	return id.App.Cluster + " " + id.App.Namespace + "/" + name
}

func errNone() error { return store.NewError(store.CodeLimitNotFound, "there is no such rate limit") }

// Show gives a limit as it is stored now. Errors: forbidden, limit_not_found, and those of a command.
func (l *Limits) Show(ctx context.Context, id *acl.Identity, name string) (*Defined, error) {
	if err := store.Allow(id, commandShow); err != nil {
		return nil, err
	}
	if err := ratelimit.CheckName(name); err != nil {
		return nil, err
	}
	return l.load(ctx, id, commandShow, name, nil)
}

// lookup gives a limit as it was a moment ago. Of those who find it too old one asks, for all.
func (l *Limits) lookup(ctx context.Context, id *acl.Identity, command, name string) (*Defined, error) {
	key, now := cacheKey(id, name), l.Now()
	l.mu.Lock()
	k := l.known[key]
	l.mu.Unlock()
	if k != nil && now.Sub(k.asked) < Fresh {
		return k.Defined, nil
	}
	var old *Defined
	if k != nil {
		old = k.Defined
	}
	v, err, _ := l.asking.Do(key, func() (any, error) {
		deadline, limited := ctx.Deadline()
		ctx := context.WithoutCancel(ctx) // the others do not leave when this caller does
		if !limited {
			deadline = time.Now().Add(time.Second)
		}
		if old != nil {
			deadline = time.Now().Add(l.Timeout)
		}
		ctx, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		return l.load(ctx, id, command, name, old)
	})
	if unanswered(err) && old != nil {
		l.remember(key, old) // what holds while its shard does not answer is what held before
		return old, nil
	}
	if err != nil {
		return nil, err
	}
	return v.(*Defined), nil
}

// unanswered says whether err is that of a cluster which did not do what it was asked.
func unanswered(err error) bool {
	e, ok := errors.AsType[*store.Error](err)
	return ok && e.Status() >= 500
}

// load asks Redis for a limit; old is what is known of it, nil = nothing.
func (l *Limits) load(ctx context.Context, id *acl.Identity, command, name string, old *Defined) (*Defined, error) {
	known := ""
	if old != nil {
		known = version(old)
	}
	reply, err := l.Redis.RunScript(ctx, id, command, scriptLoad, []string{definitionKey(id, name)}, known)
	if err != nil {
		return nil, err
	}
	key := cacheKey(id, name)
	switch status(reply) {
	case 0:
		l.forget(key)
		return nil, errNone()
	case 2:
		l.remember(key, old)
		return old, nil
	}
	return l.read(key, reply)
}

// read makes a limit of a reply {1, field, value, ...}, and remembers it.
func (l *Limits) read(key string, reply []any) (*Defined, error) {
	d := &Defined{Overrides: map[string]Override{}}
	var problem error
	for i := 1; i+1 < len(reply); i += 2 {
		field, _ := reply[i].(string)
		value, _ := reply[i+1].(string)
		switch {
		case field == fieldVersion:
			d.Version, problem = strconv.ParseInt(value, 10, 64)
		case field == fieldDefinition:
			d.ETag = store.ETag([]byte(value))
			problem = json.Unmarshal([]byte(value), &d.Definition)
		case strings.HasPrefix(field, prefixOverride):
			o := Override{ETag: store.ETag([]byte(value))}
			problem = json.Unmarshal([]byte(value), &o.Override)
			d.Overrides[field[len(prefixOverride):]] = o
		}
		if problem != nil {
			break
		}
	}
	if problem == nil && (d.Version == 0 || d.ETag == "") {
		problem = errors.New("limits: a definition without its fields")
	}
	if problem != nil {
		return nil, store.NewError(store.CodeCorruptValue, "the stored definition of the rate limit cannot be read").WithCause(problem)
	}
	l.remember(key, d)
	return d, nil
}

func (l *Limits) remember(key string, d *Defined) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.known[key]; now != nil && d.Version < now.Version {
		return // an answer that was overtaken
	}
	if len(l.known) >= maxKnown && l.known[key] == nil {
		for any := range l.known {
			delete(l.known, any)
			break
		}
	}
	l.known[key] = &known{d, l.Now()}
}

func (l *Limits) forget(key string) {
	l.mu.Lock()
	delete(l.known, key)
	l.mu.Unlock()
}

// Define stores a limit, which must be valid. Errors: forbidden, precondition_failed, and those of a command.
func (l *Limits) Define(ctx context.Context, id *acl.Identity, name string, def ratelimit.Definition, cond store.Condition) (*Defined, error) {
	if err := store.Allow(id, commandDefine); err != nil {
		return nil, err
	}
	if err := ratelimit.CheckName(name); err != nil {
		return nil, err
	}
	if err := def.Validate(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(def)
	if err != nil {
		return nil, store.NewError(store.CodeInternal, "").WithCause(err)
	}
	for range editTries {
		want, err := l.expected(ctx, id, name, cond)
		if err != nil {
			return nil, err
		}
		reply, err := l.Redis.RunScript(ctx, id, commandDefine, scriptDefine, []string{definitionKey(id, name)}, want, text)
		if err != nil {
			return nil, err
		}
		if status(reply) == 1 {
			return l.read(cacheKey(id, name), reply)
		}
	}
	return nil, errContended()
}

// editTries is how often an edit begins anew because of another one, which has then succeeded.
const editTries = 5

// expected is what must be there for the condition to hold, as the scripts want it.
func (l *Limits) expected(ctx context.Context, id *acl.Identity, name string, cond store.Condition) (string, error) {
	if !cond.IfNoneMatch && len(cond.IfMatch) == 0 {
		return "any", nil
	}
	d, err := l.load(ctx, id, commandDefine, name, nil)
	if e, ok := errors.AsType[*store.Error](err); ok && e.Code == store.CodeLimitNotFound {
		if cond.IfNoneMatch {
			return "none", nil
		}
		return "", store.NewError(store.CodePreconditionFailed, "there is no such rate limit")
	}
	if err != nil {
		return "", err
	}
	return version(d), met(cond, d.ETag)
}

// version is the one of d, as the scripts want it.
func version(d *Defined) string { return strconv.FormatInt(d.Version, 10) }

// met says whether a condition holds for what has this ETag, and exists. Error: precondition_failed.
func met(cond store.Condition, etag string) error {
	if !cond.IfNoneMatch && (len(cond.IfMatch) == 0 || cond.IfMatch[0] == "*" || slices.Contains(cond.IfMatch, etag)) {
		return nil
	}
	e := store.NewError(store.CodePreconditionFailed, "there is another one than the condition asks for")
	e.ETag = etag
	return e
}

func errContended() error {
	return store.NewError(store.CodePreconditionFailed, "the rate limit is changed by others all the time")
}

// Delete removes a limit and its overrides. Errors: forbidden, limit_not_found, precondition_failed, and those of a command.
func (l *Limits) Delete(ctx context.Context, id *acl.Identity, name string, cond store.Condition) error {
	if err := store.Allow(id, commandDefine); err != nil {
		return err
	}
	if err := ratelimit.CheckName(name); err != nil {
		return err
	}
	for range editTries {
		want, err := l.expected(ctx, id, name, cond)
		if err != nil {
			return err
		}
		if want == "any" {
			want = "some"
		}
		reply, err := l.Redis.RunScript(ctx, id, commandDefine, scriptDelete, []string{definitionKey(id, name)}, want)
		if err != nil {
			return err
		}
		l.forget(cacheKey(id, name))
		switch status(reply) {
		case 0:
			return errNone()
		case 1:
			return nil
		}
	}
	return errContended()
}

// status is the first part of a script's reply; of a reply that has none it is nothing a script returns.
func status(reply []any) int64 {
	if len(reply) > 0 {
		if n, ok := reply[0].(int64); ok {
			return n
		}
	}
	return -1
}
