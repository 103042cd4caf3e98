// Package store is everything Redis: it turns the operations of the gateway into commands on a Redis Cluster, for one
// caller at a time, and says of every write whether it was applied.
//
// It promises:
//
//   - Isolation. Every key a caller names is prefixed with the namespace of its app, at the positions that the command
//     table gives, and stripped again from what is returned. No method takes an unprefixed key.
//   - Permission once. Every method asks the command table whether the caller may run the command, before anything is
//     sent; a command without a row cannot be built.
//   - Writes are sent once. Each command that changes data carries NoRetry, so that go-redis never repeats it; this
//     package alone sends again, and only what Redis certainly did not execute. Reads are also repeated on broken
//     connections and timeouts.
//   - Honest outcomes. A failed write returns an *Error whose Outcome is applied, not_applied or unknown.
//   - Values come back as they went in. Large strings are stored compressed in an envelope (envelope.go); values of
//     other clients are read as they are.
//
// It refuses: atomicity across slots, Redis error text in an answer, and commands outside the table.
//
// Deadlines come with the context of a call; a method returns by its deadline, and a call without one may wait as long
// as the timeouts of the connection pool and the retries add up to.
package store
