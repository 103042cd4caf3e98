"""The README's tour, and a worker of a pool, with a Python client that openapi-python-client has made from openapi/openapi.yaml.

deploy/clients/run generates the client beside this file and runs it.
"""

import io
import os
import sys
import uuid

from slotgate_client import AuthenticatedClient, models
from slotgate_client.api.batches import mdelete, mexists, mget, mset
from slotgate_client.api.bytes_ import get_bytes, head_bytes, put_bytes
from slotgate_client.api.counters import add_counter, get_counter, put_counter
from slotgate_client.api.identity import get_whoami
from slotgate_client.api.keys import delete_key_ttl, get_key, head_key, list_keys, put_key_ttl
from slotgate_client.api.pools import (
    allocate_pool_member, complete_pool_lease, delete_pool, get_pool_member, patch_pool, put_pool, put_pool_members, renew_pool_lease, report_pool_members,
)
from slotgate_client.api.strings import delete_string, get_string, put_string
from slotgate_client.types import File, Unset

# A key that needs escaping: a slash, characters outside ASCII, a percent sign, a plus, a space.
AWKWARD = "tour-py/grüße/100% + ☃"


def same(what, got, want):
    if got != want:
        raise AssertionError(f"{what} is {got!r}, want {want!r}")


def answered(response, status):
    """Returns the parsed body, unless the status is another."""
    if response.status_code != status:
        raise AssertionError(f"status {response.status_code}, want {status}: {response.content!r}")
    return response.parsed


def whoami(client):
    me = answered(get_whoami.sync_detailed(client=client), 200)
    if not me.app.namespace or not me.sizes.value_max_bytes or not me.permissions:
        raise AssertionError(f"incomplete: {me}")


def strings(client):
    put = answered(put_string.sync_detailed(AWKWARD, client=client, body=models.PutStringRequest(value="hellö", ttl_ms=600_000)), 200)
    response = get_string.sync_detailed(AWKWARD, client=client, include=models.IncludeTtl.TTL)
    got = answered(response, 200)
    same("the value", got.value, "hellö")
    same("the ETag", got.etag, put.etag)
    same("the ETag header", response.headers["ETag"], put.etag)
    if isinstance(got.ttl_ms, Unset) or not 1 <= got.ttl_ms <= 600_000:
        raise AssertionError(f"no TTL: {got}")


def conditions(client):
    problem = answered(put_string.sync_detailed(AWKWARD, client=client, body=models.PutStringRequest(value="x"), if_none_match="*"), 412)
    same("the code", problem.code, models.ErrorCode.PRECONDITION_FAILED)


def counters(client):
    key = "tour-py/visits"
    answered(put_counter.sync_detailed(key, client=client, body=models.PutCounterRequest(value=9007199254740993)), 200)  # 2^53 + 1
    added = answered(add_counter.sync_detailed(key, client=client, body=models.AddCounterRequest(delta=2)), 200)
    same("the counter", added.value, 9007199254740995)
    same("its type", type(added.value), int)
    text = answered(get_counter.sync_detailed(key, client=client, int64=models.Int64Mode.STRING), 200)
    same("the quoted counter", text.value, "9007199254740995")
    below = answered(add_counter.sync_detailed("tour-py/stock", client=client, body=models.AddCounterRequest(delta=-7, min_=0)), 409)
    same("the code", below.code, models.ErrorCode.OUT_OF_RANGE)


def octets(client):
    everything = bytes(range(256))
    answered(put_bytes.sync_detailed("tour-py/bytes", client=client, body=File(payload=io.BytesIO(everything))), 204)
    same("the bytes", answered(get_bytes.sync_detailed("tour-py/bytes", client=client), 200).payload.read(), everything)
    part = answered(get_bytes.sync_detailed("tour-py/bytes", client=client, range_="bytes=254-"), 206)
    same("the part", part.payload.read(), everything[254:])
    head = head_bytes.sync_detailed("tour-py/bytes", client=client)
    answered(head, 200)
    same("the length", head.headers["Content-Length"], "256")


def batches(client):
    items = [models.MsetItem(key="tour-py/" + k, value=v) for k, v in (("a", "1"), ("b", "2"), ("ç", "3"))]
    same("written", answered(mset.sync_detailed(client=client, body=models.MsetRequest(items=items)), 200).written, 3)
    request = models.MgetRequest(keys=["tour-py/ç", "tour-py/missing", "tour-py/a"])
    got = answered(mget.sync_detailed(client=client, body=request), 200)
    same("the values", [(i.key, i.found, i.value or None) for i in got.items],
         [("tour-py/ç", True, "3"), ("tour-py/missing", False, None), ("tour-py/a", True, "1")])
    same("errors", got.errors, False)
    request = models.KeysRequest(keys=["tour-py/b", "tour-py/missing"])
    exists = answered(mexists.sync_detailed(client=client, body=request), 200)
    same("exists", [i.exists for i in exists.items], [True, False])


def keys(client):
    ttl = answered(put_key_ttl.sync_detailed("tour-py/a", client=client, body=models.PutKeyTtlRequest(ttl_ms=60_000)), 200)
    same("applied", ttl.applied, True)
    info = answered(get_key.sync_detailed("tour-py/a", client=client), 200)
    same("the key", (info.key, info.type_), ("tour-py/a", "string"))
    if isinstance(info.ttl_ms, Unset):
        raise AssertionError(f"no TTL: {info}")
    answered(head_key.sync_detailed("tour-py/missing", client=client), 404)
    answered(delete_key_ttl.sync_detailed("tour-py/a", client=client), 204)


def listing(client):
    found, more = set(), {}
    while True:
        page = answered(list_keys.sync_detailed(client=client, prefix="tour-py/", limit=2, **more), 200)
        found.update(item.key for item in page.items)
        if isinstance(page.next_cursor, Unset):
            break
        more = {"cursor": page.next_cursor}
    same("the listing", found, {AWKWARD} | {"tour-py/" + k for k in ("a", "b", "ç", "bytes", "visits")})


def deleting(client):
    answered(delete_string.sync_detailed(AWKWARD, client=client), 204)
    gone = answered(get_string.sync_detailed(AWKWARD, client=client), 404)
    same("the code", gone.code, models.ErrorCode.KEY_NOT_FOUND)
    request = models.KeysRequest(keys=["tour-py/" + k for k in ("a", "b", "ç", "bytes", "visits")])
    rest = answered(mdelete.sync_detailed(client=client, body=request), 200)
    same("deleted", [i.deleted for i in rest.items], [True] * 5)


def pools(client):
    """What a worker does: it leases a member once, however often it asks, renews the lease and completes it."""
    pool, lease_settings = "tour-py", models.PoolLeaseSettings(max_per_member=1)
    body = models.PoolDefinition(policy=models.PoolPolicy.LEAST_INFLIGHT, lease=lease_settings)
    answered(put_pool.sync_detailed(pool, client=client, body=body), 200)
    meta = models.PoolMeta.from_dict({"url": "http://10.0.0.1:3128"})
    body = models.PoolCandidates(members=[models.PoolCandidate(member=AWKWARD, meta=meta), models.PoolCandidate(member="z")])
    answered(put_pool_members.sync_detailed(pool, client=client, body=body), 200)

    def allocate(**headers):
        return answered(allocate_pool_member.sync_detailed(pool, client=client, body=models.PoolAllocate(), **headers), 200)

    once = f'"{uuid.uuid4()}"'
    first, again, other, nobody = allocate(idempotency_key=once), allocate(idempotency_key=once), allocate(), allocate()
    same("the member", (first.member, first.meta.to_dict()), (AWKWARD, meta.to_dict()))
    same("the repetition", again.lease.id, first.lease.id)
    same("the other", other.member, "z")
    same("a third", (nobody.member, nobody.reason), (None, models.PoolReason.SATURATED))

    lease, fence = first.lease.id, first.lease.fence
    answered(renew_pool_lease.sync_detailed(pool, lease, client=client, body=models.PoolRenewal(fence=fence, lease_ms=60_000)), 200)
    same("its leases", answered(get_pool_member.sync_detailed(pool, AWKWARD, client=client), 200).inflight, 1)
    body = models.PoolCompletion(fence=fence, outcome=models.PoolOutcome.SUCCESS, latency_ms=120)
    same("late", answered(complete_pool_lease.sync_detailed(pool, lease, client=client, body=body), 200).late, False)
    twice = answered(complete_pool_lease.sync_detailed(pool, lease, client=client, body=models.PoolCompletion(fence=fence)), 404)
    same("the code", twice.code, models.ErrorCode.LEASE_NOT_FOUND)

    answered(patch_pool.sync_detailed(pool, client=client, body=models.PoolChange(policy=models.PoolPolicy.ADAPTIVE)), 200)
    body = models.PoolReports(reports=[models.PoolReport(member="z", outcome=models.PoolOutcome.FAILURE)] * 5)
    health = answered(report_pool_members.sync_detailed(pool, client=client, body=body), 200)
    same("the state", health.items[-1].state, models.PoolHealthState.UNHEALTHY)
    answered(delete_pool.sync_detailed(pool, client=client), 204)
    gone = answered(allocate_pool_member.sync_detailed(pool, client=client, body=models.PoolAllocate()), 404)
    same("the code", gone.code, models.ErrorCode.POOL_NOT_FOUND)


def refused(client):
    problem = answered(get_whoami.sync_detailed(client=client), 401)
    same("the code", problem.code, models.ErrorCode.UNAUTHENTICATED)


def main():
    gw = os.environ["GW"]
    steps = [whoami, strings, conditions, counters, octets, batches, keys, listing, deleting, pools]
    with AuthenticatedClient(base_url=gw, token=os.environ["KEY"], timeout=10) as client:
        for step in steps:
            step(client)
    with AuthenticatedClient(base_url=gw, token="sg_nobody", timeout=10) as stranger:
        refused(stranger)
    print(f"Python client: {len(steps) + 1} steps passed")


if __name__ == "__main__":
    sys.exit(main())
