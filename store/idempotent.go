package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/slotgate/slotgate/acl"
)

// defaultRecordTTL is how long the repetition of a write is known: a day, after which no client tries any more.
const defaultRecordTTL = 24 * time.Hour

// KeepRecords sets Config.RecordTTL anew, for records from now on; 0 = 24 h.
func (s *Store) KeepRecords(ttl time.Duration) {
	def(&ttl, defaultRecordTTL)
	s.recordTTL.Store(int64(ttl))
}

// RecordTTL is how long records are kept now.
func (s *Store) RecordTTL() time.Duration { return time.Duration(s.recordTTL.Load()) }

// maxRecordedArgs is the most arguments that an operation with an Idempotency-Key may have: what Lua can unpack with room to spare.
const maxRecordedArgs = 1000

// Statuses of the frame in which a script runs for a write with an Idempotency-Key.
const (
	statusReplay   = -20
	statusMismatch = -21
)

// keyed says whether the write has an Idempotency-Key.
func (d *Delivery) keyed() bool { return d.Idempotency.Key != "" }

// keeping is d with parts that the record keeps behind the script's reply, which are added to it also the first time: first answer
// and repetition are made from the same.
func (d Delivery) keeping(parts string) Delivery {
	d.kept = parts
	return d
}

// recorded are the arguments of EVALSHA, from the number of keys on, for a script in the frame. Errors: idempotency_unsupported.
func (s *Store) recorded(id *acl.Identity, d *Delivery, stored string, argv []any) ([]any, error) {
	if len(argv) > maxRecordedArgs {
		return nil, NewError(CodeIdempotencyUnsupported, "a write with an Idempotency-Key may have "+strconv.Itoa(maxRecordedArgs)+" arguments at most")
	}
	copies := ""
	if d.Durability != Async {
		copies = "1"
	}
	args := append(make([]any, 0, len(argv)+9), "EVALSHA", "", "2", stored, recordKey(id, stored, d.Idempotency.Key),
		d.Idempotency.recordHead(), s.RecordTTL().Milliseconds(), d.kept, copies)
	return append(args, argv...), nil
}

// frameWrote says whether the copies of what a reply of the frame stands for matter: also those of an earlier request's write.
// A wait is for all that the node has written before, by whomever.
func frameWrote(reply any) bool {
	list, _ := reply.([]any)
	status := scriptReply(list).status()
	return status == statusDone || status == statusReplay
}

// settle makes of the frame's reply that of the write, whether this request has done it or an earlier one.
func (d *Delivery) settle(reply scriptReply) (scriptReply, error) {
	switch reply.status() {
	case statusMismatch:
		return nil, OtherRequest()
	case statusReplay:
		return d.replay([]byte(reply.text(1)))
	case statusDone:
		if d.kept == "" {
			return reply, nil
		}
		kept, err := parseRecord([]byte(d.kept))
		return append(reply, kept...), err
	}
	return reply, nil
}

// replay reads the parts of a record.
func (d *Delivery) replay(parts []byte) (scriptReply, error) {
	reply, err := parseRecord(parts)
	if err != nil {
		return nil, NewError(CodeCorruptValue, "what is kept of the first request with this Idempotency-Key cannot be read").WithCause(err)
	}
	if d.Receipt != nil {
		d.Receipt.Replayed = true
	}
	return reply, nil
}

// OtherRequest is idempotency_mismatch: what is kept under the Idempotency-Key is of another request.
func OtherRequest() *Error {
	return fieldError(CodeIdempotencyMismatch, "header:Idempotency-Key",
		"an earlier request with this Idempotency-Key was another one; each needs a key of its own")
}

// earlier is called when a write is refused, for a reason that a second try cannot cure, before the script that would do it runs.
// An earlier request with the same Idempotency-Key may have done it and so have made its own condition untrue. Then the reply of
// that one is returned, otherwise problem. Since record and write are one step, whoever sees the write finds the record.
func (s *Store) earlier(ctx context.Context, id *acl.Identity, d Delivery, r *row, key string, problem error) (scriptReply, error) {
	var refused *Error
	if problem == nil || !d.keyed() || !errors.As(problem, &refused) || refused.Code.Retryable() {
		return nil, problem
	}
	reply, err := s.runStep(ctx, id, d, r, scriptNothing, key)
	if err != nil {
		return nil, err
	}
	if reply.status() == statusUnmet {
		return nil, problem
	}
	return reply, nil
}

// setResult is what a write did: as this request knows it, or as the record does.
func (s *Store) setResult(id *acl.Identity, d Delivery, reply scriptReply, known SetResult) (SetResult, error) {
	if !d.keyed() {
		return known, nil
	}
	previous, err := keptPrevious(id, reply, 2)
	return SetResult{TTLMS: reply.integer(1), Previous: previous}, err
}

// keptPrevious is the value at position i of a reply from a record; nil = there was none.
func keptPrevious(id *acl.Identity, reply scriptReply, i int) (*Value, error) {
	if i >= len(reply) || reply[i] == nil {
		return nil, nil
	}
	data, err := decodeValue([]byte(reply.text(i)), id.Sizes.ResponseMaxBytes)
	if err != nil {
		return nil, withOutcome(err, Applied)
	}
	return &Value{Data: data}, nil
}
