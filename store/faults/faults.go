// Package faults collects what is wrong with what a caller has sent, field by field, so that one answer tells all of it.
package faults

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slotgate/slotgate/store"
)

// List is what is wrong, as the fields of one error. The zero value is that nothing is.
type List []store.FieldError

// Add notes a fault at a place, such as /rules/0/limit.
func (f *List) Add(pointer, format string, args ...any) {
	*f = append(*f, store.FieldError{Pointer: pointer, Code: string(store.CodeValidationFailed), Detail: fmt.Sprintf(format, args...)})
}

// Problem is validation_failed with all faults, nil if there are none.
func (f List) Problem() error {
	if len(f) == 0 {
		return nil
	}
	return &store.Error{Code: store.CodeValidationFailed, Detail: f[0].Detail, Fields: f}
}

// Between finds a number wrong that is not least to most.
func (f *List) Between(pointer string, n, least, most int64) {
	if n < least || n > most {
		f.Add(pointer, "is %d; give %d to %d", n, least, most)
	}
}

// Only finds a field wrong that is given and belongs to something else.
func (f *List) Only(pointer string, given bool, of string) {
	if given {
		f.Add(pointer, "belongs to %s only; leave it out", of)
	}
}

// Choose fills in the first of all for an empty word, and finds others than these wrong.
func Choose[T ~string](f *List, pointer string, word *T, all ...T) {
	if *word == "" {
		*word = all[0]
	}
	if slices.Contains(all, *word) {
		return
	}
	names := make([]string, len(all))
	for i, a := range all {
		names[i] = string(a)
	}
	f.Add(pointer, "%.40q is unknown; use %s", string(*word), strings.Join(names, ", "))
}
