package prepaid

import "time"

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
	mark  int64 // the position, had nobody taken
	spent int64 // by those who waited
}

// moved says that the position was changed by something else than a take.
func (d *demand) moved(n int64) { d.mark += n }

// measure takes what has been used until now into the average.
func (d *demand) measure(now, position int64) {
	elapsed := max(float64(now-d.since), float64(time.Millisecond))
	used := max(float64(d.spent+d.mark-position), 0)
	weight := elapsed / (elapsed + float64(smooth))
	d.rate += weight * (used/elapsed - d.rate)
	d.since, d.mark, d.spent = now, position, 0
}

// target is how many tokens should be held, at most so many.
func (d *demand) target(most int64) int64 {
	return int64(min(2*d.rate*float64(ahead), float64(most)))
}
