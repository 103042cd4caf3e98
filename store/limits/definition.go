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
	"github.com/slotgate/slotgate/acl/alive"
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

// loadTime is how long a question for a definition may last at least: longer than a take waits, since a limit with all its overrides is
// 1.5 MB and would otherwise never be followed.
const loadTime = time.Second

// lookup gives a limit as it was a moment ago. One question is asked for all who find it too old, on nobody's behalf: it lasts when who
// asked first has left. Who has an older one waits for the answer no longer than for a take, and then goes on with that.
func (l *Limits) lookup(ctx context.Context, id *acl.Identity, command, name string) (*Defined, error) {
	key, now := cacheKey(id, name), l.Now()
	k, fresh := l.recall(key, now)
	if fresh {
		return k.Defined, nil
	}
	l.local.Forget(now) // here, as it is done once in Fresh for each limit in use
	l.blocked.forget(now)
	var old *Defined
	lasts, wait := loadTime, ctx
	if deadline, ok := ctx.Deadline(); ok {
		lasts = max(lasts, time.Until(deadline))
	}
	if k != nil {
		old = k.Defined
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, l.Timeout)
		defer cancel()
	}
	asking := l.asking.DoChan(key, func() (d any, err error) {
		if k, fresh := l.recall(key, now); fresh { // somebody was faster
			return k.Defined, nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), lasts)
		defer cancel()
		err = &store.Error{Code: store.CodeInternal, Outcome: store.Unknown} // unless it ends
		alive.Once(l.Log, "question for a rate limit", func() { d, err = l.load(ctx, id, command, name, old) })
		return d, err
	})
	var err error
	select {
	case answer := <-asking:
		if err = answer.Err; err == nil {
			d := answer.Val.(*Defined)
			if d.OnError == ratelimit.Local {
				l.Gateways(id.App.Cluster) // who counts them begins with the first question, and cannot when the cluster has failed
			}
			return d, nil
		}
	case <-wait.Done():
		late := store.NewError(store.CodeBackendTimeout, "").WithCause(wait.Err())
		late.Outcome = store.NotApplied
		err = late
	}
	if unanswered(err) && old != nil {
		l.believe(key, k) // what holds while its shard does not answer is what held before
		return old, nil
	}
	return nil, err
}

// recall is what is known of a limit, nil = nothing, and whether that is believed.
func (l *Limits) recall(key string, now time.Time) (k *known, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k = l.known[key]
	return k, k != nil && now.Sub(k.asked) < Fresh
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
	key := cacheKey(id, name)
	q := l.begin(key)
	defer l.end(key, q)
	reply, err := l.Redis.RunScript(ctx, id, command, scriptLoad, []string{definitionKey(id, name)}, known)
	if err != nil {
		return nil, err
	}
	switch status(reply) {
	case 0:
		l.forget(key)
		return nil, errNone()
	case 2:
		l.remember(key, old, q)
		return old, nil
	}
	return l.read(key, reply, q)
}

// read makes a limit of a reply {1, field, value, ...}, and remembers it.
func (l *Limits) read(key string, reply []any, q *question) (*Defined, error) {
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
	l.remember(key, d, q)
	return d, nil
}

// question is one to Redis about a limit, while it is under way.
type question struct{ overtaken bool } // the limit was changed here meanwhile: the answer may be that of before

func (l *Limits) begin(key string) *question {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &question{}
	l.questions[key] = append(l.questions[key], q)
	return q
}

func (l *Limits) end(key string, q *question) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.questions[key] = slices.DeleteFunc(l.questions[key], func(other *question) bool { return other == q })
	if len(l.questions[key]) == 0 {
		delete(l.questions, key)
	}
}

func (l *Limits) overtaken(q *question) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return q.overtaken
}

func (l *Limits) remember(key string, d *Defined, q *question) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.known[key]; q.overtaken || now != nil && d.Version < now.Version {
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

// believe takes a limit for fresh that nobody could be asked about, unless it is another by now.
func (l *Limits) believe(key string, k *known) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known[key] == k {
		l.known[key] = &known{k.Defined, l.Now()}
	}
}

// forget makes void what is known of a limit, and what those will learn who have asked before.
func (l *Limits) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, key)
	for _, q := range l.questions[key] {
		q.overtaken = true
	}
	l.asking.Forget(key)
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
	key := cacheKey(id, name)
	for range editTries {
		want, err := l.expected(ctx, id, name, cond)
		if err != nil {
			return nil, err
		}
		d, err := l.define(ctx, id, key, name, want, text)
		if d != nil || err != nil {
			return d, err
		}
	}
	return nil, errContended()
}

// define runs the script. It gives nothing if something else is there than it wants.
func (l *Limits) define(ctx context.Context, id *acl.Identity, key, name, want string, text []byte) (*Defined, error) {
	q := l.begin(key)
	defer l.end(key, q)
	reply, err := l.Redis.RunScript(ctx, id, commandDefine, scriptDefine, []string{definitionKey(id, name)}, want, text)
	if err != nil || status(reply) != 1 {
		return nil, err
	}
	if l.overtaken(q) { // then who has asked since then may know less than this
		l.forget(key)
	}
	return l.read(key, reply, q)
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
