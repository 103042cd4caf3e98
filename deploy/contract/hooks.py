"""What schemathesis cannot read in openapi.yaml: which values fit together, and which refusals of good requests are right.

Used by deploy/contract/run through schemathesis.toml.
"""

import base64
import datetime
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
    Refusal(400, "invalid_request", "header:If-(None-)?Match", "the grammar of entity tags is that of RFC 9110, not of a schema"),
    Refusal(400, "invalid_request", "header:X-Request-Deadline-Ms", "the longest deadline is a setting of the gateway"),
    Refusal(400, "invalid_request", "query:cursor", "a cursor is opaque and comes from the page before"),
    Refusal(404, "key_not_found", "", "the key does not exist, or a request beside this one has deleted it"),
    Refusal(404, "not_found", "no such page", "the names of pages and codes are a list that grows"),
    Refusal(409, "wrong_type", "", "the key is the list that run has made"),
    Refusal(409, "not_a_number", "", "the value is text, or a whole number and the delta a fraction"),
    Refusal(409, "out_of_range", "", "the sum is below min, above max or beyond 64 bits"),
    Refusal(412, "precondition_failed", "", "If-Match or If-None-Match does not hold for what is stored"),
    Refusal(413, "value_too_large", "", "an offset makes the value larger than the app's limit"),
    Refusal(416, "range_not_satisfiable", "", "Range begins behind the end of what is stored"),
    Refusal(422, "value_not_utf8", "", "what is stored is not text, and text was asked for"),
    Refusal(422, "validation_failed", "exclude each other", "ttl_ms, expires_at and keep_ttl are good alone and contradict each other"),
    Refusal(422, "validation_failed", "must be in the future|within 100 years", "what is in the future is not for a schema to say"),
    Refusal(422, "validation_failed", "/ttl_ms is required", "one of ttl_ms and expires_at; the subset of OpenAPI used has no anyOf for it"),
    Refusal(422, "validation_failed", "ttl_when needs", "without a TTL there is nothing to be set when"),
    Refusal(422, "validation_failed", "header:If-None-Match excludes If-Match", "both are good alone"),
    Refusal(422, "validation_failed", "without an exponent", "JSON writers put large and small numbers so; the description asks for plain notation"),
    Refusal(422, "validation_failed", "64 bits", "a whole number has no bounds in the schema, since a fraction of that size is good"),
    Refusal(422, "validation_failed", "must be base64, standard", "how a value is written depends on encoding"),
]


def is_positive(case):
    return case.meta is not None and case.meta.generation.mode.is_positive


def sent(response, name):
    return response.request.headers.get(name)


@schemathesis.check
def refusal_is_expected(ctx, response, case):
    """A good request is answered, or refused for a reason in the table above."""
    if response.status_code < 400 or not is_positive(case):
        return
    if response.status_code == 401:
        assert sent(response, "Authorization") != f"Bearer {os.environ['KEY']}", "401 to a good key"
        return
    if response.status_code >= 500:  # see below
        return
    if case.method.upper() == "HEAD":  # has no body to read
        assert any(r.status == response.status_code for r in EXPECTED), f"unexpected status {response.status_code}"
        return
    problem = response.json()
    places = [f"{e['pointer']} {e['detail']}" for e in problem.get("errors", [])] or [problem.get("detail", "")]
    for place in places:
        assert any(
            r.status == response.status_code and r.code == problem["code"] and re.search(r.where, place) for r in EXPECTED
        ), f"unexpected refusal of a good request: {problem['code']}: {place}"


@schemathesis.check
def server_error_is_expected(ctx, response, case):
    """The cluster is well, so nothing may take longer than the gateway's own deadline; but a request may ask for one it cannot meet."""
    if response.status_code < 500:
        return
    assert sent(response, "X-Request-Deadline-Ms"), "the request set no deadline"
    if response.request.method != "HEAD":
        code = response.json()["code"]
        assert (response.status_code, code) in [(504, "backend_timeout"), (504, "batch_incomplete"), (503, "batch_incomplete")], code


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


def base64url(text):
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).rstrip(b"=").decode()


@schemathesis.hook
def filter_case(ctx, case):
    """Drops requests that are not as broken as schemathesis thinks."""
    if "x-schemathesis-unknown-property" in (case.headers or {}):
        return False  # a header the document does not have: HTTP lets everybody on the way add some
    octets = any(body.media_type == "application/octet-stream" for body in case.operation.body)
    return not (octets and isinstance(case.body, NotSet))  # no body is an empty one in HTTP, and an empty value here


@schemathesis.hook
def map_case(ctx, case):
    """Writes keys and values in the encoding that the same request names, and conditions as RFC 9110 has them: no schema can ask for that."""
    if not is_positive(case):
        return case
    if (case.query or {}).get("key_encoding") == "base64url":
        if "key" in (case.path_parameters or {}):
            case.path_parameters["key"] = base64url(urllib.parse.unquote(str(case.path_parameters["key"])))
        if "prefix" in case.query:
            case.query["prefix"] = base64url(str(case.query["prefix"]))
    if isinstance(case.body, dict):
        encode_body(case.body)
    for name in ("If-Match",) if case.method in ("PUT", "POST", "DELETE") else ("If-None-Match",):
        if name in (case.headers or {}):
            case.headers[name] = entity_tags(case.headers[name])
    return case


def entity_tags(text):
    """The text when it is * or begins like an entity tag, otherwise an entity tag of its characters: most text is neither."""
    text = str(text)
    if text == "*" or text.startswith(('"', 'W/"')):
        return text
    return '"' + re.sub(r"[^!#-~]", "-", text) + '"'


def encode_body(body):
    if body.get("key_encoding") == "base64url":
        if isinstance(body.get("keys"), list):
            body["keys"] = [base64url(key) for key in body["keys"]]
        for item in body.get("items") or []:
            item["key"] = base64url(item["key"])
    for part in [body, *(body.get("items") or [])]:
        if part.get("encoding", body.get("encoding")) == "base64" and isinstance(part.get("value"), str):
            part["value"] = base64.b64encode(part["value"].encode("utf-8", "surrogatepass")).decode()
