package middleware

import (
	"log/slog"
	"net/netip"
	"slices"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/trace"
)

// Config is everything the guards need. Shared parts are made by the caller, because others look at them too.
type Config struct {
	Log           *slog.Logger   // required
	Authenticator Authenticator  // required
	Metrics       *Metrics       // required
	Limiter       *Limiter       // required
	BytesInFlight *BytesInFlight // required; at least the largest request any app may send
	Drain         *Drain         // required
	Overload      *Overload      // nil = every request has a place
	Clock         Clock          // nil = time.Now
	Tracer        trace.Tracer   // nil = no spans
	// Reads says which routes change nothing although their method would; nil = none does.
	Reads func(route string) bool
	// Classes says what routes do, for limits of a class of commands; nil = no limit of a class concerns any.
	Classes Classes

	AccessLog      LogConfig
	Throttle       ThrottleConfig
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed; empty = nobody's
	Deadline       DeadlineConfig
	Live           *Live // what changes AccessLog and Deadline later; nil = nothing does
}

// Chain builds the guards in their order: global for the engine, before any route, and v1 for the group that needs a key.
//
//	RequestID → (Trace) → SecurityHeaders → Events (log, metrics) → Drain → Errors → Recover → PathGuard
//	v1: Authenticate → Metrics.App → (Shed) → ServerTiming → RateLimit → Body → Deadline
//
// Whatever fails, the event sees it, the renderer writes it, and nothing is read or sent for a caller who is not known.
func Chain(cfg Config) (global, v1 []gin.HandlerFunc) {
	m, live := cfg.Metrics, cfg.Live
	if live == nil {
		live = &Live{}
	}
	live.Set(Settings{AccessLog: cfg.AccessLog, Deadline: cfg.Deadline})
	global = []gin.HandlerFunc{
		RequestID(cfg.Clock),
		SecurityHeaders(),
		Events(cfg.Clock, Log(cfg.Log, live), m.Record),
		cfg.Drain.Handler(),
		Errors(nil, cfg.Reads),
		Recover(cfg.Log, m.Panicked),
		PathGuard(),
	}
	if cfg.Tracer != nil {
		global = slices.Insert(global, 1, Trace(cfg.Tracer, cfg.Clock)) // outside Events, behind the request's id
	}
	v1 = []gin.HandlerFunc{
		Authenticate(cfg.Authenticator, AuthConfig{
			Throttle:       NewThrottle(cfg.Throttle, cfg.Clock),
			TrustedProxies: cfg.TrustedProxies,
			Failed:         m.AuthFailed,
		}),
		m.App(),
		ServerTiming(cfg.Clock),
		RateLimit(cfg.Limiter, cfg.Classes, m.quotas()),
		Body(cfg.BytesInFlight),
		Deadline(live, cfg.Clock),
	}
	if cfg.Overload != nil {
		v1 = slices.Insert(v1, 2, Shed(cfg.Overload, live, m.shed)) // before anything is taken or read for the request
	}
	return global, v1
}
