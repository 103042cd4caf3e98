package definitions

import (
	"context"
	"errors"
	"slices"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
)

// Tries is how often an edit begins anew because of another one, which has then succeeded.
const Tries = 5

// Define stores a definition. Errors: precondition_failed, and those of a command.
func (d *Definitions[T]) Define(ctx context.Context, id *acl.Identity, name, definition string, cond store.Condition) (*T, error) {
	for range Tries {
		want, err := d.expected(ctx, id, name, cond)
		if err != nil {
			return nil, err
		}
		v, err := d.defineIf(ctx, id, name, want, definition)
		if v != nil || err != nil {
			return v, err
		}
	}
	return nil, d.Contended()
}

// Edit stores what change makes of the definition that is there. change may be called several times; its error is that of Edit. Errors: that
// there is none, precondition_failed, and those of a command.
func (d *Definitions[T]) Edit(ctx context.Context, id *acl.Identity, name string, cond store.Condition, change func(*T) (string, error)) (*T, error) {
	for range Tries {
		k, err := d.ask(ctx, id, d.Command, name, nil)
		if err != nil {
			return nil, err
		}
		if err := Met(cond, k.etag); err != nil {
			return nil, err
		}
		definition, err := change(k.value)
		if err != nil {
			return nil, err
		}
		v, err := d.defineIf(ctx, id, name, text(k.version), definition)
		if v != nil || err != nil {
			return v, err
		}
	}
	return nil, d.Contended()
}

// What must be there, beside a version.
const (
	anything = "any"
	none     = "none"
	some     = "some"
)

// defineIf runs the script. It gives nothing if something else is there than it wants.
func (d *Definitions[T]) defineIf(ctx context.Context, id *acl.Identity, name, want, definition string) (*T, error) {
	key := CacheKey(id, name)
	q := d.begin(key)
	defer d.end(key, q)
	keys := []string{d.Hash(id, name)}
	if d.With != nil {
		keys = append(keys, d.With(id, name)[0])
	}
	reply, err := d.Redis.RunScript(ctx, id, d.Command, scriptDefine, keys, want, definition, d.First)
	if err != nil || Status(reply) != 1 {
		return nil, err
	}
	if d.overtaken(q) { // then who has asked since then may know less than this
		d.forget(key)
	}
	k, err := d.read(key, reply, q)
	return k.value, err
}

// expected is what must be there for the condition to hold, as the scripts want it.
func (d *Definitions[T]) expected(ctx context.Context, id *acl.Identity, name string, cond store.Condition) (string, error) {
	if !cond.IfNoneMatch && len(cond.IfMatch) == 0 {
		return anything, nil
	}
	k, err := d.ask(ctx, id, d.Command, name, nil)
	if e, ok := errors.AsType[*store.Error](err); ok && e.Code == d.None {
		if cond.IfNoneMatch {
			return none, nil
		}
		return "", store.NewError(store.CodePreconditionFailed, "there is no such "+d.What)
	}
	if err != nil {
		return "", err
	}
	return text(k.version), Met(cond, k.etag)
}

// Met says whether a condition holds for what has this ETag, and exists. Error: precondition_failed.
func Met(cond store.Condition, etag string) error {
	if !cond.IfNoneMatch && (len(cond.IfMatch) == 0 || cond.IfMatch[0] == "*" || slices.Contains(cond.IfMatch, etag)) {
		return nil
	}
	e := store.NewError(store.CodePreconditionFailed, "there is another one than the condition asks for")
	e.ETag = etag
	return e
}

// Contended is the error of an edit that others have overtaken each time.
func (d *Definitions[T]) Contended() error {
	return store.NewError(store.CodePreconditionFailed, "the "+d.What+" is changed by others all the time")
}

// Delete removes a definition and what ends with it. Errors: that there is none, precondition_failed, and those of a command.
func (d *Definitions[T]) Delete(ctx context.Context, id *acl.Identity, name string, cond store.Condition) error {
	keys := []string{d.Hash(id, name)}
	if d.With != nil {
		keys = append(keys, d.With(id, name)...)
	}
	for range Tries {
		want, err := d.expected(ctx, id, name, cond)
		if err != nil {
			return err
		}
		if want == anything {
			want = some
		}
		reply, err := d.Redis.RunScript(ctx, id, d.Command, scriptDelete, keys, want)
		if err != nil {
			return err
		}
		d.forget(CacheKey(id, name))
		switch Status(reply) {
		case 0:
			return d.errNone()
		case 1:
			return nil
		}
	}
	return d.Contended()
}
