package tokens

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/alive"
)

// VerifierConfig is what a Verifier needs.
type VerifierConfig struct {
	Directory *acl.Directory // required: whose keys and apps tokens speak for
	Realm     Realm          // of the gateways' own tokens
	Keys      *Keys          // required
	Trusted   []Trusted      // outside issuers; their names (Realm.Issuer) differ from each other and from ours
	Beat      time.Duration  // how often it is looked whether keys are to be read again; 0 = each second
	Log       *slog.Logger   // nil = none
	Now       func() time.Time
}

// A Verifier finds out who calls, by app key or by token. It may be used by any number of goroutines.
type Verifier struct {
	directory *acl.Directory
	realms    map[string]realm // by issuer
	outside   []*outside
	beat      time.Duration
	cache     *cache
	now       func() time.Time
}

// A realm is an issuer whose tokens are accepted.
type realm interface {
	// key finds the key with an id, nil when there is none.
	key(id string) *verifyKey
	// read fills a grant from the claims of a token that was verified.
	read(c *claims, g *grant) error
}

// NewVerifier reads the key files of the outside issuers, and fails when one is bad. Those with a URL are asked by Run; until then their
// tokens are refused.
func NewVerifier(cfg VerifierConfig) (*Verifier, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	v := &Verifier{directory: cfg.Directory, cache: newCache(), beat: cfg.Beat, now: cfg.Now}
	if v.beat <= 0 {
		v.beat = usualBeat
	}
	own := &own{keys: map[string]*verifyKey{}}
	for id, public := range cfg.Keys.public {
		own.keys[id] = newVerifyKey(cfg.Keys.algorithm.Alg(), public, cfg.Realm, cfg.Now)
	}
	v.realms = map[string]realm{cfg.Realm.Issuer: own}
	for _, trusted := range cfg.Trusted {
		if _, twice := v.realms[trusted.Realm.Issuer]; twice {
			return nil, fmt.Errorf("two issuers of tokens are called %q", trusted.Realm.Issuer)
		}
		o, err := newOutside(trusted, cfg.Log, cfg.Now)
		if err != nil {
			return nil, err
		}
		v.outside = append(v.outside, o)
		v.realms[trusted.Realm.Issuer] = o
	}
	return v, nil
}

// Run keeps the keys of the outside issuers up to date until ctx ends, and returns nil when everything it started has ended.
func (v *Verifier) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, o := range v.outside {
		wg.Go(func() {
			alive.Loop(ctx, o.log, "reading the keys of an issuer", func(ctx context.Context) { o.run(ctx, v.beat) })
		})
	}
	<-ctx.Done()
	wg.Wait()
	return nil
}

// keyPrefix begins every app key and no token: a token is base64url of a JSON object.
const keyPrefix = "sg_"

// Authenticate finds whose app key or token this is; the errors are those of acl.Directory.Authenticate, and a token that opens nothing
// is a Refusal. What a token may do is worked out anew whenever its key or app has changed.
func (v *Verifier) Authenticate(token string) (*acl.Identity, error) {
	if strings.HasPrefix(token, keyPrefix) {
		return v.directory.Authenticate(token)
	}
	now := v.now()
	if g := v.cache.find(token); g != nil {
		if !now.Before(g.until) {
			return nil, Expired
		}
		return g.identity(v.directory, now)
	}
	if strings.Count(token, ".") != 2 {
		return v.directory.Authenticate(token)
	}
	g, err := v.verify(token)
	if err != nil {
		return nil, err
	}
	v.cache.put(g)
	return g.identity(v.directory, now)
}

// verify reads a token that was not seen before.
func (v *Verifier) verify(token string) (*grant, error) {
	hint, err := peek(token)
	if err != nil {
		return nil, err
	}
	realm := v.realms[hint.issuer]
	if realm == nil {
		return nil, UnknownIssuer
	}
	key := realm.key(hint.key)
	if key == nil {
		return nil, UnknownKey
	}
	var c claims
	if _, err := key.parser.ParseWithClaims(token, &c, key.public); err != nil {
		return nil, refusalOf(err)
	}
	expires, err := c.GetExpirationTime()
	if err != nil || expires == nil {
		return nil, Malformed
	}
	id, _, err := c.text("jti")
	if err != nil {
		return nil, Malformed
	}
	g := &grant{
		token: strings.Clone(token), // the header it is a part of may be longer
		key:   key,
		until: expires.Add(leeway),
		jwt:   acl.JWT{ID: id, Issuer: hint.issuer, ExpiresAt: expires.UTC()},
	}
	if err := realm.read(&c, g); err != nil {
		return nil, err
	}
	return g, nil
}

// A verifyKey is a public key that knows its issuer and its algorithm, the only one it verifies.
type verifyKey struct {
	algorithm string
	value     any
	parser    *jwt.Parser
	withdrawn atomic.Bool // its issuer does not name it any more
}

func newVerifyKey(algorithm string, value any, r Realm, now func() time.Time) *verifyKey {
	return &verifyKey{algorithm: algorithm, value: value, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{algorithm}),
		jwt.WithIssuer(r.Issuer),
		jwt.WithAudience(r.Audience),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithLeeway(leeway),
		jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(now),
	)}
}

// public is the parser's Keyfunc.
func (k *verifyKey) public(*jwt.Token) (any, error) { return k.value, nil }

// own are the gateways' own tokens.
type own struct{ keys map[string]*verifyKey }

func (o *own) key(id string) *verifyKey { return o.keys[id] }

func (o *own) read(c *claims, g *grant) error {
	app, _, err1 := c.text("sub")
	key, _, err2 := c.text(claimKey)
	list, listed, err3 := c.texts(claimPermissions)
	if err1 != nil || err2 != nil || err3 != nil || app == "" || key == "" || !listed {
		return Malformed
	}
	g.app, g.keyID = app, key
	g.narrow(list)
	return nil
}

// A grant is a token that was verified.
type grant struct {
	token       string
	key         *verifyKey
	until       time.Time // its expiry and the leeway
	app         string
	keyID       string          // "" = of an outside issuer
	narrowed    bool            // by permissions
	permissions acl.Permissions // what the token says
	jwt         acl.JWT

	last atomic.Pointer[derived]
}

// derived is what a grant came to the last time it was asked.
type derived struct{ from, to *acl.Identity }

// narrow takes the permissions a token lists. Those that are not known, such as the other words of an OAuth scope, grant nothing.
func (g *grant) narrow(list []string) {
	g.narrowed = true
	g.permissions, _ = acl.CompilePermissions(list)
}

// identity is what the token may do now. Its key or app is looked up every time, so that a token ends with it; the rest is remembered
// as long as those stay what they are.
func (g *grant) identity(d *acl.Directory, now time.Time) (*acl.Identity, error) {
	from, err := g.caller(d, now)
	if err != nil {
		return nil, err
	}
	if last := g.last.Load(); last != nil && last.from == from {
		return last.to, nil
	}
	to := *from
	to.JWT = &g.jwt
	if g.narrowed {
		to.Permissions = from.Permissions.Intersect(g.permissions)
	}
	g.last.Store(&derived{from, &to})
	return &to, nil
}

func (g *grant) caller(d *acl.Directory, now time.Time) (id *acl.Identity, err error) {
	if g.keyID == "" {
		id, err = d.ByApp(g.app, now)
	} else {
		id, err = d.ByKey(g.keyID, now)
	}
	if err == acl.ErrUnauthenticated || err == nil && id.App.ID != g.app { //nolint:errorlint // the directory returns the value itself
		return nil, UnknownCaller
	}
	return id, err
}
