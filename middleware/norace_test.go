//go:build !race

package middleware_test

// forgotten is how many allocations a request may have beside its own.
const forgotten = 0
