package acl

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	// MaxLimits bounds the limits of one app, because each of them costs every request.
	MaxLimits   = 10
	maxPeriodMS = 24 * 60 * 60 * 1000
)

// The words of a Limit. Where one is empty it has the default: the first of its group.
const (
	PerApp = "app" // all keys of the app together
	PerKey = "key" // each key for itself; callers with tokens of outside issuers, who have no key, are one together

	OfRequests    = "requests"    // a batch counts each of its items
	OfBytes       = "bytes"       // of bodies: the request's and the answer's
	OfConcurrency = "concurrency" // requests under way at once, in each gateway by itself; it has no period

	TokenBucket   = "token_bucket"
	FixedWindow   = "fixed_window"
	SlidingWindow = "sliding_window"

	Prepaid = "prepaid" // gateways draw chunks ahead from what they share
	Exact   = "exact"   // each request asks the cluster
	Alone   = "local"   // each gateway has the whole number for itself

	ErrorLocal  = "local"  // while the cluster does not answer each gateway gives its part
	ErrorOpen   = "open"   // everything passes then
	ErrorClosed = "closed" // nothing does
)

// A Limit caps one thing over a period. The number is the app's total, or that of each of its keys, through all gateways. Whatever reads
// limits must skip those that are not Known, because a newer gateway beside this one may have stored them.
type Limit struct {
	ID  string `json:"id" yaml:"id"`
	Per string `json:"per" yaml:"per"`
	Of  string `json:"of" yaml:"of"`
	// Class counts only requests of one class of commands, as permissions name them: strings, strings:read, *:write. Empty: all.
	Class string `json:"class,omitempty" yaml:"class,omitempty"`
	// Route counts only requests of one route, by its template as the metrics name it: /v1/strings/:key. Empty: all.
	Route     string `json:"route,omitempty" yaml:"route,omitempty"`
	Limit     int64  `json:"limit" yaml:"limit"`
	PeriodMS  int64  `json:"period_ms" yaml:"period_ms,omitempty"`   // 0 for concurrency, which has none
	Burst     int64  `json:"burst,omitempty" yaml:"burst,omitempty"` // of a token bucket; 0 means Limit
	Algorithm string `json:"algorithm,omitempty" yaml:"algorithm,omitempty"`
	Mode      string `json:"mode,omitempty" yaml:"mode,omitempty"`
	OnError   string `json:"on_error,omitempty" yaml:"on_error,omitempty"`
}

// words are what a field of a limit may say; the first is what it says when it is empty, unless it must not be.
type words []string

var (
	perWords       = words{PerApp, PerKey}
	ofWords        = words{OfRequests, OfBytes, OfConcurrency}
	algorithmWords = words{TokenBucket, FixedWindow, SlidingWindow}
	modeWords      = words{Prepaid, Exact, Alone}
	onErrorWords   = words{ErrorLocal, ErrorOpen, ErrorClosed}
)

// routePattern is a template of the API: segments are names or :parameters.
var routePattern = regexp.MustCompile(`^/v1(/(:?[a-z0-9_-]+))+$`)

// Known says whether this version enforces the limit: it knows all its words.
func (l Limit) Known() bool {
	var f faults
	l.validateWords(&f, "")
	return len(f) == 0
}

// EffectiveBurst is how much may come at once.
func (l Limit) EffectiveBurst() int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Limit
}

// EffectiveAlgorithm is the algorithm with its default.
func (l Limit) EffectiveAlgorithm() string { return orFirst(l.Algorithm, algorithmWords) }

// EffectiveMode is the mode with its default.
func (l Limit) EffectiveMode() string { return orFirst(l.Mode, modeWords) }

// EffectiveOnError is what happens while the cluster does not answer, with its default.
func (l Limit) EffectiveOnError() string { return orFirst(l.OnError, onErrorWords) }

func orFirst(word string, all words) string {
	if word == "" {
		return all[0]
	}
	return word
}

// Concerns is which requests the limit counts by their class: 0 is any class, or any access. ok is false for a class that there is not.
func (l Limit) Concerns() (class Class, access Access, ok bool) {
	name, kind, given := strings.Cut(l.Class, ":")
	switch {
	case l.Class == "":
		return 0, 0, true
	case !given || kind == "*":
	case kind == Read.String():
		access = Read
	case kind == Write.String():
		access = Write
	default:
		return 0, 0, false
	}
	if name == "*" {
		return 0, access, access != 0 // of everything is what leaving it out says
	}
	class, err := ParseClass(name)
	return class, access, err == nil
}

func validateLimits(f *faults, limits []Limit) {
	if len(limits) > MaxLimits {
		f.add("limits", "has %d limits; use at most %d", len(limits), MaxLimits)
		return
	}
	seen := map[string]bool{}
	for i, l := range limits {
		field := fmt.Sprintf("limits[%d].", i)
		l.validate(f, field)
		if seen[l.ID] {
			f.add(field+"id", "%q is used twice; give each limit an id of its own", l.ID)
		}
		seen[l.ID] = true
	}
}

// Validate reports every fault of one limit, each a *Fault of a field.
func (l Limit) Validate() error {
	var f faults
	l.validate(&f, "")
	return f.join()
}

func (l Limit) validate(f *faults, field string) {
	if !limitPattern.MatchString(l.ID) {
		f.add(field+"id", "%q is not a limit id; use 1 to 63 of a-z, 0-9, _ and -, such as app-rps", l.ID)
	}
	l.validateWords(f, field)
	if l.Limit < 1 || l.Limit > maxExact {
		f.add(field+"limit", "%d must be 1 to %d", l.Limit, int64(maxExact))
	}
	if l.Of == OfConcurrency {
		l.validateConcurrency(f, field)
		return
	}
	if l.PeriodMS < 1 || l.PeriodMS > maxPeriodMS {
		f.add(field+"period_ms", "%d must be 1 to %d milliseconds (a day)", l.PeriodMS, maxPeriodMS)
	}
	switch {
	case l.Burst < 0 || l.Burst > maxExact:
		f.add(field+"burst", "%d must be 1 to %d, or 0 for as much as limit", l.Burst, int64(maxExact))
	case l.Burst > 0 && l.EffectiveAlgorithm() != TokenBucket:
		f.add(field+"burst", "belongs to a token_bucket; a window has its limit at once, leave it out")
	}
	if l.Mode == Alone && l.EffectiveAlgorithm() != TokenBucket {
		f.add(field+"algorithm", "%q belongs to limits that gateways share; with mode local only token_bucket is left", l.Algorithm)
	}
	if l.OnError != "" && l.Mode == Alone {
		f.add(field+"on_error", "belongs to limits that gateways share; with mode local leave it out")
	}
}

// validateConcurrency refuses what would be taken for more than a number of requests at once.
func (l Limit) validateConcurrency(f *faults, field string) {
	if l.PeriodMS != 0 {
		f.add(field+"period_ms", "belongs to requests and bytes; concurrency has no period, leave it out")
	}
	if l.Burst != 0 {
		f.add(field+"burst", "belongs to requests and bytes; leave it out")
	}
	for _, part := range []struct{ name, value string }{{"algorithm", l.Algorithm}, {"mode", l.Mode}, {"on_error", l.OnError}} {
		if part.value != "" {
			f.add(field+part.name, "belongs to requests and bytes; each gateway counts its own concurrency, leave it out")
		}
	}
}

func (l Limit) validateWords(f *faults, field string) {
	switch l.Per {
	case "total", "cluster":
		f.add(field+"per", "%q is for operators, in the configuration (ceilings); use app or key", l.Per)
	default:
		perWords.check(f, field+"per", l.Per)
	}
	ofWords.check(f, field+"of", l.Of)
	if _, _, ok := l.Concerns(); !ok {
		f.add(field+"class", "%q is not a class of commands; use one such as strings, hashes:write or *:read, or leave it out", l.Class)
	}
	if l.Route != "" && !routePattern.MatchString(l.Route) {
		f.add(field+"route", "%q is not the template of a route; use one such as /v1/mget or /v1/strings/:key, or leave it out", l.Route)
	}
	algorithmWords.checkGiven(f, field+"algorithm", l.Algorithm)
	modeWords.checkGiven(f, field+"mode", l.Mode)
	onErrorWords.checkGiven(f, field+"on_error", l.OnError)
}

func (w words) checkGiven(f *faults, field, word string) {
	if word != "" {
		w.check(f, field, word)
	}
}

func (w words) check(f *faults, field, word string) {
	if !slices.Contains(w, word) {
		last := len(w) - 1
		f.add(field, "%q must be %s or %s", word, strings.Join(w[:last], ", "), w[last])
	}
}
