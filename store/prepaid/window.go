package prepaid

import (
	"math"

	"github.com/slotgate/slotgate/store/ratelimit"
)

// window is a fixed window of Redis as this gateway counts it. When it ends is not known but for the time that a question took: what is taken meanwhile
// counts in both windows, so that in none more is taken than counted, whatever the truth is.
type window struct {
	used, recent  int64 // in this window; of that, since it may have ended
	sooner, later int64 // when it ends; 0 = nothing is known
	known         bool  // by Redis; before, it is a guess
}

// roll begins another window if this one is over.
func (w *window) roll(t *terms, now int64) {
	switch {
	case now < w.later:
	case w.later == 0 || t.Rule.Align == ratelimit.AlignFirstHit:
		*w = window{sooner: now + t.period, later: now + t.period}
	default:
		over := (now-w.later)/t.period + 1
		if w.used = w.recent; over > 1 {
			w.used = 0
		}
		w.sooner, w.later, w.recent = w.sooner+over*t.period, w.later+over*t.period, 0
		if now >= w.sooner {
			w.recent = w.used
		}
	}
}

func (w *window) take(now, n int64) {
	w.used += n
	if now >= w.sooner {
		w.recent += n
	}
}

func (w *window) giveBack(n int64) {
	w.used = max(w.used-n, 0)
	w.recent = min(w.recent, w.used)
}

// heard takes in that a window ends between sooner and later, unless that says little.
func (w *window) heard(t *terms, now, sooner, later int64) {
	w.roll(t, now)
	if later-sooner > t.period/2 {
		return
	}
	if w.known && t.Rule.Align != ratelimit.AlignFirstHit {
		shift := int64(math.Round(float64(sooner+later-w.sooner-w.later)/2/float64(t.period))) * t.period
		sooner, later = sooner-shift, later-shift
		if s, l := max(sooner, w.sooner), min(later, w.later); s <= l { // both are right
			w.sooner, w.later = s, l
			w.roll(t, now)
			return
		}
	}
	w.known, w.sooner, w.later = true, sooner, later
	if w.recent = 0; now >= sooner {
		w.recent = w.used
	}
	w.roll(t, now)
}
