package store

import "github.com/redis/go-redis/v9"

// The command below is sent at most once by go-redis: it follows MOVED and ASK, which were not executed, and nothing
// else. go-redis v9.23.0 asks NoRetry() before it repeats a command, and before it re-sends a pipeline that contains
// one; without this an INCR is applied up to four times (redis/go-redis#2339).

// onceCmd is a command of any reply type, sent at most once.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }
