package middleware

import (
	"time"

	"github.com/slotgate/slotgate/store"
)

// DefaultRecordsPerSecond is how many writes with an Idempotency-Key an app may do, lastingly. A record takes some 250 bytes for a day:
// 50 a second are 1 GB, and an app that means to write so has arranged for it.
const DefaultRecordsPerSecond = 50

// recordBurst is for how many seconds the rate may be used at once: jobs come in heaps.
const recordBurst = 10

// LimitRecords sets how many idempotency records each app may leave per second, from the next request on.
func (l *Limiter) LimitRecords(perSecond int64) {
	records := newLimit(perSecond, time.Second, recordBurst*perSecond)
	l.records.Store(&records)
}

// recordPolicy names the limit in problems and metrics.
const recordPolicy = "idempotency-records"

// records is the request's store.Recorder.
type records struct {
	limiter *Limiter
	caller  *callerLimits // nil = nobody is known whose records they are
	counts  *QuotaCounts
	taken   *limit // by which a record was taken, and is given back
}

// TakeRecord implements store.Recorder.
func (r *records) TakeRecord() error {
	r.taken = r.limiter.records.Load()
	d := r.caller.record.take(r.limiter.Now(), *r.taken, 1)
	if d.ok {
		return nil
	}
	r.counts.rejected(r.caller.app.ID, recordPolicy)
	return &store.Error{
		Code: store.CodeQuotaExceeded, Policies: []string{recordPolicy}, RetryAfter: time.Duration(d.retry),
		Detail: "the app has sent more writes with an Idempotency-Key than may be remembered",
	}
}

// GiveBackRecord implements store.Recorder.
func (r *records) GiveBackRecord() { r.caller.record.giveBack(*r.taken, 1) }
