package metric

import (
	"fmt"
	"math"
)

const (
	// schema is the resolution of the native buckets: 2^4 to a doubling, each 4.4 % wider than the one before. Wherever in its bucket a
	// percentile lies, it is off by no more than that; the next coarser schema (a factor of 1.1, which grows by 9 %) promises only 9 %.
	schema    = 4
	perOctave = 1 << schema
)

// A layout is the buckets of a kind of histogram. Each cell is a part of one native and of one classic bucket, so that one counter
// serves both and they agree at every moment.
type layout struct {
	bounds  []float64 // upper ends of the classic buckets
	minExp  int       // 2^minExp and less is the native zero bucket
	octaves int       // up to 2^(minExp+octaves); what is larger counts into the last bucket
	// splits has the classic bound that lies inside of each native bucket, or +Inf.
	splits []float64
}

var (
	// 1 us to 69 minutes: no answer comes sooner, no setting allows longer. The classic bounds begin where Redis' answers do: HTTP's usual
	// ones begin at 5 ms, where a healthy Redis has long answered.
	durations = newLayout(-20, 12, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5)
	// 1 byte to 1 GiB, the largest body that can be allowed.
	sizes = newLayout(-1, 30, 64, 256, 1<<10, 4<<10, 16<<10, 64<<10, 256<<10, 1<<20, 4<<20, 16<<20)
)

// upper are the upper ends of the native buckets of the octave from 0.5 to 1, but for the last, which is 1.
var upper = func() (ends [perOctave]float64) {
	for i := range ends {
		ends[i] = math.Exp2(float64(i+1)/perOctave - 1)
	}
	return ends
}()

func newLayout(minExp, maxExp int, bounds ...float64) *layout {
	l := &layout{bounds: bounds, minExp: minExp, octaves: maxExp - minExp}
	l.splits = make([]float64, l.octaves*perOctave)
	for i := range l.splits {
		l.splits[i] = math.Inf(1)
	}
	for _, b := range bounds {
		slot := l.slot(b)
		if !math.IsInf(l.splits[slot], 1) || b <= l.zero() {
			panic(fmt.Sprintf("metric: the classic bound %v does not fit the native buckets", b))
		}
		l.splits[slot] = b
	}
	return l
}

// zero is the upper end of the native zero bucket.
func (l *layout) zero() float64 { return math.Ldexp(1, l.minExp) }

// slot is the number of the native bucket of v, from 0 for the one above the zero bucket; v must be above zero.
func (l *layout) slot(v float64) int {
	bits := math.Float64bits(v)
	octave := int(bits>>52) - 1023 - l.minExp // 2^(minExp+octave) <= v
	fraction := math.Float64frombits(bits&(1<<52-1) | 1022<<52)
	if fraction == 0.5 { // a power of two belongs to the bucket below
		octave, fraction = octave-1, 1
	}
	if octave >= l.octaves {
		return len(l.splits) - 1
	}
	i := 0 // how many ends are below the fraction
	for half := perOctave / 2; half > 0; half /= 2 {
		if upper[i+half-1] < fraction {
			i += half
		}
	}
	return octave*perOctave + i
}

// key is the index that Prometheus gives to the bucket of a slot: its upper end is 2^(key/16).
func (l *layout) key(slot int) int { return l.minExp*perOctave + slot + 1 }
