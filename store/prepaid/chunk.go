package prepaid

// chunks are the ages of the tokens that are held: those of the last draw, and what was left of those before, which are used first.
type chunks struct {
	oldUntil int64 // when the older die
	oldTaken int64 // how many tokens are taken in all (demand.taken) when the older are used up
	newUntil int64
}

// drawn says that tokens came which die at until; of those before left remain, taken being demand.taken.
func (c *chunks) drawn(until, left, taken int64) {
	switch {
	case left <= 0:
		c.oldUntil, c.oldTaken = 0, 0
	case taken >= c.oldTaken: // the older are used up; those that were new are the older now
		c.oldUntil, c.oldTaken = c.newUntil, taken+left
	default: // three ages, which does not happen while draws wait until half is used: all but the last count as the oldest
		c.oldTaken = taken + left
	}
	c.newUntil = until
}

// dead is how many of left tokens have died.
func (c *chunks) dead(now, left, taken int64) int64 {
	switch {
	case left <= 0:
		return 0
	case now >= c.newUntil:
		return left
	case now >= c.oldUntil:
		return min(max(c.oldTaken-taken, 0), left)
	}
	return 0
}

// until is when the next of them die.
func (c *chunks) until(now, taken int64) int64 {
	if taken < c.oldTaken && now < c.oldUntil {
		return c.oldUntil
	}
	return c.newUntil
}
