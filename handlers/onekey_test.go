package handlers_test

import (
	"fmt"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// deed is what a client asks of one key.
type deed struct {
	kind  string // get, put, delete, append, add
	value string // written, appended or added
	match string // not empty: only over this value
	fresh bool   // only if there is none
	batch bool   // as a batch of one, where there is such
	bound bool   // add with a lower bound
	hurry bool   // with a short deadline
}

// seen is what it was told.
type seen struct {
	code string // ok, unknown, not_applied, or the code of a refusal
	text string // the value read, the length or the sum
}

// register is what a key holds.
type register struct {
	held bool
	text string
}

// oneKey is how a key behaves that has one user only.
var oneKey = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, input, output any) (bool, any) {
		after, told := state.(register).after(input.(deed))
		out := output.(seen)
		return out.code == "unknown" || out == told, after
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(deed), output.(seen)
		return fmt.Sprintf("%s %s (match %q, fresh %v) → %s %s", in.kind, in.value, in.match, in.fresh, out.code, out.text)
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
}

// after is what a deed makes of a register, and what its client must be told.
func (r register) after(in deed) (register, seen) {
	ok := seen{code: "ok"}
	if in.match != "" && (!r.held || r.text != in.match) || in.fresh && r.held {
		return r, seen{code: "precondition_failed"}
	}
	switch in.kind {
	case "get", "delete":
		if !r.held {
			return r, seen{code: "key_not_found"}
		}
		if in.kind == "delete" {
			return register{}, ok
		}
		return r, seen{code: "ok", text: r.text}
	case "put":
		return register{true, in.value}, ok
	case "append":
		r = register{true, r.text + in.value}
		return r, seen{code: "ok", text: strconv.Itoa(len(r.text))}
	case "add":
		return r.plus(in.value)
	}
	panic("no such deed: " + in.kind)
}

func (r register) plus(delta string) (register, seen) {
	n := int64(0)
	if r.held {
		var err error
		if n, err = strconv.ParseInt(r.text, 10, 64); err != nil {
			return r, seen{code: "not_a_number"}
		}
	}
	d, err := strconv.ParseInt(delta, 10, 64)
	if err != nil {
		panic(err)
	}
	if n+d < n {
		return r, seen{code: "out_of_range"}
	}
	sum := strconv.FormatInt(n+d, 10)
	return register{true, sum}, seen{code: "ok", text: sum}
}
