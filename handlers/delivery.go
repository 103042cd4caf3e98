package handlers

import (
	"strconv"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
)

// delivery is how surely the caller wants a write of one key to be done.
func (r *request) delivery() store.Delivery {
	if r.durability == store.Async {
		return store.Delivery{}
	}
	r.receipt = new(store.Receipt)
	return store.Delivery{Durability: r.durability, Receipt: r.receipt}
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

// reached tells what was waited for. A write that had nothing to write has nothing to tell.
func (r *request) reached() {
	if r.receipt == nil || r.receipt.Reached == store.Async {
		return
	}
	r.Header("Gateway-Durability", r.receipt.Reached.String())
	r.Header("Gateway-Acked-Replicas", strconv.Itoa(r.receipt.Copies))
}
