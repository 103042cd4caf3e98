package store

import "context"

// Charger takes more out of the caller's quota. Middleware charges one for every request before anything is known of it; a
// handler that has decoded a batch of n items charges the other n-1, before anything is sent.
type Charger interface {
	// Charge takes n more units, or none and returns quota_exceeded. n <= 0 takes nothing.
	Charge(n int64) error
}

type chargerKey struct{}

// WithCharger returns a context whose Charge goes to c. Middleware's own request context answers the same key without it.
func WithCharger(ctx context.Context, c Charger) context.Context {
	return context.WithValue(ctx, chargerKey{}, c)
}

// ChargerKey is the context key of the charger, for contexts that carry it as a field instead of a link.
func ChargerKey() any { return chargerKey{} }

// Recorder bounds how many records of writes with an Idempotency-Key an app leaves in Redis. They live for a day, so that without it a
// client that gives every write a key could fill the cluster.
type Recorder interface {
	// TakeRecord takes one from what the app may leave, or returns quota_exceeded.
	TakeRecord() error
	// GiveBackRecord undoes TakeRecord, when the write left no record: it was refused, or had been done before.
	GiveBackRecord()
}

type recorderKey struct{}

// RecorderKey is the context key of the Recorder of a request.
func RecorderKey() any { return recorderKey{} }

// RecorderFrom returns the Recorder of the request that ctx belongs to; nil = records are not bounded.
func RecorderFrom(ctx context.Context) Recorder {
	r, _ := ctx.Value(recorderKey{}).(Recorder)
	return r
}

// Charge takes n more units from the quota of the request ctx belongs to. It is all or nothing. Without a charger in ctx
// (no limits apply) it returns nil.
func Charge(ctx context.Context, n int64) error {
	c, _ := ctx.Value(chargerKey{}).(Charger)
	if c == nil {
		return nil
	}
	return c.Charge(n)
}
