package acl_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a clock that stands still until it is moved.
type clock struct{ at atomic.Pointer[time.Time] }

func newClock() *clock {
	c := &clock{}
	c.set(acltest.Start)
	return c
}

func (c *clock) now() time.Time   { return *c.at.Load() }
func (c *clock) set(at time.Time) { c.at.Store(&at) }

// fake is a storage of function fields and a set.
type fake struct {
	mu      sync.Mutex
	set     *acl.Set
	err     error
	loads   int
	watch   func(ctx context.Context, changed func()) error
	touched []map[string]time.Time
}

func (f *fake) Load(context.Context) (*acl.Set, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loads++
	return f.set, f.err
}

func (f *fake) put(set *acl.Set, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set, f.err = set, err
}

func (f *fake) loaded() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loads
}

func (f *fake) Watch(ctx context.Context, changed func()) error {
	if f.watch != nil {
		return f.watch(ctx, changed)
	}
	<-ctx.Done()
	return nil
}

func (f *fake) Apply(context.Context, acl.Change) error { return acl.ErrReadOnly }

func (f *fake) Touch(_ context.Context, used map[string]time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.touched = append(f.touched, used)
	return f.err
}

// app is a valid app but for what change does to it.
func app(id string, change func(*acl.App)) *acl.App {
	a := acl.App{ID: id, Namespace: id, Permissions: []string{"strings:*"}}.WithDefaults()
	if change != nil {
		change(&a)
	}
	return &a
}

func key(t testing.TB, app string, change func(*acl.Key)) (token string, k *acl.Key) {
	t.Helper()
	token, k, err := acl.NewKey(acltest.Secret(t), app, acltest.Start, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(k)
	}
	return token, k
}

func setOf(version string, apps []*acl.App, keys ...*acl.Key) *acl.Set {
	s := &acl.Set{Version: version, Apps: map[string]*acl.App{}, Keys: map[string]*acl.Key{}}
	for _, a := range apps {
		s.Apps[a.ID] = a
	}
	for _, k := range keys {
		s.Keys[k.ID] = k
	}
	return s
}

func newDirectory(t testing.TB, s acl.Storage, c *clock, log *slog.Logger) *acl.Directory {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return acl.NewDirectory(s, acltest.Secret(t), acl.Defaults{
		Sizes:            acl.Sizes{KeyMaxBytes: 1024, ValueMaxBytes: 1 << 20, RequestMaxBytes: 8 << 20, ResponseMaxBytes: 16 << 20},
		CompressMinBytes: 512,
	}, log, c.now)
}

// logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), s)
}

// faultFields lists the fields an error complains about.
func faultFields(err error) []string {
	var fields []string
	var one *acl.Fault
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			fields = append(fields, faultFields(err)...)
		}
	} else if errors.As(err, &one) {
		fields = append(fields, one.Field)
	}
	return fields
}
