package tokens

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"
)

// Trusted is an outside issuer whose tokens are accepted. Each names an app that exists; it speaks for the app as a key would.
type Trusted struct {
	Name             string // in logs
	Realm            Realm
	JWKSFile         string   // where its public keys are, or
	JWKSURL          string   // https, or http on loopback
	Algorithms       []string // of OutsideAlgorithms; a key is used with one of them alone
	AppClaim         string   // "" = DefaultAppClaim
	PermissionsClaim string   // narrows the app's permissions, and a token without it may do nothing; "" = all the app's
}

// Validate says what is wrong with the issuer's settings in themselves.
func (t *Trusted) Validate() error {
	switch {
	case t.Realm.Issuer == "" || t.Realm.Audience == "":
		return errors.New("an outside issuer needs issuer and audience")
	case (t.JWKSFile == "") == (t.JWKSURL == ""):
		return errors.New("an outside issuer needs a file or a URL of its keys, and not both")
	case len(t.Algorithms) == 0:
		return errors.New("an outside issuer needs an algorithm")
	}
	for _, a := range t.Algorithms {
		if !knownAlgorithm(a) {
			return fmt.Errorf("tokens of outside issuers are not signed with %q", a)
		}
	}
	if t.JWKSURL != "" {
		return CheckJWKSURL(t.JWKSURL)
	}
	return nil
}

// When keys are read again.
const (
	usualBeat    = time.Second      // a file
	refreshEvery = 10 * time.Minute // a URL
	unknownEvery = time.Minute      // a URL, when a token names a key that is not known: whoever sends such tokens must not make us call
	firstRetry   = 5 * time.Second  // a URL that failed, doubled each time
	longestRetry = time.Minute
	fetchTimeout = 5 * time.Second
)

// outside is an issuer and its keys of the moment.
type outside struct {
	cfg    Trusted
	log    *slog.Logger
	now    func() time.Time
	source source
	keys   atomic.Pointer[map[string]*verifyKey] // by id; the last good set
	wanted atomic.Bool                           // a token named a key that is not known

	// Of run alone.
	text   []byte // of the last good set
	tried  time.Time
	failed int    // times in a row
	fault  string // logged last
}

// source is where keys are read.
type source interface {
	read(ctx context.Context) ([]byte, error)
}

func newOutside(cfg Trusted, log *slog.Logger, now func() time.Time) (*outside, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("issuer %s: %w", cfg.Name, err)
	}
	if cfg.AppClaim == "" {
		cfg.AppClaim = DefaultAppClaim
	}
	o := &outside{cfg: cfg, log: log.With("issuer", cfg.Name), now: now}
	o.keys.Store(&map[string]*verifyKey{})
	if cfg.JWKSURL != "" {
		o.source = newRemote(cfg.JWKSURL)
		return o, nil
	}
	o.source = localFile(cfg.JWKSFile)
	if err := o.load(context.Background()); err != nil {
		return nil, fmt.Errorf("issuer %s: reading its keys: %w", cfg.Name, err)
	}
	return o, nil
}

// key looks an id up. It never waits: who comes with a key that was published a moment ago is refused once, and let in when it was fetched.
func (o *outside) key(id string) *verifyKey {
	k := (*o.keys.Load())[id]
	if k == nil {
		o.wanted.Store(true)
	}
	return k
}

func (o *outside) read(c *claims, g *grant) error {
	app, _, err := c.text(o.cfg.AppClaim)
	if err != nil {
		return Malformed
	}
	if app == "" {
		return UnknownCaller
	}
	g.app = app
	if o.cfg.PermissionsClaim == "" {
		return nil
	}
	list, _, err := c.words(o.cfg.PermissionsClaim)
	if err != nil {
		return Malformed
	}
	g.narrow(list)
	return nil
}

// run reads the keys again whenever that is due.
func (o *outside) run(ctx context.Context, beat time.Duration) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		if o.due(o.now()) {
			o.try(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (o *outside) due(now time.Time) bool {
	since := now.Sub(o.tried)
	switch {
	case o.tried.IsZero(), o.cfg.JWKSFile != "", since < 0: // the clock was set back
		return true
	case o.failed > 0:
		return since >= min(firstRetry<<min(o.failed-1, 10), longestRetry)
	case o.wanted.Load():
		return since >= unknownEvery
	}
	return since >= refreshEvery
}

func (o *outside) try(ctx context.Context) {
	o.tried = o.now()
	o.wanted.Store(false)
	err := o.load(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		o.failed++
		if text := err.Error(); text != o.fault {
			o.fault = text
			o.log.ErrorContext(ctx, "the keys of an issuer of tokens cannot be read; the last good ones stay in use", "error", err, "keys", len(*o.keys.Load()))
		}
	default:
		o.failed, o.fault = 0, ""
	}
}

// load reads the set and puts it into use if it is good.
func (o *outside) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	text, err := o.source.read(ctx)
	if err != nil {
		return err
	}
	if bytes.Equal(text, o.text) {
		return nil
	}
	parsed, bad, err := parseJWKS(text, o.cfg.Algorithms)
	if err != nil {
		return err
	}
	o.use(parsed)
	o.text = text
	o.log.InfoContext(ctx, "the keys of an issuer of tokens were read", "keys", len(parsed), "passed_over", errors.Join(bad...))
	return nil
}

// use replaces the keys. One that stays what it was stays the same, so that tokens verified with it need not be verified again; one that
// is gone takes its tokens along.
func (o *outside) use(parsed []parsedKey) {
	was := *o.keys.Load()
	now := make(map[string]*verifyKey, len(parsed))
	for _, p := range parsed {
		if old := was[p.id]; old != nil && old.algorithm == p.algorithm && reflect.DeepEqual(old.value, p.public) {
			now[p.id] = old
			continue
		}
		now[p.id] = newVerifyKey(p.algorithm, p.public, o.cfg.Realm, o.now)
	}
	o.keys.Store(&now)
	for id, old := range was {
		if now[id] != old {
			old.withdrawn.Store(true)
		}
	}
}
