package pool

import (
	"context"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/packed"
)

// MaxLeases is how many leases are told at once.
const MaxLeases = 1000

// Leased is a lease as who looks after a pool sees it.
type Leased struct {
	ID          string `json:"id"`
	Member      string `json:"member"`
	Fence       int64  `json:"fence"`
	StartedAtMS int64  `json:"started_at_ms"` // since 1970, as the expiry
	ExpiresAtMS int64  `json:"expires_at_ms"`
	Expired     bool   `json:"expired"` // nobody has noticed yet
}

// Leases are up to MaxLeases that are out, in the order in which they expire. Errors: ErrNoPool, forbidden, or an outcome.
func (p *Pools) Leases(ctx context.Context, id *acl.Identity, name string) ([]Leased, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	k := keysOf(id, name)
	values, err := p.run(ctx, id, CommandShow, scriptLeases, []string{k.expiries(), k.leases(), k.state()}, packed.Append(nil, p.Clock(), MaxLeases))
	if err != nil {
		return nil, err
	}
	text, _ := values[0].(string)
	q := packed.Reader{Rest: text}
	now := q.Number()
	list := []Leased{}
	for q.Rest != "" {
		ends := q.Number()
		l := Leased{ExpiresAtMS: ends / 1000, Expired: ends <= now}
		l.ID, l.Fence, l.StartedAtMS = q.Bytes(sizeOfID), q.Number(), q.Number()/1000
		l.Member = q.Text()
		list = append(list, l)
	}
	if err := whole(&q); err != nil {
		return nil, err
	}
	return list, nil
}
