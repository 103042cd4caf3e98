// Package ratelimit decides rate limits in Redis: exactly, for all gateways together, several rules in one atomic step.
//
// It promises:
//
//   - A take that is refused consumes nothing, of no rule.
//   - Time is that of the Redis node alone. Clocks of clients and gateways never enter.
//   - Integers. The Go model in this package and the Lua script come to the same result, bit by bit.
//   - A definition can be edited at any time: rules travel with each take, and the state of before is read in their light.
//   - A take is sent once. With an Idempotency-Key its repetition has the first answer and takes nothing.
//
// It refuses: keys that callers choose (the hash tag is the gateway's), and rules whose numbers Lua would round.
package ratelimit
