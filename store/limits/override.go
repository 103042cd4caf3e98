package limits

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/definitions"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// Override is what one subject has instead of the definition, as it is stored.
type Override struct {
	ratelimit.Override
	ETag string
}

// Over says whether it has expired: then it is as if there were none.
func (o *Override) Over(now time.Time) bool { return !o.ExpiresAt.IsZero() && !now.Before(o.ExpiresAt) }

// ShowOverride gives a subject's override as it is stored now. Errors: forbidden, validation_failed, limit_not_found, override_not_found,
// and those of a command.
func (l *Limits) ShowOverride(ctx context.Context, id *acl.Identity, name, subject string) (Override, error) {
	if err := ratelimit.CheckSubject("path:subject", subject); err != nil {
		return Override{}, err
	}
	d, err := l.Show(ctx, id, name)
	if err != nil {
		return Override{}, err
	}
	if o, ok := d.Overrides[subject]; ok && !o.Over(l.Now()) {
		return o, nil
	}
	return Override{}, store.NewError(store.CodeOverrideNotFound, "the subject has no override")
}

// Override gives a subject rules of its own, and returns their ETag. Errors: forbidden, limit_not_found, precondition_failed,
// validation_failed, and those of a command.
func (l *Limits) Override(ctx context.Context, id *acl.Identity, name, subject string, o ratelimit.Override, cond store.Condition) (etag string, err error) {
	if err := mayOverride(id, name, subject); err != nil {
		return "", err
	}
	for try := range definitions.Tries {
		d, err := l.defined.Load(ctx, id, commandDefine, name)
		if err != nil {
			return "", err
		}
		want, err := l.expectedOverride(d, subject, cond)
		if err != nil {
			return "", err
		}
		if err := o.Validate(&d.Definition); err != nil {
			return "", err
		}
		text, err := json.Marshal(o)
		if err != nil {
			return "", store.NewError(store.CodeInternal, "").WithCause(err)
		}
		over := d.over(l.Now())
		switch { // what has expired goes, unless somebody has renewed it meanwhile
		case want != "any" || len(over) == 0:
		case try < definitions.Tries-1:
			want = version(d)
		default:
			over = nil // an override without a condition shall not fail because of others
		}
		argv := append([]any{prefixOverride + subject, text, MaxOverrides, want}, over...)
		if done, err := l.override(ctx, id, name, argv); done || err != nil {
			return store.ETag(text), err
		}
	}
	return "", l.defined.Contended()
}

// over are the fields of the overrides that have expired.
func (d *Defined) over(now time.Time) (fields []any) {
	for subject, o := range d.Overrides {
		if o.Over(now) {
			fields = append(fields, prefixOverride+subject)
		}
	}
	return fields
}

// DeleteOverride takes a subject's own rules away, also if there are none, unless there is a condition. Errors: as Override.
func (l *Limits) DeleteOverride(ctx context.Context, id *acl.Identity, name, subject string, cond store.Condition) error {
	if err := mayOverride(id, name, subject); err != nil {
		return err
	}
	for range definitions.Tries {
		want := "any"
		if cond.IfMatch != nil {
			d, err := l.defined.Load(ctx, id, commandDefine, name)
			if err != nil {
				return err
			}
			if want, err = l.expectedOverride(d, subject, cond); err != nil {
				return err
			}
		}
		if done, err := l.override(ctx, id, name, []any{prefixOverride + subject, "", MaxOverrides, want}); done || err != nil {
			return err
		}
	}
	return l.defined.Contended()
}

func mayOverride(id *acl.Identity, name, subject string) error {
	if err := may(id, commandDefine, name); err != nil {
		return err
	}
	if err := ratelimit.CheckSubject("path:subject", subject); err != nil {
		return err
	}
	return nil
}

// expectedOverride is the version of the limit that must be there for the condition to hold, as the script wants it. A condition is
// about the override, the version about all of them: who loses to the change of another one begins anew.
func (l *Limits) expectedOverride(d *Defined, subject string, cond store.Condition) (string, error) {
	if !cond.IfNoneMatch && len(cond.IfMatch) == 0 {
		return "any", nil
	}
	o, ok := d.Overrides[subject]
	switch {
	case ok && !o.Over(l.Now()):
		return version(d), definitions.Met(cond, o.ETag)
	case cond.IfNoneMatch:
		return version(d), nil
	}
	return "", store.NewError(store.CodePreconditionFailed, "the subject has no override")
}

// override runs the script. It is not done if the limit has another version than it must have.
func (l *Limits) override(ctx context.Context, id *acl.Identity, name string, argv []any) (done bool, err error) {
	reply, err := l.Redis.RunScript(ctx, id, commandDefine, scriptOverride, []string{definitionKey(id, name)}, argv...)
	if err != nil {
		return false, err
	}
	l.defined.Forget(id, name)
	switch definitions.Status(reply) {
	case 0:
		return false, store.NewError(store.CodeLimitNotFound, "there is no such rate limit")
	case 1:
		return true, nil
	case 2:
		return false, store.Invalid("path:subject", "the rate limit has "+strconv.Itoa(MaxOverrides)+" overrides, and may have no more")
	}
	return false, nil
}
