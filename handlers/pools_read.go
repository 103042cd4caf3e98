package handlers

import (
	"bytes"
	"strconv"

	"github.com/slotgate/slotgate/store"
	"github.com/slotgate/slotgate/store/pool"
)

// What the words and numbers of these bodies mean is checked by pool. Only what it could not tell from something left out is refused
// here: an explicit 0 where 0 stands for the default.

// parsePool reads the body of PUT /v1/pools/{pool}.
func parsePool(src []byte, _ terms) (def pool.Definition, err error) {
	given, err := readPool(src, &def)
	if err == nil && !given {
		err = store.Invalid("/policy", "is required")
	}
	return def, err
}

// parsePoolChange reads the body of PATCH /v1/pools/{pool}, which is a part of a definition: it is written over the one that is there.
func parsePoolChange(src []byte, _ terms) (func(*pool.Definition) error, error) {
	_, err := readPool(src, new(pool.Definition))
	return func(def *pool.Definition) error { _, err := readPool(src, def); return err }, err
}

// readPool writes what the body has over def, and says whether there is a policy.
func readPool(src []byte, def *pool.Definition) (policy bool, err error) {
	err = parseObject(src, func(d *document, name []byte) bool {
		switch string(name) {
		case "policy":
			policy = true
			def.Policy = pool.Policy(d.text())
		case "variant":
			def.Variant = pool.Variant(d.text())
		case "restore":
			def.Restore = pool.Restore(d.text())
		case "sticky_ms":
			d.positive(&def.StickyMS)
		case "lease":
			d.object(func(d *document, name []byte) bool { return d.leaseSetting(&def.Lease, name) })
		case "adaptive":
			d.object(func(d *document, name []byte) bool { return d.adaptiveSetting(&def.Adaptive, name) })
		default:
			return false
		}
		return true
	}, func(*document) {})
	return policy, err
}

func (d *document) leaseSetting(l *pool.Lease, name []byte) bool {
	switch string(name) {
	case "default_ms":
		d.positive(&l.DefaultMS)
	case "max_ms":
		d.positive(&l.MaxMS)
	case "max_per_member":
		l.MaxPerMember, _ = d.integer()
	case "abandoned":
		l.Abandoned = pool.Abandoned(d.text())
	default:
		return false
	}
	return true
}

func (d *document) adaptiveSetting(a *pool.Adaptive, name []byte) bool {
	switch string(name) {
	case "half_life_ms":
		d.positive(&a.HalfLifeMS)
	case "floor":
		d.share(&a.Floor)
	case "recover_ms":
		d.positive(&a.RecoverMS)
	case "fail_threshold":
		d.positive(&a.FailThreshold)
	case "fail_span_ms":
		d.positive(&a.FailSpanMS)
	case "eject_ms":
		d.positive(&a.EjectMS)
	case "eject_max_ms":
		d.positive(&a.EjectMaxMS)
	case "panic":
		d.share(&a.Panic)
	case "degrade_latency_factor":
		d.share(&a.DegradeLatencyFactor)
	case "degrade_error_rate":
		d.share(&a.DegradeErrorRate)
	case "baseline_ms":
		a.BaselineMS, _ = d.integer()
	default:
		return false
	}
	return true
}

// positive reads an integer that is not 0.
func (d *document) positive(n *int64) {
	read, ok := d.integer()
	if ok && read == 0 {
		d.wrong("must be at least 1; leave it out for the default")
	}
	*n = read
}

// share reads a number that is not 0.
func (d *document) share(x *float64) {
	read, ok := d.double()
	if ok && read == 0 {
		d.wrong("must be more than 0; leave it out for the default")
	}
	*x = read
}

// double reads a number of double precision.
func (d *document) double() (float64, bool) {
	literal, ok := d.number("a number")
	if !ok {
		return 0, false
	}
	x, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		d.wrong("is too large")
		return 0, false
	}
	return x, true
}

// optional reads an integer that makes a difference whatever it is.
func (d *document) optional() *int64 {
	n, ok := d.integer()
	if !ok {
		return nil
	}
	return &n
}

// meta reads a JSON object and gives it as it is written.
func (d *document) meta() []byte {
	if !d.expect('{', "an object") {
		return nil
	}
	from := d.dec.InputOffset()
	if d.skip(); d.broken != nil {
		return nil
	}
	text := d.src[from:d.dec.InputOffset()]
	return text[bytes.IndexByte(text, '{'):] // before it is the colon, and white space
}

// memberSetting reads what may be said of a member that is there.
func (d *document) memberSetting(m *pool.Member, name []byte) bool {
	switch string(name) {
	case "weight":
		m.Weight = d.optional()
	case "available":
		yes := d.boolean()
		m.Available = &yes
	case "cooldown_ms":
		m.CooldownMS = d.optional()
	case "meta":
		m.Meta = d.meta()
	default:
		return false
	}
	return true
}

// newMember reads what may be said of one that may be new.
func (d *document) newMember(m *pool.Member, name []byte) bool {
	if string(name) == "initial_count" {
		m.InitialCount = d.optional()
		return true
	}
	return d.memberSetting(m, name)
}

// parsePoolMember reads the body of PUT /v1/pools/{pool}/members/{member}.
func parsePoolMember(src []byte, _ terms) (m pool.Member, err error) {
	err = parseObject(src, func(d *document, name []byte) bool { return d.newMember(&m, name) }, func(*document) {})
	return m, err
}

// parsePoolMemberChange reads the body of PATCH /v1/pools/{pool}/members/{member}.
func parsePoolMemberChange(src []byte, _ terms) (m pool.Member, err error) {
	err = parseObject(src, func(d *document, name []byte) bool { return d.memberSetting(&m, name) }, func(*document) {})
	return m, err
}

// candidates is the body of PUT /v1/pools/{pool}/members.
type candidates struct {
	members []pool.Member
	how     pool.Bulk
	keyEncoding
}

func parseCandidates(src []byte, _ terms) (c candidates, err error) {
	given := false
	err = parseObject(src, func(d *document, name []byte) bool {
		switch string(name) {
		case "key_encoding":
			c.keyEncoding = keyEncodingNamed(d.word("base64url"))
		case "mode":
			c.how.Replace = d.word("merge", "replace") == "replace"
		case "dry_run":
			c.how.DryRun = d.boolean()
		case "members":
			given = true
			d.upTo("/members", pool.MaxMembers, func() { c.members = append(c.members, d.candidate()) })
		default:
			return false
		}
		return true
	}, func(d *document) { d.require(given, "members") })
	for i := 0; err == nil && i < len(c.members); i++ {
		err = c.decode(&c.members[i].Member, "/members/"+strconv.Itoa(i)+"/member")
	}
	return c, err
}

func (d *document) candidate() (m pool.Member) {
	named := false
	if d.object(func(d *document, name []byte) bool {
		if string(name) == "member" {
			named = true
			m.Member = d.text()
			return true
		}
		return d.newMember(&m, name)
	}) {
		d.require(named, "member")
	}
	return m
}

// allocation is the body of POST /v1/pools/{pool}/allocations.
type allocation struct {
	pool.Request
	keyEncoding
}

func parseAllocation(src []byte, _ terms) (r allocation, err error) {
	err = parseObject(src, func(d *document, name []byte) bool {
		switch string(name) {
		case "key_encoding":
			r.keyEncoding = keyEncodingNamed(d.word("base64url"))
		case "exclude":
			d.array(func() bool {
				m := d.text()
				if len(r.Exclude) <= pool.MaxExclude { // one more than there may be is refused by pool, and the others are nothing else
					r.Exclude = append(r.Exclude, m)
				}
				return d.broken == nil
			})
		case "count":
			n, ok := d.integer()
			if ok && (n < 1 || n > pool.MaxCount) { // here, since each counts against the quota, which would refuse too many as something to try again
				d.wrong("is " + strconv.FormatInt(n, 10) + "; give 1 to " + strconv.Itoa(pool.MaxCount))
				n = 0
			}
			r.Count = int(n)
		case "lease_ms":
			d.positive(&r.LeaseMS)
		case "sticky":
			text, ok := d.string()
			if r.Sticky = string(text); ok && r.Sticky == "" {
				d.wrong("must have 1 to " + strconv.Itoa(pool.MaxMember) + " bytes")
			}
		default:
			return false
		}
		return true
	}, func(*document) {})
	for i := 0; err == nil && i < len(r.Exclude); i++ {
		err = r.decode(&r.Exclude[i], "/exclude/"+strconv.Itoa(i))
	}
	return r, err
}

// experience collects what is said of the use of a member: of a report, or when a lease ends.
func (d *document) experience(r *pool.Report, name []byte) bool {
	switch string(name) {
	case "outcome":
		r.Outcome = pool.Experience(d.text())
	case "latency_ms":
		r.LatencyMS, _ = d.double()
	case "saturation":
		if x, ok := d.double(); ok {
			r.Saturation = &x
		}
	default:
		return false
	}
	return true
}

// reports is the body of POST /v1/pools/{pool}/reports.
type reports struct {
	list []pool.Report
	keyEncoding
}

func parseReports(src []byte, _ terms) (r reports, err error) {
	given := false
	err = parseObject(src, func(d *document, name []byte) bool {
		switch string(name) {
		case "key_encoding":
			r.keyEncoding = keyEncodingNamed(d.word("base64url"))
		case "reports":
			given = true
			d.list("/reports", pool.MaxReports, func() { r.list = append(r.list, d.report()) })
		default:
			return false
		}
		return true
	}, func(d *document) { d.require(given, "reports") })
	for i := 0; err == nil && i < len(r.list); i++ {
		err = r.decode(&r.list[i].Member, "/reports/"+strconv.Itoa(i)+"/member")
	}
	return r, err
}

func (d *document) report() (r pool.Report) {
	named := false
	if d.object(func(d *document, name []byte) bool {
		if string(name) == "member" {
			named = true
			r.Member = d.text()
			return true
		}
		return d.experience(&r, name)
	}) {
		d.require(named, "member")
		d.require(r.Outcome != "", "outcome")
	}
	return r
}

// renewal is the body of PATCH /v1/pools/{pool}/leases/{lease}.
type renewal struct{ fence, leaseMS int64 }

func parseRenewal(src []byte, _ terms) (r renewal, err error) {
	var fence, lease bool
	err = parseObject(src, func(d *document, name []byte) bool {
		switch string(name) {
		case "fence":
			fence = true
			r.fence, _ = d.integer()
		case "lease_ms":
			lease = true
			r.leaseMS, _ = d.integer()
		default:
			return false
		}
		return true
	}, func(d *document) {
		d.require(fence, "fence")
		d.require(lease, "lease_ms")
	})
	return r, err
}

// completion is the body of POST /v1/pools/{pool}/leases/{lease}/complete.
type completion struct {
	fence int64
	used  *pool.Report // nil = nothing is reported
}

func parseCompletion(src []byte, _ terms) (c completion, err error) {
	fence := false
	var used pool.Report
	err = parseObject(src, func(d *document, name []byte) bool {
		if string(name) == "fence" {
			fence = true
			c.fence, _ = d.integer()
			return true
		}
		c.used = &used
		return d.experience(&used, name)
	}, func(d *document) {
		d.require(fence, "fence")
		d.require(c.used == nil || used.Outcome != "", "outcome")
	})
	return c, err
}
