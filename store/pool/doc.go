// Package pool says which member of a pool is next: of proxies, workers, accounts or whatever callers share.
//
// It promises:
//
//   - A choice is one atomic step in Redis, for all gateways together, and is sent once. With an Idempotency-Key its repetition has the
//     first answer and chooses nothing.
//   - A pool that has nobody to offer answers so, with the reason, and nothing is written.
//   - The same calls give the same sequence: least_used, round_robin and weighted_round_robin draw nothing, and what
//     weighted_random and adaptive draw is drawn in the gateway.
//   - Time is that of the Redis node alone.
//   - A lease is held until it is completed or expires; then its member is free again, and who comes late is told.
//   - A pool's policy can be changed at any time: all that policies need is kept for each.
//
// It refuses: keys that callers choose (the hash tag is the gateway's), to know more of a member than callers report, and exclusive use. A choice says who
// is next, not that nobody else has the same one. After a failover counts and leases may be those of a moment before, as replication is
// asynchronous; the fence of a lease grows all the same, and whoever protects a resource by it compares.
//
// Scripts look at all members of a pool where there are 64 at most. Of more, gateways compute what would block Redis longer with each member. For
// weighted_round_robin that is a schedule, in Redis, of which each allocation takes the next turn: the same sequence, but that who is excluded
// keeps its turn, where a small pool goes on as if it were not there; and if all are excluded whose turn is near, while others take turns all the
// time, one is drawn by weight. For weighted_random and adaptive it is what they draw, by what was read
// within the last 200 ms, and a script that refuses whoever may not be chosen any more: what others have given to a pool may be seen that much
// later, what they have taken is seen at once.
//
// Where definitions are stored is not its business: they come with each call.
package pool
