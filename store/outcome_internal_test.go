package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestClassify is table 1c of the reliability page: what each error says about a write, and about repeating it.
func TestClassify(t *testing.T) {
	op := func(name string, err error) error { return &net.OpError{Op: name, Net: "tcp", Err: err} }
	for _, c := range []struct {
		name        string
		err         error
		code        Code
		outcome     Outcome
		repeatWrite bool
		repeatRead  bool
	}{
		{"MOVED", replyError("MOVED 7470 10.30.28.237:6379"), CodeClusterDown, NotApplied, true, true},
		{"ASK", replyError("ASK 7470 10.30.28.237:6379"), CodeClusterDown, NotApplied, true, true},
		{"TRYAGAIN", replyError("TRYAGAIN Multiple keys request during rehashing of slot"), CodeClusterDown, NotApplied, true, true},
		{"CLUSTERDOWN", replyError("CLUSTERDOWN Hash slot not served"), CodeClusterDown, NotApplied, true, true},
		{"LOADING", replyError("LOADING Redis is loading the dataset in memory"), CodeClusterDown, NotApplied, true, true},
		{"MASTERDOWN", replyError("MASTERDOWN Link with MASTER is down"), CodeClusterDown, NotApplied, true, true},
		{"READONLY", replyError("READONLY You can't write against a read only replica."), CodeClusterDown, NotApplied, true, true},
		{"NOREPLICAS", replyError("NOREPLICAS Not enough good replicas to write."), CodeClusterDown, NotApplied, true, true},
		{"max clients", replyError("ERR max number of clients reached"), CodeBackendSaturated, NotApplied, true, true},
		{"OOM", replyError("OOM command not allowed when used memory > 'maxmemory'."), CodeOutOfMemory, NotApplied, false, false},
		{"BUSY", replyError("BUSY Redis is busy running a script."), CodeClusterDown, NotApplied, false, false},
		{"MISCONF", replyError("MISCONF Redis is configured to save RDB snapshots"), CodeClusterDown, NotApplied, false, false},
		{"NOAUTH", replyError("NOAUTH Authentication required."), CodeInternal, NotApplied, false, false},
		{"NOPERM", replyError("NOPERM this user has no permissions"), CodeInternal, NotApplied, false, false},
		{"WRONGTYPE", replyError("WRONGTYPE Operation against a key"), CodeWrongType, NoOutcome, false, false},
		{"not an integer", replyError("ERR value is not an integer or out of range"), CodeNotANumber, NoOutcome, false, false},
		{"not an integer, in a script", replyError("ERR value is not an integer or out of range script: 1f, on @user_script:3."), CodeNotANumber, NoOutcome, false, false},
		{"overflow", replyError("ERR increment or decrement would overflow"), CodeOutOfRange, NoOutcome, false, false},
		{"an unknown error of a script", replyError("ERR user_script:7: attempt to index a nil value"), CodeBackendError, Unknown, false, false},
		{"refused", op("dial", syscall.ECONNREFUSED), CodeClusterDown, NotApplied, true, true},
		{"dial timeout", op("dial", os.ErrDeadlineExceeded), CodeClusterDown, NotApplied, true, true},
		{"pool timeout", redis.ErrPoolTimeout, CodeBackendSaturated, NotApplied, true, true},
		{"pool exhausted", redis.ErrPoolExhausted, CodeBackendSaturated, NotApplied, true, true},
		{"closed client", redis.ErrClosed, CodeClusterDown, NotApplied, true, true},
		{"deadline before sending", context.DeadlineExceeded, CodeBackendTimeout, NotApplied, false, false},
		{"cancelled before sending", context.Canceled, CodeBackendTimeout, NotApplied, false, false},
		{"a deadline that came up inside", fmt.Errorf("reading: %w", context.DeadlineExceeded), CodeBackendTimeout, Unknown, false, true},
		{"read timeout", op("read", os.ErrDeadlineExceeded), CodeBackendTimeout, Unknown, false, true},
		{"a bare timeout", os.ErrDeadlineExceeded, CodeBackendTimeout, Unknown, false, true},
		{"reset", op("read", syscall.ECONNRESET), CodeBackendTimeout, Unknown, false, true},
		{"write error", op("write", syscall.EPIPE), CodeBackendTimeout, Unknown, false, true},
		{"EOF", io.EOF, CodeBackendTimeout, Unknown, false, true},
		{"half a reply", io.ErrUnexpectedEOF, CodeBackendTimeout, Unknown, false, true},
		{"a reply that makes no sense", errors.New("redis: can't parse reply"), CodeBackendError, Unknown, false, false},
	} {
		v := classify(c.err)
		if e := v.problem(true, c.err); e.Code != c.code || e.Outcome != c.outcome {
			t.Errorf("%s: a write is %s, %q; want %s, %q", c.name, e.Code, e.Outcome, c.code, c.outcome)
		}
		if e := v.problem(false, c.err); e.Outcome != NoOutcome {
			t.Errorf("%s: a read has the outcome %s", c.name, e.Outcome)
		}
		if v.mayRepeat(true) != c.repeatWrite || v.mayRepeat(false) != c.repeatRead {
			t.Errorf("%s: repeat write %v, read %v; want %v, %v", c.name, v.mayRepeat(true), v.mayRepeat(false), c.repeatWrite, c.repeatRead)
		}
		if v.mayRepeat(true) && !v.notExecuted {
			t.Errorf("%s: a write that may have been executed would be repeated", c.name)
		}
	}
}

// Redis quotes the arguments of a command that it does not know, and causes are logged.
func TestArgumentsThatRedisQuotesAreNoCause(t *testing.T) {
	for _, text := range []string{
		"ERR unknown command 'getex', with args beginning with: 'shop:the-key' 'EX' '10' ",
		"ERR unknown command `set`, with args beginning with: `shop:the-key`, `the-value`, ",
	} {
		cause := fmt.Errorf("sending: %w", replyError(text))
		e := classify(cause).problem(true, cause)
		said, _, _ := strings.Cut(text, ", with")
		if got := e.Error(); strings.Contains(got, "the-") || !strings.Contains(got, said) {
			t.Errorf("the cause is %q", got)
		}
		var reply redis.Error
		if e.Code != CodeUnsupportedByCluster || !errors.As(e, &reply) {
			t.Errorf("%v is no error of Redis any more", e)
		}
	}
}
