package store

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/slotgate/slotgate/store/pipe"
	"github.com/slotgate/slotgate/store/wire"
)

// verdict is what an error of go-redis tells about one command that was sent at most once (NoRetry).
// Sources: reliability table 1c of the design and go-redis v9.23.0, error.go and osscluster.go.
type verdict struct {
	code Code
	// notExecuted: Redis certainly did not run the command. False = it may have, or it did and failed without effect.
	notExecuted bool
	// again: the fault passes by itself; worth another try within the deadline.
	again bool
	// moving: a slot is changing its node. That always ends, so it is waited out until the deadline, uncounted.
	moving bool
	// reload: the topology may have changed; go-redis reloads it by itself on redirects only.
	reload bool
	// unreachable: no connection to the node could be made.
	unreachable bool
	// noEffect: Redis ran the command and refused it, changing nothing. The answer is final.
	noEffect bool
	// applied: Redis certainly ran the command.
	applied bool
	// shed: it was not sent, because the node has too much to do.
	shed   bool
	detail string
	prefix string // of Redis' error
}

// replyRule is the row for one prefix of a Redis error reply.
type replyRule struct {
	prefix string
	verdict
}

// replyRules are tried in order. Redis refuses all of these before it runs the command, except those marked noEffect,
// which are the command's own refusal.
var replyRules = []replyRule{
	{"MOVED", verdict{code: CodeClusterDown, notExecuted: true, again: true, moving: true, reload: true, detail: "the slot is moving between nodes"}},
	{"ASK", verdict{code: CodeClusterDown, notExecuted: true, again: true, moving: true, detail: "the slot is moving between nodes"}},
	{"TRYAGAIN", verdict{code: CodeClusterDown, notExecuted: true, again: true, moving: true, detail: "the slot is moving between nodes"}},
	{"CLUSTERDOWN", verdict{code: CodeClusterDown, notExecuted: true, again: true, reload: true, detail: "the cluster does not serve this slot at the moment"}},
	{"LOADING", verdict{code: CodeClusterDown, notExecuted: true, again: true, detail: "the node is loading its data"}},
	{"MASTERDOWN", verdict{code: CodeClusterDown, notExecuted: true, again: true, reload: true, detail: "the primary is down"}},
	{"READONLY", verdict{code: CodeClusterDown, notExecuted: true, again: true, reload: true, detail: "the node has become a replica"}},
	{"NOREPLICAS", verdict{code: CodeClusterDown, notExecuted: true, again: true, detail: "the primary has too few replicas to accept writes"}},
	{"ERR max number of clients", verdict{code: CodeBackendSaturated, notExecuted: true, again: true, detail: "the node accepts no more connections"}},
	{"OOM", verdict{code: CodeOutOfMemory, notExecuted: true, detail: "the node has reached its memory limit; reads and deletes still work"}},
	{"BUSY ", verdict{code: CodeClusterDown, notExecuted: true, detail: "the node is busy with a script"}},
	{"MISCONF", verdict{code: CodeClusterDown, notExecuted: true, detail: "the node refuses writes because it cannot save them"}},
	{"NOSCRIPT", verdict{code: CodeBackendError, notExecuted: true, detail: "the node lost a script while it was used"}},
	{"NOAUTH", verdict{code: CodeInternal, notExecuted: true}},
	{"NOPERM", verdict{code: CodeInternal, notExecuted: true}},
	{"WRONGPASS", verdict{code: CodeInternal, notExecuted: true}},
	{"WRONGTYPE", verdict{code: CodeWrongType, noEffect: true, detail: "the key holds a value of another type"}},
	{"ERR value is not an integer", verdict{code: CodeNotANumber, noEffect: true, detail: "the stored value is not an integer of 64 bits"}},
	{"ERR value is not a valid float", verdict{code: CodeNotANumber, noEffect: true, detail: "the stored value is not a number"}},
	{"ERR hash value is not", verdict{code: CodeNotANumber, noEffect: true, detail: "the stored value is not a number"}},
	{"ERR increment or decrement would overflow", verdict{code: CodeOutOfRange, noEffect: true, detail: "the counter would leave the range of 64 bits"}},
	{"ERR increment would produce NaN or Infinity", verdict{code: CodeOutOfRange, noEffect: true, detail: "the counter would leave the range of numbers"}},
	{"ERR string exceeds maximum allowed size", verdict{code: CodeValueTooLarge, noEffect: true, detail: "the value would be larger than Redis allows"}},
	{"CROSSSLOT", verdict{code: CodeCrossSlot, notExecuted: true, detail: "the keys are in different slots"}},
	{"ERR unknown command", verdict{code: CodeUnsupportedByCluster, notExecuted: true, detail: "the cluster's version does not know this command"}},
	{"EXECABORT", verdict{code: CodeBackendError, notExecuted: true, detail: "the transaction was refused"}},
}

// classify says what err means. err must not be nil or redis.Nil.
func classify(err error) verdict {
	if own, ok := errors.AsType[*refusal](err); ok {
		return own.verdict
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		return classifyReply(reply.Error())
	}
	return classifyTransport(err)
}

func classifyReply(text string) verdict {
	prefix, _, _ := strings.Cut(text, " ")
	for i := range replyRules {
		if strings.HasPrefix(text, replyRules[i].prefix) {
			v := replyRules[i].verdict
			v.prefix = prefix
			return v
		}
	}
	// Not in the table: it may be an error raised in the middle of a script, so nothing is certain.
	return verdict{code: CodeBackendError, prefix: prefix, detail: "Redis refused the command for a reason the gateway does not know"}
}

func classifyTransport(err error) verdict {
	var op *net.OpError
	var dial *dialError
	switch {
	case errors.Is(err, errCircuitOpen):
		return verdict{code: CodeClusterDown, notExecuted: true, reload: true, unreachable: true, detail: "the node does not answer"}
	case errors.As(err, &dial) && dial.cause == errGivenUp: //nolint:errorlint // it is the value itself
		return verdict{code: CodeBackendTimeout, notExecuted: true, again: true, reload: true, detail: "the deadline passed before the command was sent"}
	case errors.As(err, &dial):
		return verdict{code: CodeClusterDown, notExecuted: true, again: true, reload: true, unreachable: true, detail: "the node cannot be reached"}
	case errors.Is(err, pipe.ErrSaturated):
		return verdict{code: CodeBackendSaturated, notExecuted: true, detail: "too many commands are waiting for the node"}
	case errors.Is(err, pipe.ErrWithdrawn):
		return verdict{code: CodeBackendTimeout, notExecuted: true, reload: true, detail: "the deadline passed before the command was sent"}
	case errors.Is(err, pipe.ErrAbandoned):
		return verdict{code: CodeBackendTimeout, reload: true, detail: "the node did not answer in time"}
	case errors.As(err, &op) && op.Op == "dial":
		return verdict{code: CodeClusterDown, notExecuted: true, again: true, reload: true, unreachable: true, detail: "the node cannot be reached"}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return verdict{code: CodeBackendSaturated, notExecuted: true, again: true, detail: "all connections to the node are in use"}
	case errors.Is(err, redis.ErrClosed):
		return verdict{code: CodeClusterDown, notExecuted: true, again: true, reload: true, detail: "the connection to the node was closed"}
	case err == context.DeadlineExceeded, err == context.Canceled: //nolint:errorlint // only the bare ones mean "not sent"
		return verdict{code: CodeBackendTimeout, notExecuted: true, reload: true, detail: "the deadline passed before the command was sent"}
	case isTimeout(err):
		return verdict{code: CodeBackendTimeout, again: true, reload: true, detail: "the node did not answer in time"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &op):
		return verdict{code: CodeBackendTimeout, again: true, reload: true, detail: "the connection to the node broke before it answered"}
	case strings.HasPrefix(err.Error(), "redis: cluster has no nodes"):
		return verdict{code: CodeClusterDown, notExecuted: true, again: true, reload: true, detail: "the cluster has no nodes"}
	case errors.Is(err, wire.ErrProtocol):
		return verdict{code: CodeBackendError, again: true, detail: "the node sent something that is no reply, or too much of one"}
	default:
		return verdict{code: CodeBackendError, detail: "the node answered with something the gateway does not understand"}
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

// unquoted is err without the key and values that Redis quotes when it does not know a command: causes are logged.
func unquoted(err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return err
	}
	if said, _, quotes := strings.Cut(reply.Error(), ", with args beginning with"); quotes {
		return replyError(said)
	}
	return err
}

// problem makes the error that the caller sees. write says whether the command changes data.
func (v verdict) problem(write bool, cause error) *Error {
	if own, ok := cause.(*refusal); ok && own.told != nil { //nolint:errorlint // wrapped, it says more than this
		if write {
			return own.told.write
		}
		return own.told.read
	}
	e := NewError(v.code, v.detail).WithCause(unquoted(cause))
	e.RedisError = v.prefix
	status := e.Status()
	if status == 503 {
		e.RetryAfter = retryAfter
	}
	if write && status >= 500 {
		e.Outcome = Unknown
		if v.notExecuted || v.noEffect {
			e.Outcome = NotApplied
		} else if v.applied {
			e.Outcome = Applied
		}
	}
	return e
}
