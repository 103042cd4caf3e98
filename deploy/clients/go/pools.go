package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slotgate/slotgate/deploy/clients/go/slotgate"
)

// pools is what a worker does: it leases a member once, however often it asks, renews the lease and completes it.
func (t tour) pools(ctx context.Context) error {
	const pool = "tour-go"
	one, meta := int64(1), slotgate.PoolMeta{"url": "http://10.0.0.1:3128"}
	defined, err := t.PutPoolWithResponse(ctx, pool, nil, slotgate.PoolDefinition{
		Policy: slotgate.PoolPolicyLeastInflight, Lease: &slotgate.PoolLeaseSettings{MaxPerMember: &one},
	})
	if err := answered(defined, err, 200); err != nil {
		return err
	}
	put, err := t.PutPoolMembersWithResponse(ctx, pool, nil, slotgate.PoolCandidates{
		Members: []slotgate.PoolCandidate{{Member: awkward, Meta: &meta}, {Member: "z"}},
	})
	if err := answered(put, err, 200); err != nil {
		return err
	}

	once := fmt.Sprintf("%q", time.Now().Format(time.RFC3339Nano))
	params := slotgate.AllocatePoolMemberParams{IdempotencyKey: &once}
	first, err := t.AllocatePoolMemberWithResponse(ctx, pool, &params, slotgate.PoolAllocate{})
	if err := answered(first, err, 200); err != nil {
		return err
	}
	again, err := t.AllocatePoolMemberWithResponse(ctx, pool, &params, slotgate.PoolAllocate{})
	if err := answered(again, err, 200); err != nil {
		return err
	}
	other, err := t.AllocatePoolMemberWithResponse(ctx, pool, nil, slotgate.PoolAllocate{})
	if err := answered(other, err, 200); err != nil {
		return err
	}
	nobody, err := t.AllocatePoolMemberWithResponse(ctx, pool, nil, slotgate.PoolAllocate{})
	if err := answered(nobody, err, 200); err != nil {
		return err
	}
	if first.JSON200.Member == nil || first.JSON200.Lease == nil || other.JSON200.Member == nil || nobody.JSON200.Reason == nil {
		return fmt.Errorf("incomplete: %s, %s, %s", first.Body, other.Body, nobody.Body)
	}
	if err := errors.Join(same("the member", *first.JSON200.Member, awkward), same("its meta", *first.JSON200.Meta, meta),
		same("the repetition", *again.JSON200.Lease, *first.JSON200.Lease), same("the other", *other.JSON200.Member, "z"),
		same("a third", nobody.JSON200.Member, (*string)(nil)), same("why", *nobody.JSON200.Reason, slotgate.PoolReasonSaturated)); err != nil {
		return err
	}
	if err := t.lease(ctx, pool, *first.JSON200.Lease); err != nil {
		return err
	}
	return t.reports(ctx, pool)
}

// lease renews and completes a lease of the awkward member.
func (t tour) lease(ctx context.Context, pool string, l slotgate.PoolLease) error {
	renewed, err := t.RenewPoolLeaseWithResponse(ctx, pool, l.Id, nil, slotgate.PoolRenewal{Fence: l.Fence, LeaseMs: 60_000})
	if err := answered(renewed, err, 200); err != nil {
		return err
	}
	held, err := t.GetPoolMemberWithResponse(ctx, pool, awkward, nil)
	if err := answered(held, err, 200); err != nil {
		return err
	}
	success, took := slotgate.PoolOutcomeSuccess, 120.0
	done, err := t.CompletePoolLeaseWithResponse(ctx, pool, l.Id, nil, slotgate.PoolCompletion{Fence: l.Fence, Outcome: &success, LatencyMs: &took})
	if err := answered(done, err, 200); err != nil {
		return err
	}
	twice, err := t.CompletePoolLeaseWithResponse(ctx, pool, l.Id, nil, slotgate.PoolCompletion{Fence: l.Fence})
	if err := answered(twice, err, 404); err != nil {
		return err
	}
	return errors.Join(same("its leases", held.JSON200.Inflight, int64(1)), same("late", done.JSON200.Late, false),
		same("the code", problem(twice.Body).Code, slotgate.ErrorCodeLeaseNotFound))
}

// reports lets the pool go by what workers say, and ends it.
func (t tour) reports(ctx context.Context, pool string) error {
	adaptive := slotgate.PoolPolicyAdaptive
	changed, err := t.PatchPoolWithResponse(ctx, pool, nil, slotgate.PoolChange{Policy: &adaptive})
	if err := answered(changed, err, 200); err != nil {
		return err
	}
	var failures slotgate.PoolReports
	for range 5 {
		failures.Reports = append(failures.Reports, slotgate.PoolReport{Member: "z", Outcome: slotgate.PoolOutcomeFailure})
	}
	health, err := t.ReportPoolMembersWithResponse(ctx, pool, nil, failures)
	if err := answered(health, err, 200); err != nil {
		return err
	}
	gone, err := t.DeletePoolWithResponse(ctx, pool, nil)
	if err := answered(gone, err, 204); err != nil {
		return err
	}
	none, err := t.AllocatePoolMemberWithResponse(ctx, pool, nil, slotgate.PoolAllocate{})
	if err := answered(none, err, 404); err != nil {
		return err
	}
	if len(health.JSON200.Items) != 5 {
		return fmt.Errorf("not five: %s", health.Body)
	}
	return errors.Join(same("the state", health.JSON200.Items[4].State, slotgate.PoolHealthStateUnhealthy),
		same("the code", problem(none.Body).Code, slotgate.ErrorCodePoolNotFound))
}
