package handlers

import (
	"strconv"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
)

// delivery is how surely the caller wants a write of one key to be done. The body must have been read.
func (r *request) delivery() store.Delivery {
	if r.durability == store.Async && r.idempotent == nil {
		return store.Delivery{}
	}
	r.receipt = new(store.Receipt)
	d := store.Delivery{Durability: r.durability, Receipt: r.receipt}
	if i := r.idempotent; i != nil {
		i.receipt = r.receipt
		d.Idempotency = store.Idempotency{Key: i.key, Fingerprint: i.fingerprint(r)}
	}
	return d
}

// idempotency is what makes the repetition of a request known whose record is not a key's; without an Idempotency-Key it is none.
func (r *request) idempotency() store.Idempotency { return r.delivery().Idempotency }

// answered notes whether the answer is that of an earlier request, and whether it is kept for later ones.
func (r *request) answered(replayed, kept bool) {
	if r.receipt != nil {
		r.receipt.Replayed = replayed
	}
	if r.idempotent != nil {
		r.idempotent.none = !kept
	}
}

// durability is that of the query string, or the app's.
func (q query) durability(app *acl.App) (store.Durability, error) {
	word, err := q.word("durability", "async", "replica", "fsync")
	if word == "" {
		word = string(app.Durability)
	}
	d, _ := store.ParseDurability(word) // an app's is valid, and none is async
	return d, err
}

// async is for batches, whose commands go to many connections and share them with others, so that nobody could wait for their copies.
func (r *request) async() {
	if r.durability != store.Async {
		r.fail(store.Invalid("query:durability", "a batch is written with async only; the request or the app asks for "+
			r.durability.String()+". Send durability=async, or the writes one by one"))
	}
}

// delivered tells the caller what the receipt of a write says beside its result. A write that had nothing to write has nothing to tell of
// its copies.
func (r *request) delivered() {
	if r.receipt == nil {
		return
	}
	if r.receipt.Replayed {
		r.Header("Idempotency-Replayed", "true")
	}
	if r.receipt.Reached != store.Async {
		r.Header("Gateway-Durability", r.receipt.Reached.String())
		r.Header("Gateway-Acked-Replicas", strconv.Itoa(r.receipt.Copies))
	}
}
