package localcluster

import (
	"slices"
	"strconv"
	"strings"
)

// keysOf returns the keys in a command's arguments (without its name). Only commands that miniredis has are known; most have
// one key, in the first place.
func keysOf(command string, args []string) []string {
	switch command {
	case "AUTH", "CLIENT", "CLUSTER", "COMMAND", "DBSIZE", "DISCARD", "ECHO", "EXEC", "FLUSHALL", "FLUSHDB", "HELLO", "INFO",
		"KEYS", "MULTI", "PING", "PSUBSCRIBE", "PUBLISH", "PUBSUB", "PUNSUBSCRIBE", "QUIT", "RANDOMKEY", "SCAN", "SCRIPT", "SELECT",
		"SUBSCRIBE", "SWAPDB", "TIME", "UNSUBSCRIBE", "UNWATCH", "WAIT", "READONLY", "READWRITE", "ASKING", "CONFIG", "FUNCTION",
		"ACL", "SLOWLOG", "LATENCY", "DEBUG", "ROLE", "SHUTDOWN":
		return nil
	case "DEL", "UNLINK", "EXISTS", "TOUCH", "MGET", "WATCH", "PFCOUNT", "PFMERGE", "SDIFF", "SDIFFSTORE", "SINTER", "SINTERSTORE",
		"SUNION", "SUNIONSTORE":
		return args
	case "MSET", "MSETNX":
		return everyOther(args)
	case "RENAME", "RENAMENX", "COPY", "SMOVE", "LMOVE", "BLMOVE", "RPOPLPUSH", "BRPOPLPUSH", "GEOSEARCHSTORE":
		return args[:min(2, len(args))]
	case "BLPOP", "BRPOP", "BZPOPMAX", "BZPOPMIN":
		return args[:max(0, len(args)-1)]
	case "BITOP", "OBJECT", "MEMORY", "XGROUP", "XINFO":
		return second(command, args)
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "BLMPOP", "BZMPOP":
		return counted(args, 1)
	case "SINTERCARD", "LMPOP", "ZMPOP", "ZINTER", "ZUNION", "ZDIFF":
		return counted(args, 0)
	case "ZINTERSTORE", "ZUNIONSTORE":
		return append(counted(args, 1), args[:min(1, len(args))]...)
	case "XREAD", "XREADGROUP":
		i := slices.IndexFunc(args, func(a string) bool { return strings.EqualFold(a, "STREAMS") })
		return args[i+1:][:(len(args)-i-1)/2]
	}
	return args[:min(1, len(args))]
}

// second returns the keys of commands whose first argument is an operation.
func second(command string, args []string) []string {
	switch {
	case len(args) < 2 || command == "MEMORY" && !strings.EqualFold(args[0], "USAGE"):
		return nil
	case command == "BITOP":
		return args[1:]
	}
	return args[1:2]
}

// counted returns the keys that follow their number. A wrong number is left to the command itself.
func counted(args []string, at int) []string {
	if at >= len(args) {
		return nil
	}
	n, err := strconv.Atoi(args[at])
	if err != nil || n < 0 || n > len(args)-at-1 {
		return nil
	}
	return slices.Clone(args[at+1 : at+1+n])
}

func everyOther(args []string) []string {
	var keys []string
	for i := 0; i < len(args); i += 2 {
		keys = append(keys, args[i])
	}
	return keys
}
