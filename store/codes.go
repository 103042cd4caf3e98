package store

import "net/http"

// Code is the stable name of a way to fail: the word a client's program branches on. A code is never renamed, never reused
// for something else and never removed; the row in the table below says everything the protocol needs to know about it.
type Code string

// The codes, in the order of their HTTP status.
const (
	CodeInvalidRequest         Code = "invalid_request"
	CodeInvalidKey             Code = "invalid_key"
	CodeCommandNotAllowed      Code = "command_not_allowed"
	CodeUnauthenticated        Code = "unauthenticated"
	CodeForbidden              Code = "forbidden"
	CodeAppSuspended           Code = "app_suspended"
	CodeAppExpired             Code = "app_expired"
	CodeNotFound               Code = "not_found"
	CodeKeyNotFound            Code = "key_not_found"
	CodeFieldNotFound          Code = "field_not_found"
	CodeLimitNotFound          Code = "limit_not_found"
	CodeOverrideNotFound       Code = "override_not_found"
	CodePoolNotFound           Code = "pool_not_found"
	CodeMemberNotFound         Code = "member_not_found"
	CodeLeaseNotFound          Code = "lease_not_found"
	CodeMethodNotAllowed       Code = "method_not_allowed"
	CodeWrongType              Code = "wrong_type"
	CodeNotANumber             Code = "not_a_number"
	CodeOutOfRange             Code = "out_of_range"
	CodeCursorExpired          Code = "cursor_expired"
	CodeLeaseLost              Code = "lease_lost"
	CodeFenceMismatch          Code = "fence_mismatch"
	CodePoolEmpty              Code = "pool_empty"
	CodePreconditionFailed     Code = "precondition_failed"
	CodePayloadTooLarge        Code = "payload_too_large"
	CodeValueTooLarge          Code = "value_too_large"
	CodeBatchTooLarge          Code = "batch_too_large"
	CodeUnsupportedMediaType   Code = "unsupported_media_type"
	CodeRangeNotSatisfiable    Code = "range_not_satisfiable"
	CodeValidationFailed       Code = "validation_failed"
	CodeTTLRequired            Code = "ttl_required"
	CodeTTLTooLong             Code = "ttl_too_long"
	CodeResponseTooLarge       Code = "response_too_large"
	CodeValueNotUTF8           Code = "value_not_utf8"
	CodeCrossSlot              Code = "cross_slot"
	CodeIdempotencyMismatch    Code = "idempotency_mismatch"
	CodeIdempotencyUnsupported Code = "idempotency_unsupported"
	CodeCostExceedsLimit       Code = "cost_exceeds_limit"
	CodeQuotaExceeded          Code = "quota_exceeded"
	CodePoolSaturated          Code = "pool_saturated"
	CodeTooManyFailures        Code = "too_many_failures"
	CodeInternal               Code = "internal"
	CodeUnsupportedByCluster   Code = "unsupported_by_cluster"
	CodeBackendError           Code = "backend_error"
	CodeCorruptValue           Code = "corrupt_value"
	CodeClusterDown            Code = "cluster_down"
	CodeBackendSaturated       Code = "backend_saturated"
	CodeOverloaded             Code = "overloaded"
	CodeDraining               Code = "draining"
	CodeBatchIncomplete        Code = "batch_incomplete"
	CodeLimiterUnavailable     Code = "limiter_unavailable"
	CodeBackendTimeout         Code = "backend_timeout"
	CodeAppliedNotReplicated   Code = "applied_not_replicated"
	CodeOutOfMemory            Code = "out_of_memory"
)

// codeRow is what the protocol says about one code.
type codeRow struct {
	code      Code
	status    int
	retryable bool
	title     string
	// explanation is one or two sentences for GET /problems/{code} and the documentation: what happened, what to do.
	explanation string
}

// codeTable is the one place where a code meets its status. Rows are added, never changed in meaning and never removed: the
// test holds the list of all codes ever shipped.
var codeTable = []codeRow{
	{CodeInvalidRequest, http.StatusBadRequest, false, "Invalid request",
		"A part of the request could not be parsed: the path, a header, a parameter or the body. `errors` points at it."},
	{CodeInvalidKey, http.StatusBadRequest, false, "Invalid key",
		"The key is empty, longer than the app's limit, or not decodable. Every byte is legal in a key; in a path it is one percent-encoded segment."},
	{CodeCommandNotAllowed, http.StatusBadRequest, false, "Command not allowed",
		"The command is not in the gateway's command table, so it is refused whatever the permissions."},
	{CodeUnauthenticated, http.StatusUnauthorized, false, "Unauthenticated",
		"No valid app key or token was sent. The answer is the same for a missing, malformed, unknown, expired and revoked one. Send `Authorization: Bearer sg_...`."},
	{CodeForbidden, http.StatusForbidden, false, "Forbidden",
		"The app key or token is valid but has no permission for this operation. GET /v1/whoami lists what it may do."},
	{CodeAppSuspended, http.StatusForbidden, false, "App suspended",
		"The operator has suspended the app. Its keys and data are kept; it can be resumed."},
	{CodeAppExpired, http.StatusForbidden, false, "App expired",
		"The app's expiry has passed. The operator can move it."},
	{CodeNotFound, http.StatusNotFound, false, "No such resource",
		"The path is not part of the API; see /openapi.yaml. A `/` inside a key must be sent as %2F."},
	{CodeKeyNotFound, http.StatusNotFound, false, "Key not found",
		"The key does not exist in the app's namespace, or has expired."},
	{CodeFieldNotFound, http.StatusNotFound, false, "Field not found",
		"The key exists, but has no such field, member or element."},
	{CodeLimitNotFound, http.StatusNotFound, false, "Rate limit not found",
		"The app has no rate limit of this name. Define it with PUT /v1/ratelimits/{name}."},
	{CodeOverrideNotFound, http.StatusNotFound, false, "Override not found",
		"The subject has the rules of the rate limit; an override it may have had has expired or was removed."},
	{CodePoolNotFound, http.StatusNotFound, false, "Pool not found",
		"The app has no pool of this name, or has none any more. Define it with PUT /v1/pools/{pool}."},
	{CodeMemberNotFound, http.StatusNotFound, false, "Member not found",
		"The pool has no such member. Add it with PUT /v1/pools/{pool}/members/{member}."},
	{CodeLeaseNotFound, http.StatusNotFound, false, "Lease not found",
		"There is no lease with this id: it was completed, or it expired and its member was given to others. Whoever held it should stop its work."},
	{CodeMethodNotAllowed, http.StatusMethodNotAllowed, false, "Method not allowed",
		"The resource exists but does not know this method. The Allow header lists those it knows."},
	{CodeWrongType, http.StatusConflict, false, "Wrong type",
		"The key holds a value of another type than the operation works on. Nothing was changed."},
	{CodeNotANumber, http.StatusConflict, false, "Not a number",
		"The stored value is not a number of the kind the operation needs, for example a fraction added to an integer. Nothing was changed."},
	{CodeOutOfRange, http.StatusConflict, false, "Out of range",
		"The result would not fit into 64 bits, or would leave the bounds `min` and `max` of the request. Nothing was changed."},
	{CodeCursorExpired, http.StatusConflict, false, "Cursor expired",
		"The cursor belongs to an earlier shape of the cluster. Start the listing again without a cursor."},
	{CodeLeaseLost, http.StatusConflict, false, "Lease lost",
		"The lease has expired, so it cannot be renewed: others may have its place. Stop the work, and allocate anew."},
	{CodeFenceMismatch, http.StatusConflict, false, "Another fence",
		"The lease exists, but with another fence than the request names. It belongs to somebody else; nothing was changed."},
	{CodePoolEmpty, http.StatusConflict, true, "Nobody to allocate",
		"The pool has no member that could be allocated, and the request asked for a status with `Prefer: status=strict`. `detail` says why."},
	{CodePreconditionFailed, http.StatusPreconditionFailed, false, "Precondition failed",
		"If-Match or If-None-Match did not hold. The ETag header is that of the current value; it is absent when there is none. Nothing was changed."},
	{CodePayloadTooLarge, http.StatusRequestEntityTooLarge, false, "Payload too large",
		"The request body is larger than the app's request limit. It was not read to its end."},
	{CodeValueTooLarge, http.StatusRequestEntityTooLarge, false, "Value too large",
		"One value is, or would become, larger than the app's value limit. Nothing was changed."},
	{CodeBatchTooLarge, http.StatusRequestEntityTooLarge, false, "Batch too large",
		"The batch has more items than allowed. Nothing was sent; split it."},
	{CodeUnsupportedMediaType, http.StatusUnsupportedMediaType, false, "Unsupported media type",
		"JSON resources take application/json. Request bodies with a Content-Encoding are not accepted anywhere."},
	{CodeRangeNotSatisfiable, http.StatusRequestedRangeNotSatisfiable, false, "Range not satisfiable",
		"The Range header asks for bytes beyond the value. Content-Range gives its length."},
	{CodeValidationFailed, http.StatusUnprocessableEntity, false, "Validation failed",
		"The request was parsed but says something invalid. `errors` names each part and what is wrong with it. Nothing was written."},
	{CodeTTLRequired, http.StatusUnprocessableEntity, false, "TTL required",
		"The app has a maximum TTL, so a key may not live for ever. Send `ttl_ms` or `expires_at`."},
	{CodeTTLTooLong, http.StatusUnprocessableEntity, false, "TTL too long",
		"The time to live is longer than the app's maximum. It is not shortened silently."},
	{CodeResponseTooLarge, http.StatusUnprocessableEntity, false, "Response too large",
		"The value is larger than the app's response limit and was not loaded. Read it in parts, with Range on /v1/bytes or /range on /v1/strings."},
	{CodeValueNotUTF8, http.StatusUnprocessableEntity, false, "Value is not UTF-8",
		"The value has bytes that are not UTF-8 and JSON cannot carry them. Ask for `encoding=base64`, or read it through /v1/bytes."},
	{CodeCrossSlot, http.StatusUnprocessableEntity, false, "Keys in different slots",
		"The operation is atomic, so all its keys must be in one hash slot. Give them a common {tag}, or use an app with layout `together`."},
	{CodeIdempotencyMismatch, http.StatusUnprocessableEntity, false, "Idempotency key used for another request",
		"A request with this `Idempotency-Key` was done in the last 24 hours (a setting), and it was another one: method, path, query, conditions and body must be the same. Take a new key for a new request."},
	{CodeIdempotencyUnsupported, http.StatusUnprocessableEntity, false, "Idempotency-Key not supported here",
		"`Idempotency-Key` works on writes of one key, on takes and refunds of one rate limit, and on allocations and completions of pools. Reads, batches and definitions need none: they may be repeated. An answer with a large previous value is not kept either. Nothing was written."},
	{CodeCostExceedsLimit, http.StatusUnprocessableEntity, false, "Cost exceeds limit",
		"The take costs more than a rule of the limit can ever grant at once, so no repetition will pass. Nothing was taken. Split it, or raise the rule's burst or limit."},
	{CodeQuotaExceeded, http.StatusTooManyRequests, true, "Quota exceeded",
		"The app has used up the quota named in `violated-policies`, and nothing was sent to Redis; or, where a name is `limit/rule`, the rate limit that was asked with `enforce=true` refuses its subject, and nothing was taken. Retry-After says when the request can pass."},
	{CodePoolSaturated, http.StatusTooManyRequests, true, "All members at their limit",
		"Every member of the pool has as many leases as it may have, and the request asked for a status with `Prefer: status=strict`. Retry-After says when the first lease expires."},
	{CodeTooManyFailures, http.StatusTooManyRequests, false, "Too many failed authentications",
		"Too many requests with a bad key came from this address. Requests with a valid key are not affected."},
	{CodeInternal, http.StatusInternalServerError, false, "Internal error",
		"The gateway failed in a way it did not foresee. Please report it with the request id."},
	{CodeUnsupportedByCluster, http.StatusNotImplemented, false, "Unsupported by the cluster",
		"The app's Redis Cluster is too old, or not configured, for this operation."},
	{CodeBackendError, http.StatusBadGateway, true, "Backend error",
		"Redis answered something the gateway did not expect, or the connection broke. On a write `outcome` says what became of it."},
	{CodeCorruptValue, http.StatusBadGateway, false, "Corrupt value",
		"The stored value is in the gateway's envelope, but its checksum or length is wrong. It is never returned as if it were good."},
	{CodeClusterDown, http.StatusServiceUnavailable, true, "Cluster down",
		"The shard of this key is not serving now: a failover, a slot without an owner, or a node that is loading. Other keys may work."},
	{CodeBackendSaturated, http.StatusServiceUnavailable, true, "Backend saturated",
		"No connection to the shard of this key became free in time. Nothing was sent."},
	{CodeOverloaded, http.StatusServiceUnavailable, true, "Gateway overloaded",
		"There is more to do than the gateway can do well, or it holds as many bytes of requests and answers as it may. What is more important is served first. Unless `outcome` says otherwise nothing was sent. Wait Retry-After."},
	{CodeDraining, http.StatusServiceUnavailable, true, "Gateway draining",
		"This gateway is shutting down. Send the request again on a new connection."},
	{CodeBatchIncomplete, http.StatusServiceUnavailable, true, "Batch incomplete",
		"Not every item was written. `items` gives the outcome of each; sending the same batch again is the remedy. The status is 504 when the outcome of an item is unknown."},
	{CodeLimiterUnavailable, http.StatusServiceUnavailable, true, "Rate limit cannot be asked",
		"The shard of the rate limit did not answer in time, and the limit is defined to refuse then (`on_error: closed`)."},
	{CodeBackendTimeout, http.StatusGatewayTimeout, true, "Backend timeout",
		"Redis did not answer within the request's deadline. On a write `outcome` says whether it can have been applied."},
	{CodeAppliedNotReplicated, http.StatusGatewayTimeout, false, "Applied, not replicated",
		"The primary has executed the write, but not as many replicas (or disks) as `durability` asks for confirmed it in time. It stands, unless the primary fails before it has passed it on. Do not repeat it unseen."},
	{CodeOutOfMemory, http.StatusInsufficientStorage, false, "Out of memory",
		"The shard of this key has reached its memory limit and refuses writes. Nothing was changed."},
}

// codeRows indexes the table; an unknown code is an internal error, so that a forgotten row is a 500 and not a panic.
var codeRows = func() map[Code]*codeRow {
	m := make(map[Code]*codeRow, len(codeTable))
	for i := range codeTable {
		m[codeTable[i].code] = &codeTable[i]
	}
	return m
}()

func (c Code) row() *codeRow {
	if r, ok := codeRows[c]; ok {
		return r
	}
	return codeRows[CodeInternal]
}

// Codes lists every code, ordered by status.
func Codes() []Code {
	all := make([]Code, len(codeTable))
	for i := range codeTable {
		all[i] = codeTable[i].code
	}
	return all
}

// Known reports whether the code is in the table.
func (c Code) Known() bool { _, ok := codeRows[c]; return ok }

// Status is the HTTP status of the code; of an unknown code 500. Error.Status refines it for batch_incomplete.
func (c Code) Status() int { return c.row().status }

// Title is the short, constant, human name of the code.
func (c Code) Title() string { return c.row().title }

// Retryable reports whether the same request may succeed later. Error.Retryable refines it by what became of a write.
func (c Code) Retryable() bool { return c.row().retryable }

// Explanation is what GET /problems/{code} and the documentation say: what happened and what to do about it.
func (c Code) Explanation() string { return c.row().explanation }

// Type is the problem's type URI (RFC 9457): relative to the gateway, which serves an explanation there; only quota_exceeded has
// a registered one.
func (c Code) Type() string {
	if c == CodeQuotaExceeded {
		return "https://iana.org/assignments/http-problem-types#quota-exceeded"
	}
	return "/problems/" + string(c)
}
