//go:build race

package middleware_test

// forgotten is how many allocations a request may have beside its own: with the race detector pools forget, and gin's context is another one.
const forgotten = 1
