package definitions

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/alive"
	"github.com/slotgate/slotgate/store"
)

// loadTime is how long a question for a definition may last at least: longer than who knows an older one waits, since a limit with all its
// overrides is 1.5 MB and would otherwise never be followed.
const loadTime = time.Second

// Lookup gives a definition as it was a moment ago. One question is asked for all who find it too old, on nobody's behalf: it lasts when who
// asked first has left. Who has an older one waits for the answer no longer than Wait, and then goes on with that. command is the row of the
// command table whose permission the caller has. Errors: that there is none, corrupt_value, and those of a command.
func (d *Definitions[T]) Lookup(ctx context.Context, id *acl.Identity, command, name string) (*T, error) {
	key, now := CacheKey(id, name), d.Now()
	k, fresh := d.recall(key, now)
	if fresh {
		return k.value, nil
	}
	if d.Asking != nil {
		d.Asking(now)
	}
	lasts, wait := loadTime, ctx
	if deadline, ok := ctx.Deadline(); ok {
		lasts = max(lasts, time.Until(deadline))
	}
	if k != nil {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, d.Wait)
		defer cancel()
	}
	asking := d.asking.DoChan(key, func() (v any, err error) {
		if k, fresh := d.recall(key, now); fresh { // somebody was faster
			return k.value, nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), lasts)
		defer cancel()
		err = &store.Error{Code: store.CodeInternal, Outcome: store.NotApplied} // unless it ends
		alive.Once(d.Log, "question for a "+d.What, func() {
			var now known[T]
			now, err = d.ask(ctx, id, command, name, k)
			v = now.value
		})
		return v, err
	})
	var err error
	select {
	case answer := <-asking:
		if err = answer.Err; err == nil {
			v := answer.Val.(*T)
			if d.Answered != nil {
				d.Answered(id, v)
			}
			return v, nil
		}
	case <-wait.Done():
		late := store.NewError(store.CodeBackendTimeout, "").WithCause(wait.Err())
		late.Outcome = store.NotApplied
		err = late
	}
	if Unanswered(err) && k != nil {
		d.believe(key, k) // what holds while its shard does not answer is what held before
		return k.value, nil
	}
	return nil, err
}

// Unanswered says whether err is that of a cluster which did not do what it was asked.
func Unanswered(err error) bool {
	e, ok := errors.AsType[*store.Error](err)
	return ok && e.Status() >= 500
}

// Load gives a definition as it is stored now. Errors: as Lookup.
func (d *Definitions[T]) Load(ctx context.Context, id *acl.Identity, command, name string) (*T, error) {
	k, err := d.ask(ctx, id, command, name, nil)
	return k.value, err
}

// ask asks Redis for a definition; old is what is known of it, nil = nothing.
func (d *Definitions[T]) ask(ctx context.Context, id *acl.Identity, command, name string, old *known[T]) (known[T], error) {
	version := ""
	if old != nil {
		version = text(old.version)
	}
	key := CacheKey(id, name)
	q := d.begin(key)
	defer d.end(key, q)
	reply, err := d.Redis.RunScript(ctx, id, command, scriptLoad, []string{d.Hash(id, name)}, version)
	if err != nil {
		return known[T]{}, store.NotDone(err) // a question changes nothing, whatever its row says
	}
	switch Status(reply) {
	case 0:
		d.forget(key)
		return known[T]{}, d.errNone()
	case 2:
		if old != nil {
			d.remember(key, *old, q)
			return *old, nil
		}
	}
	return d.read(key, reply, q)
}

// text is a version as the scripts want it.
func text(version int64) string { return strconv.FormatInt(version, 10) }

// The fields of every definition's hash.
const (
	fieldVersion    = "v"
	fieldDefinition = "d"
)

// read makes a definition of a reply {1, field, value, ...}, and remembers it.
func (d *Definitions[T]) read(key string, reply []any, q *question) (known[T], error) {
	s := Stored{More: map[string]string{}}
	var problem error
	for i := 1; i+1 < len(reply); i += 2 {
		field, _ := reply[i].(string)
		value, _ := reply[i+1].(string)
		switch field {
		case fieldVersion:
			s.Version, problem = strconv.ParseInt(value, 10, 64)
		case fieldDefinition:
			s.Definition, s.ETag = value, store.ETag([]byte(value))
		default:
			s.More[field] = value
		}
	}
	if problem == nil && (s.Version == 0 || s.ETag == "") {
		problem = errors.New("definitions: one without its fields")
	}
	var value *T
	if problem == nil {
		value, problem = d.Read(s)
	}
	if problem != nil {
		return known[T]{}, store.NewError(store.CodeCorruptValue, "the stored definition of the "+d.What+" cannot be read").WithCause(problem)
	}
	k := known[T]{value: value, version: s.Version, etag: s.ETag}
	d.remember(key, k, q)
	return k, nil
}

// question is one to Redis about a definition, while it is under way.
type question struct{ overtaken bool } // it was changed here meanwhile: the answer may be that of before

func (d *Definitions[T]) begin(key string) *question {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := &question{}
	d.questions[key] = append(d.questions[key], q)
	return q
}

func (d *Definitions[T]) end(key string, q *question) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.questions[key] = slices.DeleteFunc(d.questions[key], func(other *question) bool { return other == q })
	if len(d.questions[key]) == 0 {
		delete(d.questions, key)
	}
}

func (d *Definitions[T]) overtaken(q *question) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return q.overtaken
}

// recall is what is known of a definition, nil = nothing, and whether that is believed.
func (d *Definitions[T]) recall(key string, now time.Time) (k *known[T], fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k = d.known[key]
	return k, k != nil && now.Sub(k.asked) < Fresh
}

func (d *Definitions[T]) remember(key string, k known[T], q *question) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.known[key]; q.overtaken || now != nil && k.version < now.version {
		return // an answer that was overtaken
	}
	if len(d.known) >= maxKnown && d.known[key] == nil {
		for any := range d.known {
			delete(d.known, any)
			break
		}
	}
	k.asked = d.Now()
	d.known[key] = &k
}

// believe takes a definition for fresh that nobody could be asked about, unless it is another by now.
func (d *Definitions[T]) believe(key string, k *known[T]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known[key] == k {
		again := *k
		again.asked = d.Now()
		d.known[key] = &again
	}
}

// Forget makes void what is known of a definition, and what those will learn who have asked before.
func (d *Definitions[T]) Forget(id *acl.Identity, name string) { d.forget(CacheKey(id, name)) }

func (d *Definitions[T]) forget(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.known, key)
	for _, q := range d.questions[key] {
		q.overtaken = true
	}
	d.asking.Forget(key)
}
