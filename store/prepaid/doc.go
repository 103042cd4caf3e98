// Package prepaid keeps limits that all gateways share, at the price of a few nanoseconds for most requests: a gateway draws tokens from the
// limit in Redis ahead, and spends them in memory.
//
// It promises:
//
//   - Over any window of its period a limit lets through what package ratelimit's rule does, plus at most Slack of the limit: what all
//     gateways together hold unspent, or have spent on credit, at any moment. Two gateways that start, or a wrong number of gateways, can
//     make it more; see Config.Gateways. So can a gateway that dies: what it owed, half its share at most, nobody pays. The clocks of gateways need
//     not agree with each other, nor with Redis. A limit too small to be split so finely is decided by Redis, take by take, and never more.
//   - Tokens that were drawn and not used die after a second, or at the end of the window they were drawn in, and are given back.
//   - A request waits for Redis at most Config.Timeout, and after Redis has not answered, or late, nobody waits for a while: Limit.OnError says what
//     is answered then. Redis is asked on, and what it answers late is used: it pays for what was let through meanwhile.
//   - What a gateway lets through by itself, OnError being local, does not come on top of what Redis gives in the same time. What Redis grants is
//     taken from the gateway's own part too, and what that gives is owed to Redis. One gateway lets through, however often the two take turns, what
//     the rule does, Slack, and while answers are late a twentieth of the limit, once. Several that are cut off at different times know less of each
//     other: those that are cut off have their parts beside what the others get.
//   - A limit may change at any time; a refusal is remembered for a second at most.
//   - Memory is bounded: what nobody has used for a minute is forgotten, and owes nothing.
//
// It refuses: to know requests, apps or HTTP. A limit is a rule and a name.
//
// How the bound comes about: an Allowance has a position, what it was given minus what it let through. It is positive while it holds tokens and
// negative while it has spent some on credit. Takes, draws and refunds keep it between -credit and hold, whose distance is at most the
// gateway's share of Slack. What was let through between two moments is what Redis gave between them, plus the position at the first, minus
// that at the second: never more than the rule allows and the share.
package prepaid
