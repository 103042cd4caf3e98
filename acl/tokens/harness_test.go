package tokens_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/acltest"
	"github.com/slotgate/slotgate/acl/tokens"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock stands still until it is moved, and counts how often it is looked at.
type clock struct {
	at    atomic.Pointer[time.Time]
	looks atomic.Int64
}

func newClock() *clock {
	c := &clock{}
	c.set(acltest.Start)
	return c
}

func (c *clock) now() time.Time {
	c.looks.Add(1)
	return *c.at.Load()
}

func (c *clock) set(at time.Time)        { c.at.Store(&at) }
func (c *clock) advance(d time.Duration) { c.set(c.now().Add(d)) }

// memory is a storage that holds what the test puts in.
type memory struct {
	mu  sync.Mutex
	set *acl.Set
}

func (m *memory) Load(context.Context) (*acl.Set, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.set, nil
}
func (m *memory) Watch(ctx context.Context, _ func()) error         { <-ctx.Done(); return nil }
func (m *memory) Apply(context.Context, acl.Change) error           { return acl.ErrReadOnly }
func (m *memory) Touch(context.Context, map[string]time.Time) error { return nil }

// world is a directory with an app "shop" and a key of it, and what makes and verifies its tokens.
type world struct {
	clock     *clock
	storage   *memory
	directory *acl.Directory
	issuer    *tokens.Issuer
	verifier  *tokens.Verifier
	key       string // the app key
	app       acl.App
	keyEntry  acl.Key
	versions  int
}

var realm = tokens.Realm{Issuer: "slotgate", Audience: "slotgate"}

// commands is a table of a few commands.
func commands(name string) (acl.Class, acl.Access, bool) {
	switch name {
	case "GET":
		return acl.Strings, acl.Read, true
	case "SET":
		return acl.Strings, acl.Write, true
	case "ZADD":
		return acl.ZSets, acl.Write, true
	}
	return 0, 0, false
}

func newWorld(t testing.TB, trusted ...tokens.Trusted) *world {
	t.Helper()
	return newWorldWith(t, tokens.EdDSA, nil, trusted...)
}

func newWorldWith(t testing.TB, algorithm string, older []acl.Secret, trusted ...tokens.Trusted) *world {
	t.Helper()
	w := &world{clock: newClock(), storage: &memory{}}
	w.app = acl.App{ID: "shop", Namespace: "shop", Permissions: []string{"strings:*", "keys:read", "commands:ZADD"}}.WithDefaults()
	token, key, err := acl.NewKey(acltest.Secret(t), "shop", acltest.Start, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.key, w.keyEntry = token, *key
	w.directory = acl.NewDirectory(w.storage, acltest.Secret(t), acl.Defaults{}, slog.New(slog.DiscardHandler), w.clock.now)
	w.reload(t, nil)
	keys, err := tokens.DeriveKeys(algorithm, acltest.Secret(t), older...)
	if err != nil {
		t.Fatal(err)
	}
	w.issuer = &tokens.Issuer{Realm: realm, Keys: keys, Commands: commands, Now: w.clock.now}
	w.verifier, err = tokens.NewVerifier(tokens.VerifierConfig{
		Directory: w.directory, Realm: realm, Keys: keys, Trusted: trusted, Beat: 5 * time.Millisecond, Now: w.clock.now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// reload changes what is stored, and lets the directory see it.
func (w *world) reload(t testing.TB, change func(app *acl.App, key *acl.Key)) {
	t.Helper()
	if change != nil {
		change(&w.app, &w.keyEntry)
	}
	app, key := w.app, w.keyEntry
	w.versions++
	set := &acl.Set{Version: string(rune('a' + w.versions)), Apps: map[string]*acl.App{}, Keys: map[string]*acl.Key{}}
	if app.ID != "" {
		set.Apps[app.ID] = &app
	}
	if key.ID != "" {
		set.Keys[key.ID] = &key
	}
	w.storage.mu.Lock()
	w.storage.set = set
	w.storage.mu.Unlock()
	if err := w.directory.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (w *world) identity(t testing.TB) *acl.Identity {
	t.Helper()
	id, err := w.directory.Authenticate(w.key)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// issue makes a token for the key.
func (w *world) issue(t testing.TB, permissions ...string) tokens.Issued {
	t.Helper()
	made, err := w.issuer.Issue(w.identity(t), tokens.DefaultTTL, permissions)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// opens fails unless the token is accepted, and gives whose it is.
func (w *world) opens(t testing.TB, token string) *acl.Identity {
	t.Helper()
	id, err := w.verifier.Authenticate(token)
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	return id
}

// refused fails unless the token is refused for this reason, as one who is not authenticated.
func (w *world) refused(t testing.TB, token string, reason tokens.Refusal) {
	t.Helper()
	id, err := w.verifier.Authenticate(token)
	if id != nil || !errors.Is(err, acl.ErrUnauthenticated) {
		t.Errorf("%v, %v, want a refusal", id, err)
	}
	if !errors.Is(err, reason) {
		t.Errorf("%v, want %s", err, reason)
	}
}

// claimsOf reads the payload of a token.
func claimsOf(t testing.TB, token string) jwt.MapClaims {
	t.Helper()
	return part(t, token, 1)
}

func part(t testing.TB, token string, i int) map[string]any {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[i])
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// gatewayKey is the private key of the gateways, as somebody who has the secret would derive it.
func gatewayKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	return ed25519.NewKeyFromSeed(acltest.Secret(t).Sub(acl.LabelJWTEdDSA))
}

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// raw signs header and payload as they are written.
func raw(t testing.TB, key ed25519.PrivateKey, header, payload string) string {
	t.Helper()
	text := encode(header) + "." + encode(payload)
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
}
