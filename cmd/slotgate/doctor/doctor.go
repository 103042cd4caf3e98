// Package doctor looks at Redis Clusters and at the machine it runs on, and says what is wrong and what to do about it. It only reads: no
// command it sends changes anything, and no file is written.
package doctor

import "fmt"

// Status is how bad a finding is.
type Status string

// The grades. Warn is what costs speed or safety, Fail what costs answers.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// A Finding is the result of one check.
type Finding struct {
	Where  string `json:"where"` // host, or the name of a cluster with perhaps the address of a node
	Check  string `json:"check"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Do     string `json:"do,omitempty"` // what to do about it
	// Unreachable says of a Fail that nobody answered at all.
	Unreachable bool `json:"unreachable,omitempty"`
}

func ok(where, check, format string, args ...any) Finding {
	return Finding{Where: where, Check: check, Status: OK, Detail: fmt.Sprintf(format, args...)}
}

func warn(where, check, do, format string, args ...any) Finding {
	return Finding{Where: where, Check: check, Status: Warn, Do: do, Detail: fmt.Sprintf(format, args...)}
}

func fail(where, check, do, format string, args ...any) Finding {
	return Finding{Where: where, Check: check, Status: Fail, Do: do, Detail: fmt.Sprintf(format, args...)}
}
