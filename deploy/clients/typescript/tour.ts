// The README's tour, and a worker of a pool, with a TypeScript client: the types openapi-typescript has made from openapi/openapi.yaml, and openapi-fetch.
// deploy/clients/run makes the types beside this file, compiles both and runs them.
import { deepStrictEqual, ok } from "node:assert";
import createClient from "openapi-fetch";
import type { components, paths } from "./slotgate.js";

const gw = process.env["GW"] ?? "";

// A key that needs escaping: a slash, characters outside ASCII, a percent sign, a plus, a space.
const awkward = "tour-ts/grüße/100% + ☃";

const connect = (key: string) => createClient<paths>({ baseUrl: gw, headers: { Authorization: `Bearer ${key}` } });
const client = connect(process.env["KEY"] ?? "");

type Answer<D> = { data?: D; error?: unknown; response: Response };

/** The body of an answer, unless the status is another. */
function body<D>(answer: Answer<D>, status = 200): D {
  refusable(answer, status);
  return answer.data as D;
}

/** The problem of an answer, unless the status is another. */
function problem(answer: Answer<unknown>, status: number): components["schemas"]["Problem"] {
  refusable(answer, status);
  return answer.error as components["schemas"]["Problem"];
}

function refusable(answer: Answer<unknown>, status: number) {
  const { response, error } = answer;
  deepStrictEqual(response.status, status, `status ${response.status}, want ${status}: ${response.url} ${JSON.stringify(error)}`);
}

/** Octets as the body of a request: the types take format: binary for a string. */
const octets = (data: Uint8Array) => ({
  body: data as unknown as string,
  bodySerializer: () => data as Uint8Array<ArrayBuffer>,
  headers: { "Content-Type": "application/octet-stream" },
});

const path = (key: string) => ({ params: { path: { key } } });

async function whoami() {
  const me = body(await client.GET("/v1/whoami"));
  ok(me.app.namespace && me.sizes.value_max_bytes && me.permissions.length, JSON.stringify(me));
}

async function strings() {
  const put = body(await client.PUT("/v1/strings/{key}", { ...path(awkward), body: { value: "hellö", ttl_ms: 600_000 } }));
  const answer = await client.GET("/v1/strings/{key}", { params: { path: { key: awkward }, query: { include: "ttl" } } });
  const got = body(answer);
  deepStrictEqual([got.value, got.etag, answer.response.headers.get("ETag")], ["hellö", put?.etag, put?.etag]);
  ok(got.ttl_ms !== undefined && got.ttl_ms >= 1 && got.ttl_ms <= 600_000, JSON.stringify(got));
}

async function conditions() {
  const params = { path: { key: awkward }, header: { "If-None-Match": "*" } };
  deepStrictEqual(problem(await client.PUT("/v1/strings/{key}", { params, body: { value: "x" } }), 412).code, "precondition_failed");
}

async function counters() {
  const key = "tour-ts/visits";
  body(await client.PUT("/v1/counters/{key}", { ...path(key), body: { value: Number.MAX_SAFE_INTEGER } }));
  // Beyond 2^53 this language's numbers are inexact, which is what int64=string is for.
  const params = { path: { key }, query: { int64: "string" as const } };
  deepStrictEqual(body(await client.POST("/v1/counters/{key}/add", { params, body: { delta: 2 } })).value, "9007199254740993");
  deepStrictEqual(body(await client.GET("/v1/counters/{key}", { params })).value, "9007199254740993");
  const below = await client.POST("/v1/counters/{key}/add", { ...path("tour-ts/stock"), body: { delta: -7, min: 0 } });
  deepStrictEqual(problem(below, 409).code, "out_of_range");
}

async function bytes() {
  const all = Uint8Array.from({ length: 256 }, (_, i) => i);
  const key = path("tour-ts/bytes");
  body(await client.PUT("/v1/bytes/{key}", { ...key, ...octets(all) }), 204);
  deepStrictEqual(new Uint8Array(body(await client.GET("/v1/bytes/{key}", { ...key, parseAs: "arrayBuffer" }))), all);
  const params = { ...key.params, header: { Range: "bytes=254-" } };
  deepStrictEqual(new Uint8Array(body(await client.GET("/v1/bytes/{key}", { params, parseAs: "arrayBuffer" }), 206)), all.slice(254));
  const head = await client.HEAD("/v1/bytes/{key}", key);
  body(head);
  deepStrictEqual(head.response.headers.get("Content-Length"), "256");
}

async function batches() {
  const items = [["a", "1"], ["b", "2"], ["ç", "3"]].map(([key, value]) => ({ key: `tour-ts/${key}`, value: value! }));
  deepStrictEqual(body(await client.POST("/v1/mset", { body: { items } })).written, 3);
  const got = body(await client.POST("/v1/mget", { body: { keys: ["tour-ts/ç", "tour-ts/missing", "tour-ts/a"] } }));
  deepStrictEqual(got, {
    items: [{ key: "tour-ts/ç", found: true, value: "3" }, { key: "tour-ts/missing", found: false }, { key: "tour-ts/a", found: true, value: "1" }],
    errors: false,
  });
  const exists = body(await client.POST("/v1/mexists", { body: { keys: ["tour-ts/b", "tour-ts/missing"] } }));
  deepStrictEqual(exists.items.map((item) => item.exists), [true, false]);
}

async function keys() {
  deepStrictEqual(body(await client.PUT("/v1/keys/{key}/ttl", { ...path("tour-ts/a"), body: { ttl_ms: 60_000 } })).applied, true);
  const info = body(await client.GET("/v1/keys/{key}", path("tour-ts/a")));
  deepStrictEqual([info.key, info.type], ["tour-ts/a", "string"]);
  ok(info.ttl_ms, JSON.stringify(info));
  refusable(await client.HEAD("/v1/keys/{key}", path("tour-ts/missing")), 404);
  body(await client.DELETE("/v1/keys/{key}/ttl", path("tour-ts/a")), 204);
}

async function listing() {
  const found = new Set<string | undefined>(); // a listing may name a key twice
  let query: { prefix: string; limit: number; cursor?: string } = { prefix: "tour-ts/", limit: 2 };
  for (;;) {
    const page = body(await client.GET("/v1/keys", { params: { query } }));
    for (const item of page.items) found.add(item.key);
    if (page.next_cursor === undefined) break;
    query = { ...query, cursor: page.next_cursor };
  }
  deepStrictEqual([...found].sort(), ["tour-ts/a", "tour-ts/b", "tour-ts/bytes", awkward, "tour-ts/visits", "tour-ts/ç"]);
}

async function deleting() {
  body(await client.DELETE("/v1/strings/{key}", path(awkward)), 204);
  deepStrictEqual(problem(await client.GET("/v1/strings/{key}", path(awkward)), 404).code, "key_not_found");
  const rest = ["a", "b", "ç", "bytes", "visits"].map((name) => `tour-ts/${name}`);
  const gone = body(await client.POST("/v1/mdelete", { body: { keys: rest } }));
  deepStrictEqual(gone.items.map((item) => item.deleted), rest.map(() => true));
}

/** What a worker does: it leases a member once, however often it asks, renews the lease and completes it. */
async function pools() {
  const at = { path: { pool: "tour-ts" } };
  body(await client.PUT("/v1/pools/{pool}", { params: at, body: { policy: "least_inflight", lease: { max_per_member: 1 } } }));
  const meta = { url: "http://10.0.0.1:3128" };
  body(await client.PUT("/v1/pools/{pool}/members", { params: at, body: { members: [{ member: awkward, meta }, { member: "z" }] } }));

  const allocate = async (header = {}) => body(await client.POST("/v1/pools/{pool}/allocations", { params: { ...at, header }, body: {} }));
  const once = { "Idempotency-Key": `"${crypto.randomUUID()}"` };
  const [first, again, other, nobody] = [await allocate(once), await allocate(once), await allocate(), await allocate()];
  deepStrictEqual([first.member, first.meta, again.lease, other.member], [awkward, meta, first.lease, "z"]);
  deepStrictEqual([nobody.member, nobody.reason], [null, "saturated"]);
  ok(first.lease, JSON.stringify(first));

  const { id, fence } = first.lease;
  const lease = { path: { pool: "tour-ts", lease: id } };
  body(await client.PATCH("/v1/pools/{pool}/leases/{lease}", { params: lease, body: { fence, lease_ms: 60_000 } }));
  const member = { path: { pool: "tour-ts", member: awkward } };
  deepStrictEqual(body(await client.GET("/v1/pools/{pool}/members/{member}", { params: member })).inflight, 1);
  const done = { fence, outcome: "success" as const, latency_ms: 120 };
  deepStrictEqual(body(await client.POST("/v1/pools/{pool}/leases/{lease}/complete", { params: lease, body: done })).late, false);
  const twice = await client.POST("/v1/pools/{pool}/leases/{lease}/complete", { params: lease, body: { fence } });
  deepStrictEqual(problem(twice, 404).code, "lease_not_found");

  body(await client.PATCH("/v1/pools/{pool}", { params: at, body: { policy: "adaptive" } }));
  const reports = Array.from({ length: 5 }, () => ({ member: "z", outcome: "failure" as const }));
  const health = body(await client.POST("/v1/pools/{pool}/reports", { params: at, body: { reports } }));
  deepStrictEqual(health.items.at(-1)?.state, "unhealthy");
  body(await client.DELETE("/v1/pools/{pool}", { params: at }), 204);
  deepStrictEqual(problem(await client.POST("/v1/pools/{pool}/allocations", { params: at, body: {} }), 404).code, "pool_not_found");
}

async function refusal() {
  deepStrictEqual(problem(await connect("sg_nobody").GET("/v1/whoami"), 401).code, "unauthenticated");
}

const steps = [whoami, strings, conditions, counters, bytes, batches, keys, listing, deleting, pools, refusal];
for (const step of steps) {
  try {
    await step();
  } catch (error) {
    console.error(`TypeScript client: ${step.name}:`, error);
    process.exit(1);
  }
}
console.log(`TypeScript client: ${steps.length} steps passed`);
