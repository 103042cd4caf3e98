package handlers

import "github.com/slotgate/slotgate/store"

// delivery is how surely the caller wants a write of one key to be done.
func (r *request) delivery() store.Delivery { return store.Delivery{} }
