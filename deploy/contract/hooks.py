"""What schemathesis cannot read in openapi.yaml: which values fit together, and which refusals of good requests are right.

Used by deploy/contract/run through schemathesis.toml.
"""

import base64
import datetime
import hashlib
import os
import re
import urllib.parse
from typing import NamedTuple

import schemathesis
from schemathesis.core import NotSet
from hypothesis import strategies as st


class Refusal(NamedTuple):
    """A refusal of a request that the schema allows."""

    status: int
    code: str
    where: str  # a pattern for "pointer detail"; empty: any
    why: str


EXPECTED = [
    Refusal(400, "invalid_key", "must be base64url", "how a key is written depends on key_encoding, which a schema cannot say"),
    Refusal(400, "invalid_key", "must be at most 1024 bytes", "the limit is the app's, and of bytes, not of characters"),
    Refusal(400, "invalid_request", "query:cursor", "a cursor is opaque and comes from the page before"),
    Refusal(404, "key_not_found", "", "the key does not exist, or a request beside this one has deleted it"),
    Refusal(404, "limit_not_found", "", "a rate limit is there once it was defined, and as long as nobody deletes it"),
    Refusal(404, "override_not_found", "", "a subject has rules of its own once they were put, and until they expire or are deleted"),
    Refusal(404, "pool_not_found", "", "a pool is there once it was defined, and as long as nobody deletes it"),
    Refusal(404, "member_not_found", "", "a member is there once it was put, and until it is removed"),
    Refusal(404, "lease_not_found", "", "a lease is known by an id that an allocation has returned, until it is completed or given away"),
    Refusal(404, "not_found", "no such page", "the names of pages and codes are a list that grows"),
    Refusal(409, "wrong_type", "", "the key is the list that run has made"),
    Refusal(409, "not_a_number", "", "the value is text, or a whole number and the delta a fraction"),
    Refusal(409, "out_of_range", "", "the sum is below min, above max or beyond 64 bits"),
    Refusal(409, "fence_mismatch", "", "the fence of a lease is in the answer that gave it"),
    Refusal(409, "lease_lost", "", "a lease that has expired is not renewed"),
    Refusal(409, "pool_empty", "", "the pool has nobody to offer, and Prefer asks for a status"),
    Refusal(412, "precondition_failed", "", "If-Match or If-None-Match does not hold for what is stored"),
    Refusal(413, "value_too_large", "", "an offset makes the value larger than the app's limit"),
    Refusal(416, "range_not_satisfiable", "", "Range begins behind the end of what is stored"),
    Refusal(429, "pool_saturated", "", "all members have as many leases as they may, and Prefer asks for a status"),
    Refusal(422, "validation_failed", "is the same as an earlier one", "members of a list are each other's affair"),
    Refusal(422, "validation_failed", "(member|exclude/[0-9]+|sticky) (has .* bytes|must be (base64url|at most 256 bytes))", "a name has 1 to 256 bytes, which are not characters, in the encoding that key_encoding says"),
    Refusal(422, "validation_failed", "^/lease_ms is|^/lease/default_ms is|^/adaptive/eject_max_ms is", "the most is in another setting"),
    Refusal(422, "validation_failed", "/meta has .* bytes", "a schema does not count the bytes of an object"),
    Refusal(422, "validation_failed", "^/outcome is required", "latency_ms and saturation of a completion are nothing without an outcome; the subset of OpenAPI used cannot say so"),
    Refusal(422, "value_not_utf8", "", "what is stored is not text, and text was asked for"),
    Refusal(422, "cost_exceeds_limit", "", "what a rule can hold is in the definition, not in the schema of a take"),
    Refusal(422, "validation_failed", "belongs to .* only", "burst, mode, align and tz_offset_min are of some algorithms"),
    Refusal(422, "validation_failed", "is the id of an earlier rule|has no rule|only rules of scope subject", "ids of rules are each other's affair, and the definition's"),
    Refusal(422, "validation_failed", "the subject has .* bytes|path:subject", "a subject has 1 to 256 bytes, which are not characters, in the encoding that key_encoding says"),
    Refusal(422, "validation_failed", "/subject must be base64url", "how a subject is written depends on key_encoding"),
    Refusal(422, "validation_failed", "/min_grant", "the least may not be more than the cost"),
    Refusal(422, "validation_failed", "exclude each other", "ttl_ms, expires_at and keep_ttl are good alone and contradict each other"),
    Refusal(422, "validation_failed", "must be in the future|within 100 years", "what is in the future is not for a schema to say"),
    Refusal(422, "validation_failed", "/ttl_ms is required", "one of ttl_ms and expires_at; the subset of OpenAPI used has no anyOf for it"),
    Refusal(422, "validation_failed", "^/permissions", "permissions are a language of their own, and all must fit into a token"),
    Refusal(422, "validation_failed", "ttl_when needs", "without a TTL there is nothing to be set when"),
    Refusal(422, "validation_failed", "header:If-None-Match excludes If-Match", "both are good alone"),
    Refusal(422, "validation_failed", "without an exponent", "JSON writers put large and small numbers so; the description asks for plain notation"),
    Refusal(422, "validation_failed", "64 bits", "a whole number has no bounds in the schema, since a fraction of that size is good"),
]


def is_positive(case):
    return case.meta is not None and case.meta.generation.mode.is_positive


def sent(response, name):
    return response.request.headers.get(name)


@schemathesis.check
class RefusalIsExpected:
    """A good request is answered, or refused for a reason in the table above."""

    def __init__(self):
        self.met = set()

    def after_response(self, ctx, response, case):
        if response.status_code < 400 or response.status_code >= 500 or not is_positive(case):  # 5xx: see below
            return
        if response.status_code == 401:
            assert sent(response, "Authorization") != f"Bearer {os.environ['KEY']}", "401 to a good key"
            return
        if response.request.method == "HEAD":  # its answer has no body to read
            assert any(r.status == response.status_code for r in EXPECTED), f"unexpected status {response.status_code}"
            return
        problem = response.json()
        for place in [f"{e['pointer']} {e['detail']}" for e in problem.get("errors", [])] or [problem.get("detail", "")]:
            reasons = [
                r for r in EXPECTED if (r.status, r.code) == (response.status_code, problem["code"]) and re.search(r.where, place)
            ]
            assert reasons, f"unexpected refusal of a good request: {problem['code']}: {place}"
            self.met.update(reasons)

    def after_run(self, ctx):
        for r in EXPECTED:
            if r not in self.met:
                print(f"no good request was refused in this run for {r.status} {r.code} {r.where!r}: {r.why}")


@schemathesis.check
def server_error_is_expected(ctx, response, case):
    """The cluster is well, so nothing may take longer than the gateway's own deadline; but a request may ask for one it cannot meet."""
    if response.status_code < 500:
        return
    if (case.query or {}).get("durability") in ("replica", "fsync") and response.status_code == 501:  # the cluster of dev has no replicas
        problem = response.json()
        assert (problem["code"], problem.get("outcome")) == ("unsupported_by_cluster", "not_applied"), problem["code"]
        return
    assert sent(response, "X-Request-Deadline-Ms"), "the request set no deadline"
    if response.request.method != "HEAD":
        code = response.json()["code"]
        assert (response.status_code, code) in [(504, "backend_timeout"), (504, "batch_incomplete"), (503, "batch_incomplete"), (503, "overloaded")], code


@schemathesis.check
def problem_tells_one_story(ctx, response, case):
    """The parts of a problem and the answer around it agree."""
    if response.status_code < 400 or response.request.method == "HEAD" or response.status_code == 431:
        return
    problem = response.json()
    assert problem["status"] == response.status_code, "the problem has another status"
    assert problem["request_id"] == response.headers["x-request-id"][0], "the problem has another request id"
    assert problem["type"] == f"/problems/{problem['code']}", "the type does not lead to the code"


# Most years that Hypothesis thinks of are refused; these are mostly good, and on both sides of the bounds.
now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None, microsecond=0)
schemathesis.openapi.format(
    "date-time",
    st.datetimes(
        min_value=now - datetime.timedelta(days=365), max_value=now + datetime.timedelta(days=36_500 + 365), timezones=st.just(datetime.timezone.utc)
    ).map(lambda t: t.isoformat().replace("+00:00", "Z")),
)


@schemathesis.hook
def filter_case(ctx, case):
    """Drops requests that are not as broken as schemathesis thinks."""
    if "x-schemathesis-unknown-property" in (case.headers or {}):
        return False  # a header the document does not have: HTTP lets everybody on the way add some
    octets = any(body.media_type == "application/octet-stream" for body in case.operation.body)
    return not (octets and isinstance(case.body, NotSet))  # no body is an empty one in HTTP, and an empty value here


# Operations that put something else in a key's place, or end it. The list, which run made, would not live long.
ENDS = {"putString", "deleteString", "putBytes", "deleteBytes", "putCounter", "deleteKey", "putKeyTtl", "mset", "mdelete"}


@schemathesis.hook
def map_case(ctx, case):
    """Makes a good request one that means something, where no schema can ask for that."""
    if not is_positive(case):
        return case
    path, query, body = case.path_parameters or {}, case.query or {}, case.body if isinstance(case.body, dict) else {}
    ends = case.operation.definition.raw["operationId"] in ENDS
    if "key" in path:
        plain = urllib.parse.unquote(str(path["key"]))
        meant = encoded(spared(plain, ends), query)
        if meant != plain:
            path["key"] = meant
    if "prefix" in query:
        query["prefix"] = encoded(str(query["prefix"]), query)
    if "keys" in body:
        body["keys"] = [encoded(spared(key, ends), body) for key in body["keys"]]
    if "member" in path:
        plain = urllib.parse.unquote(str(path["member"]))
        meant = encoded(plain, query)
        if meant != plain:
            path["member"] = meant
    if "member" in query:
        query["member"] = encoded(str(query["member"]), query)
    if "exclude" in body:
        body["exclude"] = [encoded(member, body) for member in body["exclude"]]
    for item in (*body.get("members", []), *body.get("reports", [])):
        item["member"] = encoded(item["member"], body)
    items = body.get("items", [])
    for item in items:
        if "key" not in item:
            continue  # an item of something else, such as a take
        item["key"] = encoded(spared(item["key"], ends), body)
    for part in (body, *items):
        if part.get("encoding", body.get("encoding")) == "base64" and "value" in part:
            part["value"] = base64.b64encode(part["value"].encode()).decode()
    if case.meta.phase.name.value == "coverage":  # which knows one time only, long ago
        for part in (query, body, *items):
            if "expires_at" in part:
                part["expires_at"] = (now + datetime.timedelta(days=1)).isoformat() + "Z"
    if "max_staleness_ms" in query:  # which is for reads from replicas
        query["read"] = "replica"
    if query.get("read") == "replica" and ("ttl_ms" in query or "expires_at" in query):  # a read that writes
        query.pop("max_staleness_ms", None)
        query["read"] = "primary"
    correct_headers(case)
    name_write(case)
    return case


def name_write(case):
    """Gives the Idempotency-Key of a request an end of its own, or most would be refused as another's: equal requests still have equal keys."""
    headers = case.headers or {}
    if "Idempotency-Key" not in headers:
        return
    parts = (case.method, case.path, case.path_parameters, case.query, case.body, headers.get("If-Match"), headers.get("If-None-Match"))
    name, end = str(headers["Idempotency-Key"]), hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    quote = '"' if name.startswith('"') else ""
    begin = name.removesuffix(quote) if len(name) < 200 else quote
    headers["Idempotency-Key"] = begin + end + quote


def spared(key, ends):
    return "text" if ends and key == "list" else key


def encoded(key, beside):
    """The key in the encoding that is named beside it."""
    if beside.get("key_encoding") != "base64url":
        return key
    return base64.urlsafe_b64encode(key.encode()).rstrip(b"=").decode()


def correct_headers(case):
    headers = case.headers or {}
    if "X-Request-Deadline-Ms" in headers:  # the gateway's own deadline, the most there can be, is a setting
        headers["X-Request-Deadline-Ms"] = str(min(int(headers["X-Request-Deadline-Ms"]), 1000))
    for name in ("If-Match", "If-None-Match"):  # their grammar is RFC 9110's
        if name in headers:
            writes = case.method.upper() not in ("GET", "HEAD")
            headers[name] = "*" if writes and name == "If-None-Match" else entity_tags(str(headers[name]))


def entity_tags(text):
    """The text when it is * or begins like an entity tag, otherwise an entity tag of its characters: most text is neither."""
    if text == "*" or text.startswith(('"', 'W/"')):
        return text
    return '"' + re.sub(r"[^!#-~]", "-", text) + '"'


@schemathesis.deserializer("text/html")
def page(ctx, response):
    return response.content.decode()


@schemathesis.deserializer("application/octet-stream")
def octets(ctx, response):
    return response.content.decode("latin-1")
