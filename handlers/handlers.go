// Package handlers is the HTTP resources of the gateway: each reads its request, makes one call of the store, and writes the answer.
//
// It promises that a request is understood whole or refused whole: unknown members and parameters, values out of range and conditions
// that an operation does not know are errors that name their place, never ignored, and nothing is sent to Redis before all of a
// request has been checked. Keys and values pass byte for byte. Errors are reported to gin's context and written by middleware.
//
// It refuses to know Redis, statuses of errors, metrics and logs.
package handlers

import (
	"context"
	"errors"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/acl/tokens"
	"github.com/slotgate/slotgate/openapi"
	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/limits"
	"github.com/slotgate/slotgate/store/pool"
	"github.com/slotgate/slotgate/store/pools"
	"github.com/slotgate/slotgate/store/ratelimit"
)

// DefaultMaxBatchKeys is how many keys one batch may have unless configured.
const DefaultMaxBatchKeys = 5000

// Config is what the resources need.
type Config struct {
	Store        *store.Store
	Limits       *limits.Limits              // /v1/ratelimits; nil = not served
	Pools        *pools.Pools                // /v1/pools; nil = not served
	Ready        func(context.Context) error // GET /readyz on this listener; nil = not served
	MaxBatchKeys int                         // 0 = DefaultMaxBatchKeys
	Tokens       *tokens.Issuer              // POST /v1/token and the key set; nil = not served
	Commands     acl.CommandTable            // so that whoami can tell what a key narrower than its app may do; nil = roughly
	Now          func() time.Time            // nil = time.Now; decides what is in the future
}

// API is all resources. It has no state of its own and serves any number of requests at once.
type API struct {
	store    *store.Store
	limits   *limits.Limits
	pools    *pools.Pools
	site     *openapi.Site
	ready    func(context.Context) error
	maxKeys  int
	tokens   *tokens.Issuer
	keySet   []byte // of tokens, as JSON
	commands acl.CommandTable
	now      func() time.Time
}

// New makes the resources. The identity of the caller comes with each request's context (acl.FromContext). It panics when the embedded
// document is broken, which no build that passed its tests can be.
func New(cfg Config) *API {
	site, err := openapi.New(problems())
	if err != nil {
		panic(err)
	}
	a := &API{
		site: site, store: cfg.Store, limits: cfg.Limits, pools: cfg.Pools, ready: cfg.Ready, maxKeys: cfg.MaxBatchKeys, commands: cfg.Commands,
		now: cfg.Now,
	}
	if a.maxKeys == 0 {
		a.maxKeys = DefaultMaxBatchKeys
	}
	if a.now == nil {
		a.now = time.Now
	}
	if cfg.Tokens != nil {
		a.tokens, a.keySet = cfg.Tokens, cfg.Tokens.Keys.JWKS()
	}
	return a
}

// Register adds the routes: public ones to public, those that need an identity to v1, the group at /v1. The engine must have
// UseEscapedPath set and UnescapePathValues, RedirectTrailingSlash and RedirectFixedPath off, so that a key in a path arrives as it
// was sent.
func (a *API) Register(public, v1 gin.IRouter) {
	a.registerPublic(public)

	v1.GET("/whoami", a.plain(a.whoami))
	if a.tokens != nil {
		v1.POST("/token", a.plain(a.postToken))
	}

	v1.GET("/strings/:key", a.keyed(a.getString, "encoding", "ttl_ms", "expires_at", "include", paramRead, paramStaleness))
	v1.PUT("/strings/:key", a.write(a.putString, "durability"))
	v1.DELETE("/strings/:key", a.write(a.deleteString, "return", "encoding", "durability"))
	v1.POST("/strings/:key/append", a.write(a.appendString, "durability"))
	v1.GET("/strings/:key/range", a.keyed(a.getStringRange, "start", "end", "encoding", paramRead, paramStaleness))
	v1.PUT("/strings/:key/range", a.write(a.putStringRange, "durability"))

	v1.GET("/bytes/:key", a.keyed(a.getBytes, "ttl_ms", "expires_at", paramRead, paramStaleness))
	v1.HEAD("/bytes/:key", a.keyed(a.headBytes, paramRead, paramStaleness))
	v1.PUT("/bytes/:key", a.write(a.putBytes, "ttl_ms", "expires_at", "keep_ttl", "durability"))
	v1.DELETE("/bytes/:key", a.write(a.deleteBytes, "durability"))
	v1.POST("/bytes/:key/append", a.write(a.appendBytes, "ttl_ms", "expires_at", "durability"))
	v1.PUT("/bytes/:key/range", a.write(a.putBytesRange, "offset", "durability"))

	v1.GET("/counters/:key", a.keyed(a.getCounter, "int64", paramRead, paramStaleness))
	v1.PUT("/counters/:key", a.write(a.putCounter, "int64", "durability"))
	v1.POST("/counters/:key/add", a.write(a.addCounter, "int64", "durability"))

	v1.GET("/keys", a.plain(a.listKeys, "prefix", "type", "limit", "cursor", "key_encoding"))
	v1.HEAD("/keys/:key", a.keyed(a.headKey, paramRead, paramStaleness))
	v1.GET("/keys/:key", a.keyed(a.getKey, "include", paramRead, paramStaleness))
	v1.DELETE("/keys/:key", a.write(a.deleteKey, "durability"))
	v1.PUT("/keys/:key/ttl", a.write(a.putKeyTTL, "durability"))
	v1.DELETE("/keys/:key/ttl", a.write(a.deleteKeyTTL, "durability"))

	v1.POST("/mget", a.plain(a.mget, paramRead, paramStaleness))
	v1.POST("/mset", a.plain(a.mset, "durability"))
	v1.POST("/mdelete", a.plain(a.mdelete, "durability"))
	v1.POST("/mexists", a.plain(a.mexists, paramRead, paramStaleness))
	if a.limits != nil {
		a.registerRateLimits(v1)
	}
	if a.pools != nil {
		a.registerPools(v1)
	}
}

func (a *API) registerRateLimits(v1 gin.IRouter) {
	v1.GET("/ratelimits/:name", a.plain(a.getRateLimit))
	v1.PUT("/ratelimits/:name", a.plain(a.putRateLimit))
	v1.DELETE("/ratelimits/:name", a.plain(a.deleteRateLimit))
	v1.POST("/ratelimits/:name/take", a.repeatable(a.takeRateLimit, "enforce"))
	v1.POST("/ratelimits/:name/peek", a.plain(a.peekRateLimit))
	v1.POST("/ratelimits/:name/refund", a.repeatable(a.refundRateLimit))
	v1.DELETE("/ratelimits/:name/subjects/:subject", a.onName("subject", ratelimit.MaxSubject, a.resetRateLimitSubject))
	v1.GET("/ratelimits/:name/overrides/:subject", a.onName("subject", ratelimit.MaxSubject, a.getRateLimitOverride))
	v1.PUT("/ratelimits/:name/overrides/:subject", a.onName("subject", ratelimit.MaxSubject, a.putRateLimitOverride))
	v1.DELETE("/ratelimits/:name/overrides/:subject", a.onName("subject", ratelimit.MaxSubject, a.deleteRateLimitOverride))
	v1.POST("/ratelimits/take", a.plain(a.takeRateLimits))
	for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"} { // or they would be of a limit of that name
		v1.Handle(method, "/ratelimits/take", postOnly)
	}
}

func (a *API) registerPools(v1 gin.IRouter) {
	v1.GET("/pools", a.plain(a.listPools, "limit", "cursor"))
	v1.GET("/pools/:pool", a.plain(a.getPool))
	v1.PUT("/pools/:pool", a.plain(a.putPool))
	v1.PATCH("/pools/:pool", a.plain(a.patchPool))
	v1.DELETE("/pools/:pool", a.plain(a.deletePool))
	v1.POST("/pools/:pool/rebase", a.plain(a.rebasePool))
	v1.GET("/pools/:pool/members", a.plain(a.listPoolMembers, "key_encoding"))
	v1.PUT("/pools/:pool/members", a.plain(a.putPoolMembers))
	v1.GET("/pools/:pool/members/:member", a.onName("member", pool.MaxMember, a.getPoolMember))
	v1.PUT("/pools/:pool/members/:member", a.onName("member", pool.MaxMember, a.putPoolMember))
	v1.PATCH("/pools/:pool/members/:member", a.onName("member", pool.MaxMember, a.patchPoolMember))
	v1.DELETE("/pools/:pool/members/:member", a.onName("member", pool.MaxMember, a.deletePoolMember, "history"))
	v1.POST("/pools/:pool/allocations", a.repeatable(a.allocate))
	v1.POST("/pools/:pool/reports", a.plain(a.reportMembers))
	v1.GET("/pools/:pool/leases", a.plain(a.listPoolLeases, "member", "expired", "key_encoding"))
	v1.PATCH("/pools/:pool/leases/:lease", a.plain(a.renewPoolLease, "key_encoding"))
	v1.POST("/pools/:pool/leases/:lease/complete", a.repeatable(a.completePoolLease, "key_encoding"))
}

// Reads says whether the route changes nothing although its method would: the reads whose request needs a body, and the making of a token.
func Reads(route string) bool {
	switch route {
	case "/v1/mget", "/v1/mexists", "/v1/token", "/v1/ratelimits/:name/peek":
		return true
	}
	return false
}

// postOnly answers other methods where gin would ask the resource of a template.
func postOnly(c *gin.Context) {
	e := store.Error{Code: store.CodeMethodNotAllowed, Allow: "POST"}
	if name, ok := errors.AsType[*store.Error](ratelimit.CheckName("take")); ok { // who asks for it means a limit of this name
		e.Detail, e.Fields = name.Detail, name.Fields
	}
	_ = c.Error(&e)
	c.Abort()
}

// request is one request of an authenticated caller, its path and query read.
type request struct {
	*gin.Context
	ctx         context.Context // of the request, with its deadline
	id          *acl.Identity
	query       query
	key         string // of the path, decoded
	keyEncoding keyEncoding
	durability  store.Durability
	servers     *store.Served  // of a read that replicas may answer
	receipt     *store.Receipt // of a write that more is asked of than that it is done
	bad         error          // the first fault of what was read; see inputs.go
	fields      *fields        // of the answer
	idempotent  *idempotent    // nil = no Idempotency-Key
}

// operation is what a handler is here: it answers, or returns an error having written nothing.
type operation func(request) error

// plain makes a handler of an operation without a key in its path. known are the query parameters it takes.
func (a *API) plain(op operation, known ...string) gin.HandlerFunc {
	return func(c *gin.Context) {
		r, err := newRequest(c, known)
		if err == nil {
			err = r.refuseIdempotencyKey()
		}
		if err == nil {
			err = op(r)
		}
		report(c, err)
	}
}

// write makes a handler of an operation that writes the key in its path.
func (a *API) write(op operation, known ...string) gin.HandlerFunc {
	return a.onKey(func(r request) error {
		if lines := r.Request.Header[idempotencyHeader]; len(lines) > 0 {
			return r.once(lines, op)
		}
		return op(r)
	}, known)
}

// keyed makes a handler of any other operation on the key in its path.
func (a *API) keyed(op operation, known ...string) gin.HandlerFunc {
	return a.onKey(func(r request) error {
		if err := r.refuseIdempotencyKey(); err != nil {
			return err
		}
		return op(r)
	}, known)
}

func (a *API) onKey(op operation, known []string) gin.HandlerFunc {
	known = append(known, "key_encoding")
	return func(c *gin.Context) {
		r, err := newRequest(c, known)
		if err == nil {
			r.key, err = pathKey(c.Param("key"), r.keyEncoding, r.id.Sizes.KeyMaxBytes)
		}
		if err == nil {
			err = op(r)
		}
		report(c, err)
	}
}

// repeatable makes a handler of an operation on what the app has defined that takes an Idempotency-Key.
func (a *API) repeatable(op operation, known ...string) gin.HandlerFunc {
	return func(c *gin.Context) {
		r, err := newRequest(c, known)
		if err == nil {
			r.key = names(c.Params) // a part of the fingerprint
			if lines := r.Request.Header[idempotencyHeader]; len(lines) > 0 {
				err = r.once(lines, op)
			} else {
				err = op(r)
			}
		}
		report(c, err)
	}
}

// names are what a path says beside its template. A slash is in none of them.
func names(all gin.Params) string {
	text := ""
	for i, p := range all {
		if i > 0 {
			text += "/"
		}
		text += p.Value
	}
	return text
}

// onName makes a handler of an operation on something with a name of any bytes, such as a subject, which is the key of the request.
func (a *API) onName(param string, maxBytes int64, op operation, known ...string) gin.HandlerFunc {
	known = append(known, "key_encoding")
	return func(c *gin.Context) {
		r, err := newRequest(c, known)
		if err == nil {
			err = r.refuseIdempotencyKey()
		}
		if err == nil {
			r.key, err = pathName(param, c.Param(param), r.keyEncoding, maxBytes)
		}
		if err == nil {
			err = op(r)
		}
		report(c, err)
	}
}

func newRequest(c *gin.Context, known []string) (request, error) {
	r := request{Context: c, ctx: c.Request.Context()}
	if r.id = acl.FromContext(r.ctx); r.id == nil {
		return r, store.NewError(store.CodeInternal, "").WithCause(errors.New("handlers: no identity in the context"))
	}
	var err error
	if r.query, err = parseQuery(c.Request.URL.RawQuery, known); err != nil {
		return r, err
	}
	if r.durability, err = r.query.durability(r.id.App); err != nil {
		return r, err
	}
	r.keyEncoding, err = r.query.keyEncoding()
	return r, err
}

// report hands an error to middleware, which writes it.
func report(c *gin.Context, err error) {
	if err != nil {
		_ = c.Error(err)
		c.Abort()
	}
}

// done answers without a body.
func (r *request) done(status int) error {
	r.delivered()
	r.Status(status)
	r.Writer.WriteHeaderNow()
	return nil
}

// reply begins the answer.
func (r *request) reply() *reply {
	r.delivered()
	return newReply(r.Writer)
}

// answer sends the reply and gives its buffer back. What the reply was made of is not referred to any more.
func (r *request) answer(j *reply) error {
	r.finish(j)
	j.release()
	return nil
}

// finish writes what there is of the reply, and in one piece if it is the whole.
func (r *request) finish(j *reply) {
	j.send(r.own())
}

// tag gives the answer the ETag of a value, and returns it.
func (r *request) tag(data []byte) string { return r.own().setTag(r.Writer.Header(), data) }

func (r *request) own() *fields {
	if r.fields == nil {
		r.fields = new(fields)
	}
	return r.fields
}
