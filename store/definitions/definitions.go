// Package definitions keeps what apps define, such as rate limits and pools, and lets every gateway follow it.
//
// It promises that a definition is stored once, beside the state it is about; that every gateway follows a change within Fresh, and never goes
// back to an older one; and that what is known holds while its shard does not answer.
//
// It refuses to keep a definition nobody has asked for, and to guess one: one that this gateway has never seen is an error while its shard
// is down. What a definition means is not its business.
package definitions

import (
	"context"
	"embed"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
)

const (
	// Fresh is how long a definition is believed without a question to Redis. The question costs one round trip per definition, gateway
	// and second, and is answered with the version alone while nothing has changed.
	Fresh = time.Second
	// maxKnown is how many definitions of a kind a gateway keeps in mind, some KB each.
	maxKnown = 10_000
)

// Runner runs a script on keys of one slot; *store.Store does.
type Runner interface {
	RunScript(ctx context.Context, id *acl.Identity, command string, script *store.Script, keys []string, argv ...any) ([]any, error)
}

// Kind is what is defined. All but With, First, Asking and Answered must be given.
type Kind[T any] struct {
	What    string     // one of them in a sentence, such as "rate limit"
	None    store.Code // of the error where there is none
	Command string     // the row of the command table that edits need
	// Hash is the key of a definition.
	Hash func(id *acl.Identity, name string) string
	// With are keys of the same slot that end with a definition; the first of them begins with it, as First. nil = there are none.
	With  func(id *acl.Identity, name string) []string
	First string
	// Read makes of what is stored what is kept, which is never changed after. Its error is a definition that cannot be read.
	Read func(Stored) (*T, error)
	// Asking is called before a question to Redis, once in Fresh for each definition in use; nil = nothing is done.
	Asking func(now time.Time)
	// Answered is called when one was answered; nil = nothing is done.
	Answered func(id *acl.Identity, d *T)
}

// Stored is what is stored of a definition.
type Stored struct {
	Version    int64  // grows with each change, of Definition and of More
	ETag       string // of Definition
	Definition string
	More       map[string]string // other fields of the hash
}

// Config is what Definitions need to know.
type Config[T any] struct {
	Kind[T]
	Redis Runner
	Wait  time.Duration // how long who knows an older version waits for the answer to a question
	Now   func() time.Time
	Log   *slog.Logger // of panics in a question
}

// Definitions are those of a kind, of all apps. They are safe for concurrent use.
type Definitions[T any] struct {
	Config[T]
	asking singleflight.Group

	mu        sync.Mutex
	known     map[string]*known[T]   // by cluster, namespace and name
	questions map[string][]*question // that are under way, by the same
}

// New makes Definitions that know nothing yet.
func New[T any](cfg Config[T]) *Definitions[T] {
	return &Definitions[T]{Config: cfg, known: map[string]*known[T]{}, questions: map[string][]*question{}}
}

// known is a definition as this gateway knows it.
type known[T any] struct {
	value   *T
	version int64
	etag    string
	asked   time.Time // when Redis was asked last
}

// CacheKey tells a definition from those of all apps.
func CacheKey(id *acl.Identity, name string) string {
	return id.App.Cluster + " " + id.App.Namespace + "/" + name
}

func (d *Definitions[T]) errNone() error { return store.NewError(d.None, "there is no such "+d.What) }

//go:embed scripts/*.lua
var scriptFiles embed.FS

var (
	scriptLoad   = loadScript("load")
	scriptDefine = loadScript("define")
	scriptDelete = loadScript("delete")
)

func loadScript(name string) *store.Script {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic("definitions: no script " + name)
	}
	return store.NewScript(string(text))
}

// Status is the first part of a script's reply; of a reply that has none it is nothing a script returns.
func Status(reply []any) int64 {
	if len(reply) > 0 {
		if n, ok := reply[0].(int64); ok {
			return n
		}
	}
	return -1
}
