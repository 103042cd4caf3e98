package limits

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/definitions"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// Defined is a limit as it is stored. It must not be changed.
type Defined struct {
	ratelimit.Definition
	Version   int64  // grows with every change of definition and overrides
	ETag      string // of the definition
	Overrides map[string]Override
}

// prefixOverride and a subject are the field of an override in a limit's hash.
const prefixOverride = "o"

// definitionKey is in the slot of all that isolation atomic keeps together.
func definitionKey(id *acl.Identity, name string) string {
	return "slotgate:r:{" + id.App.Namespace + "/" + name + "}:d"
}

// read makes a limit of what is stored.
func read(s definitions.Stored) (*Defined, error) {
	d := &Defined{Version: s.Version, ETag: s.ETag, Overrides: map[string]Override{}}
	if err := json.Unmarshal([]byte(s.Definition), &d.Definition); err != nil {
		return nil, err
	}
	for field, value := range s.More {
		subject, ok := strings.CutPrefix(field, prefixOverride)
		if !ok {
			continue
		}
		o := Override{ETag: store.ETag([]byte(value))}
		if err := json.Unmarshal([]byte(value), &o.Override); err != nil {
			return nil, err
		}
		d.Overrides[subject] = o
	}
	return d, nil
}

// version is the one of d, as the scripts want it.
func version(d *Defined) string { return strconv.FormatInt(d.Version, 10) }

// Show gives a limit as it is stored now. Errors: forbidden, limit_not_found, and those of a command.
func (l *Limits) Show(ctx context.Context, id *acl.Identity, name string) (*Defined, error) {
	if err := may(id, commandShow, name); err != nil {
		return nil, err
	}
	return l.defined.Load(ctx, id, commandShow, name)
}

// Define stores a limit, which must be valid. Errors: forbidden, precondition_failed, and those of a command.
func (l *Limits) Define(ctx context.Context, id *acl.Identity, name string, def ratelimit.Definition, cond store.Condition) (*Defined, error) {
	if err := may(id, commandDefine, name); err != nil {
		return nil, err
	}
	if err := def.Validate(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(def)
	if err != nil {
		return nil, store.NewError(store.CodeInternal, "").WithCause(err)
	}
	return l.defined.Define(ctx, id, name, string(text), cond)
}

// Delete removes a limit and its overrides. Errors: forbidden, limit_not_found, precondition_failed, and those of a command.
func (l *Limits) Delete(ctx context.Context, id *acl.Identity, name string, cond store.Condition) error {
	if err := may(id, commandDefine, name); err != nil {
		return err
	}
	return l.defined.Delete(ctx, id, name, cond)
}

// may says whether the caller may do what a row of the command table stands for, with a limit of this name. Errors: forbidden, validation_failed.
func may(id *acl.Identity, command, name string) error {
	if err := store.Allow(id, command); err != nil {
		return err
	}
	return ratelimit.CheckName(name)
}
