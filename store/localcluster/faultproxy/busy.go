package faultproxy

import (
	"slices"
	"time"
)

// weightless are the commands that cost nothing in Busy: with them connections are set up and nodes are watched, and a server that is only
// busy must not look like one that is dead.
var weightless = []string{
	"ASKING", "AUTH", "CLIENT", "CLUSTER", "COMMAND", "ECHO", "HELLO", "INFO", "PING", "QUIT", "READONLY", "READWRITE", "SELECT",
}

// busy is a server that does one command after the other.
type busy struct {
	each time.Duration // 0: commands take no time
	free time.Time     // when all commands that have come so far are done
	done int           // commands that took time
}

// Busy makes every command take so long, one after the other over all connections in the order of their arrival, as with a server of one
// thread: whatever is offered, no more than a second's worth is answered in a second, and the rest waits. Each command of a pipeline is one;
// those of connections that have been closed meanwhile are worked off as well. PING, CLUSTER and what sets connections up take no time. A new
// figure holds for the commands that come from then on; 0 ends it, and answers at once what still waits.
//
// A command reaches the server at once, and its reply is what is held back until its turn is over. Turns are reckoned, not slept through, so
// that the rate is exact even where a machine wakes up late.
func (p *Proxy) Busy(each time.Duration) {
	p.change(func() {
		if p.busy.each = each; each == 0 {
			p.busy.free = time.Time{}
		}
	})
}

// Done returns how many commands have taken their time in Busy, or still do.
func (p *Proxy) Done() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy.done
}

// turn gives a command its turn and returns when that is over; zero: at once.
func (p *Proxy) turn(command string, now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy.each == 0 || slices.Contains(weightless, command) {
		return time.Time{}
	}
	if p.busy.free.Before(now) {
		p.busy.free = now
	}
	p.busy.free = p.busy.free.Add(p.busy.each)
	p.busy.done++
	return p.busy.free
}

// exactly is how long before its time a reply is waited for without a timer, which could come too late.
const exactly = 2 * time.Millisecond

// awaitTurn returns when a turn is over or none are taken any more, or false when done is closed first.
func (p *Proxy) awaitTurn(due time.Time, done <-chan struct{}) bool {
	for {
		p.mu.Lock()
		idle, changed := p.busy.each == 0, p.changed
		p.mu.Unlock()
		wait := time.Until(due)
		if idle || wait <= 0 {
			return true
		}
		if wait <= exactly {
			sleepExactly(wait)
			continue
		}
		select {
		case <-time.After(wait - exactly):
		case <-changed:
		case <-done:
			return false
		}
	}
}
