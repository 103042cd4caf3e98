package prepaid

import (
	"math"
	"time"
)

const (
	// ahead is how long what is held shall last, twice: a draw takes a fraction of it.
	ahead = 100 * time.Millisecond
	// smooth is the time over which demand is averaged.
	smooth = 100 * time.Millisecond
)

// demand is how fast an allowance is used. It costs takes nothing: it is measured by what a position has lost.
type demand struct {
	rate  float64 // tokens in a ns
	since int64
	mark  int64 // the position, had nobody taken since
	spent int64 // by those who waited
	total int64 // taken from the position until since
}

// moved says that the position was changed by something else than a take.
func (d *demand) moved(n int64) { d.mark += n }

// taken is how many tokens were ever taken from the position, which is p now.
func (d *demand) taken(p int64) int64 { return d.total + d.mark - p }

// measure takes what has been used until now into the average.
func (d *demand) measure(now, p int64) {
	elapsed := max(float64(now-d.since), float64(time.Millisecond))
	used := max(float64(d.spent+d.mark-p), 0)
	weight := 1 - math.Exp(-elapsed/float64(smooth))
	d.rate += weight * (used/elapsed - d.rate)
	d.total = d.taken(p)
	d.since, d.mark, d.spent = now, p, 0
}

// target is how many tokens should be held, at most so many.
func (d *demand) target(most int64) int64 {
	return int64(min(2*d.rate*float64(ahead), float64(most)))
}
