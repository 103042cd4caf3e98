package adaptive

import (
	"sync"
	"sync/atomic"
)

// party is an app in one class of a limiter. It exists once the app has come while half of the places of its class were taken, and is
// forgotten some time after it was seen last.
//
// The fair share of an app is the places of its class, without those that more important classes hold, divided by the apps of the class
// that were seen in this window or the one before. An app over its share gets a place while the class has not filled its places. One
// that stays within its share gets it even then, up to twice the places. So what an app holds within its share cannot be taken by others:
// those over their shares stop at the places P of the class, all that is held within shares is at most A * P/A more, and that is
// 2 P. While apps come anew, or the limit falls, the sum may pass that for the time of one answer; then even they are refused.
//
// Places that were taken while less than half was taken are not counted for their apps, to cost nothing in peace. That can make a
// share look larger and what an app holds look smaller, for the time of one answer: it never has an app refused.
type party struct {
	held  atomic.Int64
	epoch atomic.Uint32 // the window in which it was seen last
}

// shares are the apps of one class.
type shares struct {
	active atomic.Int64 // apps seen in this window
	before atomic.Int64 // and in the one before
	apps   sync.Map     // id -> *party
}

// party is the app's, seen now.
func (s *shares) party(app string, epoch uint32) *party {
	v, ok := s.apps.Load(app)
	if !ok {
		v, _ = s.apps.LoadOrStore(app, new(party))
	}
	p := v.(*party)
	if seen := p.epoch.Load(); seen != epoch && p.epoch.CompareAndSwap(seen, epoch) {
		s.active.Add(1)
	}
	return p
}

// within says whether the app may have weight more of the places although its class has filled them.
func (s *shares) within(p *party, places, weight float64) bool {
	apps := max(s.active.Load(), s.before.Load())
	return apps > 1 && float64(p.held.Load())+weight <= places/float64(apps) // alone, there is nobody to share with
}

// turn begins another window.
func (s *shares) turn() {
	s.before.Store(s.active.Swap(0))
}

// forgetAfter is how many windows an app is kept that has not come: some seconds.
const forgetAfter = 100

// forget drops the apps that have not come for long. One that comes meanwhile and is dropped is made anew; what it holds is given back
// to the old one.
func (s *shares) forget(epoch uint32) {
	s.apps.Range(func(app, v any) bool {
		if p := v.(*party); epoch-p.epoch.Load() > forgetAfter && p.held.Load() == 0 {
			s.apps.Delete(app)
		}
		return true
	})
}
