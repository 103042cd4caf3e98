package acl

import "fmt"

const (
	// MaxLimits bounds the limits of one app, because each of them costs every request.
	MaxLimits   = 10
	maxPeriodMS = 24 * 60 * 60 * 1000
	perApp      = "app"
	ofRequests  = "requests"
)

// A Limit caps one thing over a period. The number means the app's total; until limits are shared, each gateway enforces it alone.
// Built so far is per app, of requests; whatever reads limits must skip those it does not know, because a newer gateway beside this
// one may have stored them.
type Limit struct {
	ID       string `json:"id" yaml:"id"`
	Per      string `json:"per" yaml:"per"`
	Of       string `json:"of" yaml:"of"`
	Class    string `json:"class,omitempty" yaml:"class,omitempty"`
	Route    string `json:"route,omitempty" yaml:"route,omitempty"`
	Limit    int64  `json:"limit" yaml:"limit"`
	PeriodMS int64  `json:"period_ms" yaml:"period_ms"`
	Burst    int64  `json:"burst,omitempty" yaml:"burst,omitempty"` // 0 means Limit
}

// Built says whether this version enforces the limit.
func (l Limit) Built() bool {
	return l.Per == perApp && l.Of == ofRequests && l.Class == "" && l.Route == ""
}

// EffectiveBurst is how many requests may come at once.
func (l Limit) EffectiveBurst() int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Limit
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

func (l Limit) validate(f *faults, field string) {
	if !limitPattern.MatchString(l.ID) {
		f.add(field+"id", "%q is not a limit id; use 1 to 63 of a-z, 0-9, _ and -, such as app-rps", l.ID)
	}
	l.validateKind(f, field)
	if l.Limit < 1 || l.Limit > maxExact {
		f.add(field+"limit", "%d must be 1 to %d", l.Limit, int64(maxExact))
	}
	if l.PeriodMS < 1 || l.PeriodMS > maxPeriodMS {
		f.add(field+"period_ms", "%d must be 1 to %d milliseconds (a day)", l.PeriodMS, maxPeriodMS)
	}
	if l.Burst < 0 || l.Burst > maxExact {
		f.add(field+"burst", "%d must be 1 to %d, or 0 for as much as limit", l.Burst, int64(maxExact))
	}
}

// validateKind tells what will come from what is wrong, so that nobody hunts for a misspelling in a right word.
func (l Limit) validateKind(f *faults, field string) {
	switch l.Per {
	case perApp:
	case "key", "total", "cluster":
		f.add(field+"per", "%q is not built yet; use app", l.Per)
	default:
		f.add(field+"per", "%q must be app", l.Per)
	}
	switch l.Of {
	case ofRequests:
	case "bytes", "concurrency":
		f.add(field+"of", "%q is not built yet; use requests", l.Of)
	default:
		f.add(field+"of", "%q must be requests", l.Of)
	}
	if l.Class != "" {
		f.add(field+"class", "limits of one class are not built yet; leave it out")
	}
	if l.Route != "" {
		f.add(field+"route", "limits of one route are not built yet; leave it out")
	}
}
