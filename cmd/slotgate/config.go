package main

// Config is everything the gateway can be told. It is filled from flags, environment, one YAML file and the
// defaults (config_default.go), in this order of strength. The comment of a field is its documentation: the README's table and
// the help texts are made from it (config_doc.go), so each says unit, meaning, zero value and where the number
// comes from. A field's path is the chain of yaml names, its variable SLOTGATE_ and the path in capitals.
type Config struct {
	// Where the API answers, host:port; port 0 takes a free one. Loopback, so that a first start is open to nobody else.
	Listen string `yaml:"listen"`
	// Where /livez, /readyz and /metrics (and pprof) answer, host:port. Never expose it: it asks for no key.
	AdminListen string `yaml:"admin_listen"`
	// Also answer /readyz on the API listener, for load balancers that can reach no other port. It tells ready or not, nothing else.
	ReadyzOnAPI bool `yaml:"readyz_on_api"`
	// Serve /debug/pprof on the admin listener. Off, because a profile shows what a process holds in memory.
	Pprof bool `yaml:"pprof"`
	// File with the gateways' common secret, 32 bytes or more, the same for all of them: keys are hashed, cursors and tokens are signed with it. Required.
	SecretFile string `yaml:"secret_file"`
	// CIDRs of the proxies whose X-Forwarded-For is believed, comma-separated in the environment. Empty: nobody's.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// Values of this size or more are tried with Snappy, in bytes; 0 compresses nothing. Below 512 the envelope and the CPU cost more than the bytes saved. An app may set its own.
	CompressMinBytes int `yaml:"compress_min_bytes"`

	TLS        TLS                `yaml:"tls"`
	AdminTLS   AdminTLS           `yaml:"admin_tls"`
	Clusters   map[string]Cluster `yaml:"clusters"`
	Control    Control            `yaml:"control"`
	Limits     Limits             `yaml:"limits"`
	Ceilings   map[string]Ceiling `yaml:"ceilings"`
	Redis      Redis              `yaml:"redis"`
	Batch      Batch              `yaml:"batch"`
	Coalesce   Coalesce           `yaml:"coalesce"`
	Durability Durability         `yaml:"durability"`
	Replicas   ReplicaReads       `yaml:"replica_reads"`
	RateLimits RateLimits         `yaml:"ratelimits"`
	Pools      Pools              `yaml:"pools"`
	Retries    Retries            `yaml:"retries"`
	Overload   Overload           `yaml:"overload"`
	Auth       Auth               `yaml:"auth"`
	JWT        JWT                `yaml:"jwt"`
	Log        Log                `yaml:"log"`
	HTTP       HTTP               `yaml:"http"`
	Metrics    Metrics            `yaml:"metrics"`
	Push       Push               `yaml:"push"`
	Runtime    Runtime            `yaml:"runtime"`
	Alerts     Alerts             `yaml:"alerts"`
}

// TLS is that of the API listener.
type TLS struct {
	// Certificate of the API listener, in PEM, followed by those between it and its root. Empty: plain HTTP. It is read again each minute and by a reload; while it is bad, the old one stays in use.
	CertFile string `yaml:"cert_file"`
	// Its private key, in PEM.
	KeyFile string `yaml:"key_file"`
	// Least version of TLS, 1.2 or 1.3; suites are Go's own choice. 1.2, as some load balancers still speak nothing newer.
	MinVersion string `yaml:"min_version"`
}

// AdminTLS is that of the admin listener.
type AdminTLS struct {
	// Certificate of the admin listener, as tls.cert_file. Empty: plain HTTP.
	CertFile string `yaml:"cert_file"`
	// Its private key, in PEM.
	KeyFile string `yaml:"key_file"`
	// Least version of TLS, 1.2 or 1.3.
	MinVersion string `yaml:"min_version"`
	// Authorities whose client certificates open the admin listener, in PEM. Without such a certificate only /livez and /readyz answer, the latter without details, because probes have none. Empty: nobody is asked for one.
	ClientCAFile string `yaml:"client_ca_file"`
}

// Cluster is one Redis Cluster, under the name by which apps and control.cluster speak of it.
type Cluster struct {
	// Seed addresses, host:port, comma-separated in the environment. One that lives is enough: the others are learnt from it.
	Addrs []string `yaml:"addrs"`
	// Redis user (ACL). Empty: the default user.
	Username string `yaml:"username"`
	// Redis password. Empty: none. Better in a file: password_file.
	Password secret `yaml:"password"`
	// File with the Redis password, its last newline ignored. Not together with password.
	PasswordFile string `yaml:"password_file"`

	TLS ClusterTLS `yaml:"tls"`
}

// ClusterTLS is how the gateway and the command line speak TLS to the nodes of a cluster, 1.2 or newer. There is no switch that
// leaves a node unverified. The files are read again as those of tls, and hold for the next connections.
type ClusterTLS struct {
	// Speak TLS to the nodes of this cluster.
	Enabled bool `yaml:"enabled"`
	// Authorities that sign for the nodes, in PEM. Empty: those of the system.
	CAFile string `yaml:"ca_file"`
	// Certificate that the gateway shows to the nodes, in PEM; Redis asks for one unless tls-auth-clients is no. Empty: none.
	CertFile string `yaml:"cert_file"`
	// Its private key, in PEM.
	KeyFile string `yaml:"key_file"`
	// Name that the certificate of every node must have. Empty: each must have the host name or address under which it is reached.
	ServerName string `yaml:"server_name"`
}

// Control says where apps and keys are kept: in a cluster or in a file.
type Control struct {
	// Name of the cluster that keeps apps and keys. Empty: default, unless control.file is set.
	Cluster string `yaml:"cluster"`
	// YAML file with apps and keys, looked at each second; the CLI then only prints what to paste. Empty: they are kept in control.cluster.
	File string `yaml:"file"`
	// Folder in which the files of stored clusters (slotgate cluster add) must lie, those of passwords and of TLS; a file elsewhere is not read, whatever the control store says.
	PasswordDir string `yaml:"password_dir"`
}

// Limits bounds what one request may cost. The sizes hold for every app that does not set its own.
type Limits struct {
	// Longest key as the caller sends it, in bytes. Longer ones are a mistake, usually a value in the key's place.
	KeyMaxBytes int64 `yaml:"key_max_bytes"`
	// Largest value, decoded, in bytes. 1 MiB is 8 ms of a 1 Gbit/s line: a larger one is felt by all others.
	ValueMaxBytes int64 `yaml:"value_max_bytes"`
	// Largest request body, in bytes. 8 MiB holds a batch of 5,000 keys with values of 1.6 KiB.
	RequestMaxBytes int64 `yaml:"request_max_bytes"`
	// Largest response, in bytes: a value over it is refused, in a batch only that item is. Twice a request, for base64 and JSON.
	ResponseMaxBytes int64 `yaml:"response_max_bytes"`
	// Bytes of request bodies and of loaded values held at once by all requests together; above it requests are 503 overloaded. 256 MiB is 32 of the largest requests; give the process some more than that as GOMEMLIMIT.
	BytesInFlight int64 `yaml:"bytes_in_flight"`
	// Longest life of a request, retries included, in ms; callers lower it with X-Request-Deadline-Ms. 1 s is what a user's page can wait.
	DeadlineMS int `yaml:"deadline_ms"`
	// How long the answer to a write with an Idempotency-Key is kept for its repetition, in s. A day, after which no client tries any more.
	IdempotencyTTLS int `yaml:"idempotency_ttl_s"`
	// Such answers that an app may leave per second, and ten times as many at once; further writes with an Idempotency-Key are 429. Repetitions do not count, but are refused as well then. Each gateway counts alone. An answer takes some 250 bytes, so 50 a second all day are 1 GB.
	IdempotencyRecordsPerS int `yaml:"idempotency_records_per_s"`
	// How the limits of apps and the ceilings are kept: shared, by all gateways together, in the clusters; local, by each gateway alone, in its memory; off, not at all. Those of concurrency are always each gateway's own. See deploy/operate.md.
	Mode string `yaml:"mode"`
}

// Ceiling is a limit of the operator, under a name of your choice: what all apps, or those of one cluster, may ask for together through all
// gateways. Over it requests are 503 overloaded.
type Ceiling struct {
	// The cluster whose apps are counted together. Empty: those of all clusters.
	Cluster string `yaml:"cluster"`
	// What is counted: requests (a batch counts each of its items), or bytes (bodies of requests and of answers). Empty: requests.
	Of string `yaml:"of"`
	// Count only requests of one class of commands, as permissions name them: strings, hashes:write, *:read. Empty: all.
	Class string `yaml:"class"`
	// Count only requests of one route, by its template as the metrics name it: /v1/mget. Empty: all.
	Route string `yaml:"route"`
	// How many in a period. Required.
	Limit int64 `yaml:"limit"`
	// The period, in ms, up to a day; 0: 1000.
	PeriodMS int64 `yaml:"period_ms"`
	// How many at once after a pause, of a token_bucket; 0: limit.
	Burst int64 `yaml:"burst"`
	// How it counts: token_bucket, fixed_window or sliding_window. Empty: token_bucket.
	Algorithm string `yaml:"algorithm"`
	// prepaid: gateways draw ahead, up to 2 % more pass; exact: each request asks the cluster, never more pass. Empty: prepaid.
	Mode string `yaml:"mode"`
	// While the cluster does not answer: local, each gateway gives its part; open, everything passes; closed, nothing does. Empty: local.
	OnError string `yaml:"on_error"`
}

// Redis is how the gateway speaks to the nodes of every cluster.
type Redis struct {
	// Connections per node for single commands. 32 carry 30,000 commands a second at 1 ms each.
	PoolSize int `yaml:"pool_size"`
	// Connections per node for batches, beside pool_size. As many as batch.parallel_per_node can use.
	PipelinePoolSize int `yaml:"pipeline_pool_size"`
	// Longest connect, TLS included, in ms. Three attempts fit into a request's second.
	DialTimeoutMS int `yaml:"dial_timeout_ms"`
	// Longest wait for a reply when the request's own deadline is later, in ms. As limits.deadline_ms.
	ReadTimeoutMS int `yaml:"read_timeout_ms"`
	// Longest wait for sending a command, in ms. As limits.deadline_ms.
	WriteTimeoutMS int `yaml:"write_timeout_ms"`
	// Longest wait for a free connection, in ms; then 503 backend_saturated. Short, so that a stuck node is felt by its own keys only.
	PoolTimeoutMS int `yaml:"pool_timeout_ms"`
	// The slot map is read again after this time, in ms; also at once on a broken connection. 5 s bounds how long a node added in peace goes unused.
	TopologyReloadMS int `yaml:"topology_reload_ms"`
	// A node that has failed for so long without one answer, in ms, is cut off: its keys get 503 at once, until it answers a PING; 0: never. 500 is twice what a long script or a large value should take, and leaves half of the second in which a dead node should be found.
	CircuitOpenMS int `yaml:"circuit_open_ms"`
	// Longest pause between two PINGs to a node that does not answer, in ms; they begin 200 ms apart. 400 keeps them below five connections a second, and finds a node well within a second of its return.
	CircuitProbeMS int `yaml:"circuit_probe_ms"`
	// Most connections being made to one node at once, redis.pool_size notwithstanding. 10 fill a pool in a few round trips and are no storm for a node that has just started.
	MaxDials int `yaml:"max_dials"`
}

// Batch is how mget, mset, mdelete and mexists are spread over the nodes.
type Batch struct {
	// Commands sent to a node in one go. 100 saves most round trips, and a node answers them in well under a millisecond, so that single requests get in between.
	Chunk int `yaml:"chunk"`
	// Chunks of one request under way at once. 4 keeps a three-shard cluster busy.
	ParallelPerRequest int `yaml:"parallel_per_request"`
	// Chunks that go to one node by themselves at once, of all requests together: those with large values, or all with coalesce.off. As redis.pipeline_pool_size.
	ParallelPerNode int `yaml:"parallel_per_node"`
	// Most keys in one batch. 5,000 are 50 chunks: they fit into the request's second with room to spare.
	MaxKeys int `yaml:"max_keys"`
}

// Coalesce is how callers of the same node share a pipeline, which halves the cost of a request under load.
type Coalesce struct {
	// Send each command on a connection of its own instead.
	Off bool `yaml:"off"`
	// Most commands in one shared pipeline, and so the most writers that one broken connection leaves with outcome unknown. 256 is what 256 busy connections send at once.
	MaxBatch int `yaml:"max_batch"`
	// Most commands waiting for one node; beyond it callers get backend_saturated at once. 4,096 is what a node answers in some 50 ms.
	MaxQueued int `yaml:"max_queued"`
}

// RateLimits is about the limits that apps define (/v1/ratelimits). See deploy/operate.md.
type RateLimits struct {
	// Longest wait of a take for Redis, in ms; then on_error of the limit decides. Redis answers in a fraction of one; a busy or distant cluster needs more.
	TimeoutMS int `yaml:"timeout_ms"`
	// How many gateways share the limits of apps and those that apps define; 0: they count each other in each cluster, once a second, and one that has come holds nothing ahead for 3 s. Each holds its part of 2 % of a limit ahead, and decides for its part of the limit while Redis does not answer: too small a number gives more than the limit. Those of /v1/ratelimits need it with on_error local only.
	Gateways int `yaml:"gateways"`
	// How long a gateway repeats a refusal of Redis without asking again, in ms, at most until the subject may retry; 0: it always asks. What another gateway refunds or resets is seen that much later.
	BlockedMS int `yaml:"blocked_ms"`
}

// Pools is about the pools that apps define (/v1/pools). See deploy/operate.md.
type Pools struct {
	// Longest wait of an allocation, a report, a renewal or a completion for Redis, in ms; then 503 or 504. Redis answers in a fraction of one; a busy or distant cluster needs more.
	TimeoutMS int `yaml:"timeout_ms"`
	// How many members have metrics of their own (slotgate_pool_member_*), of all pools together, up to 1,000: those of the pools that were used first since the start, and that have 64 members at most. 0: none; members may be called what no metric should show, such as addresses with passwords.
	MemberSeries int `yaml:"member_series"`
}

// Durability is what writes wait for that ask for more than the primary (?durability=replica or fsync). See deploy/operate.md.
type Durability struct {
	// Replicas that must have such a write before it is answered; 0: all that the cluster lists for the shard, failed ones too, and at least one. Fewer than there are keep it going when one fails; a number also holds after a failover, when the list is short.
	Replicas int `yaml:"replicas"`
	// Longest wait for replicas, in ms; then 504 applied_not_replicated. One that is well is behind by a millisecond; 200 leave a request's second room for the wait of those in front.
	ReplicaWaitMS int `yaml:"replica_wait_ms"`
	// Longest wait for disks, in ms; the request's deadline may cut it shorter. With appendfsync everysec they take up to a second, two behind others: raise limits.deadline_ms for that.
	FsyncWaitMS int `yaml:"fsync_wait_ms"`
}

// ReplicaReads is about reads that a request or an app lets replicas answer (?read=replica). See deploy/operate.md.
type ReplicaReads struct {
	// Let replicas answer such reads. false: primaries do, and say so in Gateway-Served-By; no replica is asked for anything.
	Enabled bool `yaml:"enabled"`
	// How old what a replica holds may be, in ms, where neither the request nor the app says it: 2,000 to 60,000. 5,000, so that a replica that is well goes on if one of the looks that nodes get each second fails.
	MaxStalenessMS int `yaml:"max_staleness_ms"`
}

// Retries is how often the gateway tries again, inside the request's deadline. Writes are repeated only when Redis
// certainly did not execute them. An app may set its own.
type Retries struct {
	// Tries after the first, for reads; 0: none. 3 with growing pauses outlast a slot that moves.
	Read int `yaml:"read"`
	// Tries after the first, for writes that were certainly not executed; 0: none. As for reads.
	Write int `yaml:"write"`
	// Most repetitions, in percent of the requests to the cluster; 10 a second are always allowed, and 512 can be saved up in peace. 0: no bound. 10, so that a cluster in trouble gets next to no load on top; redirects and waiting for a slot that moves are not counted.
	BudgetPercent int `yaml:"budget_percent"`
}

// Overload is how the gateway refuses, with 503 overloaded and at once, what could not be done well. See deploy/operate.md.
type Overload struct {
	// Refuse what there is no place for, the least important apps first, so that the others are served well. false: everything is let in, and when that is too much it is slow for all.
	Enabled bool `yaml:"enabled"`
	// Places at each node at first, and in peace, for commands under way; of a batch ten fast ones take one. A node that answers slowly has fewer: half of them each 50 ms, until its answers come fast enough. 1,024 are what a busy node answers in some 20 ms.
	ShardInitial int `yaml:"shard_initial"`
	// The least of them. 8 keep a node busy, and show when it is well again.
	ShardMin int `yaml:"shard_min"`
	// The most of them. As coalesce.max_queued.
	ShardMax int `yaml:"shard_max"`
	// Places for requests of the gateway at first. One takes a place until it is answered, or is there for so long that it must wait for something else than the gateway; a batch takes one for each ten keys. The gateway takes places away while its own goroutines wait for processors, and gives them back; how slow Redis is does not matter to them.
	GatewayInitial int `yaml:"gateway_initial"`
	// The least of them. 64 keep two processors busy: what waits for these few is no more than the gateway does in a millisecond or two.
	GatewayMin int `yaml:"gateway_min"`
	// The most of them. 16,384 are 20,000 requests a second that wait 800 ms for Redis.
	GatewayMax int `yaml:"gateway_max"`
	// Ceiling of the process's memory, garbage not counted, in bytes. From 80 % of it bulk is refused, from 90 % normal requests with a body, from 95 % all but critical ones. 0: GOMEMLIMIT, and none without that. Another value is given to Go as GOMEMLIMIT where that variable is not set.
	MemoryMaxBytes int64 `yaml:"memory_max_bytes"`
}

// Auth throttles guessing. A good key always passes.
type Auth struct {
	// Failed authentications allowed to one peer (an IPv4 address or an IPv6 /64) per minute; further ones are 429. One a second is a human with a wrong key, not a search.
	FailuresPerMinute int `yaml:"failures_per_minute"`
	// Failures allowed at once, before the rate counts. A fleet that restarts with an old key needs some.
	Burst int `yaml:"burst"`
}

// JWT is the short-lived tokens of POST /v1/token, and those of outside issuers.
type JWT struct {
	// Who made a token (iss), the same for all gateways that are to accept each other's. Name the installation if there are several with one secret.
	Issuer string `yaml:"issuer"`
	// For whom a token is (aud). Everybody who verifies the gateways' tokens asks for it.
	Audience string `yaml:"audience"`
	// How the gateways sign: EdDSA, whose public keys are at /.well-known/jwks.json, or HS256. The same for all gateways: tokens of the other kind are refused.
	Algorithm string `yaml:"algorithm"`
	// Outside issuers whose tokens are accepted, each under a name of your choice.
	Trusted map[string]TrustedIssuer `yaml:"trusted"`
}

// TrustedIssuer is somebody else whose tokens are accepted. A token speaks for the app that it names, which must exist.
type TrustedIssuer struct {
	// Its name, exactly as in the claim iss.
	Issuer string `yaml:"issuer"`
	// What the claim aud must hold. A token that was made for somebody else is refused.
	Audience string `yaml:"audience"`
	// File with its public keys (a JSON Web Key Set), looked at each second. Or jwks_url.
	JWKSFile string `yaml:"jwks_file"`
	// Where its public keys are fetched every 10 minutes: https, or http on loopback. While it cannot be reached the last keys stay in use.
	JWKSURL string `yaml:"jwks_url"`
	// Algorithms its tokens may be signed with: EdDSA, ES256, ES384, ES512, RS256, RS384, RS512, PS256, PS384, PS512. A key is used with one of them alone.
	Algorithms []string `yaml:"algorithms"`
	// The claim that names the app. Empty: slotgate_app.
	AppClaim string `yaml:"app_claim"`
	// The claim that narrows the app's permissions, a list or words with spaces between; a token without it may then do nothing. Empty: all the app's.
	PermissionsClaim string `yaml:"permissions_claim"`
}

// Log is what is written to stderr, one JSON object a line; never a key, value or token.
type Log struct {
	// Least level written: debug, info, warn or error.
	Level string `yaml:"level"`
	// One of so many fine requests is logged; 1: all, 0: none. Slow ones and 5xx are as well, up to log.failures_per_s. One in 100 shows the shape of the traffic and costs next to nothing.
	Sample int `yaml:"sample"`
	// Requests that take longer count as slow and are logged, in ms; 0: none does. A tenth of the deadline.
	SlowMS int `yaml:"slow_ms"`
	// Lines per second about failures (5xx) of one code, and as many about slow requests; 0: all. The next line says as left_out how many were not written; metrics count all. 10 show what happens and keep a dead node from filling the disk.
	FailuresPerS int `yaml:"failures_per_s"`
}

// HTTP bounds connections and shutdown of both listeners.
type HTTP struct {
	// Answer HTTP/2 without TLS on the API listener (prior knowledge). Off: few need it, and it widens what can be sent at us.
	H2C bool `yaml:"h2c"`
	// Offer HTTP/2 on the API listener over TLS. Clients that can then mostly speak it, which costs half as much CPU again a request as HTTP/1; many requests share a connection and its handshake for that.
	H2 bool `yaml:"h2"`
	// Notice at once when the client of an HTTP/1 request has left, and send nothing more for it. Off: the request is worked to its end, which its deadline bounds, and each costs 5 to 10 % less CPU. Over TLS, on HTTP/2, and with http.h2c on, it is always noticed.
	NoticeDisconnect bool `yaml:"notice_disconnect"`
	// Running requests on one HTTP/2 connection. 100 bounds what a rapid reset can start.
	MaxConcurrentStreams int `yaml:"max_concurrent_streams"`
	// Most connections of clients at once; a further one is reset. 0: three quarters of the descriptors that the process may have (LimitNOFILE, ulimit -n), so that nodes and the admin listener always get theirs.
	MaxConnections int `yaml:"max_connections"`
	// Most of them of one peer (an IPv4 address or an IPv6 /64), those of trusted_proxies not counted. 0: half of max_connections, so that nobody alone takes them all. Lower it where clients come by themselves; name a balancer that all come through in trusted_proxies.
	MaxConnectionsPerPeer int `yaml:"max_connections_per_peer"`
	// Longest wait for a request's headers, in ms. Against clients that send a byte at a time.
	ReadHeaderTimeoutMS int `yaml:"read_header_timeout_ms"`
	// Longest reading of a whole request that no closer limit ends before, in ms. Thrice the body's time.
	ReadTimeoutMS int `yaml:"read_timeout_ms"`
	// Longest reading of the body of a request with a good key, in ms; at least twice limits.deadline_ms is taken. 8 MiB in 10 s is 840 KB/s.
	BodyTimeoutMS int `yaml:"body_timeout_ms"`
	// Least speed of a body of 64 KiB or more, in bytes per second from its beginning, after 2 s of grace; 0: none. It has reserved its length of limits.bytes_in_flight. 64 KiB is half of a line of 1 Mbit/s.
	BodyMinBytesPerS int `yaml:"body_min_bytes_per_s"`
	// Longest writing of a response, from the end of the request's headers, in ms. As reading; more than http.body_timeout_ms and limits.deadline_ms together.
	WriteTimeoutMS int `yaml:"write_timeout_ms"`
	// Most bytes of an answer that the kernel takes for one connection, for which it wants about twice the memory; 0: its own choice, up to 4 MiB on Linux. What a client does not read is then held by the gateway, which counts it in limits.bytes_in_flight and gives up at http.write_timeout_ms. 128 KiB fill a line of 1 Gbit/s with a round trip of 1 ms; raise it for clients far away.
	SendBufferBytes int `yaml:"send_buffer_bytes"`
	// An idle connection is closed after this time, in ms. Above most load balancers' 60 s would be kinder to them: raise it there.
	IdleTimeoutMS int `yaml:"idle_timeout_ms"`
	// Most bytes of request line and headers; above it 431. 16 KiB holds a key of 1 KiB percent-encoded, a JWT and some cookies.
	MaxHeaderBytes int `yaml:"max_header_bytes"`
	// After SIGTERM the gateway says not ready and goes on serving so long, in ms, until load balancers have seen it; 0: stops accepting at once. Two probes of 2 s and some.
	DrainDelayMS int `yaml:"drain_delay_ms"`
	// Then what still runs has so long to end, in ms. Together with drain_delay_ms just at Kubernetes' 30 s.
	ShutdownTimeoutMS int `yaml:"shutdown_timeout_ms"`
}

// Metrics is what /metrics tells; deploy/metrics.md lists it.
type Metrics struct {
	// Every node of every cluster, replicas too, is asked for INFO after this time, in ms, over a connection of its own; the state of clusters at least each 10 s. 0: nobody is asked, and slotgate_cluster_* and slotgate_redis_node_* lack these figures. A minute is what such figures need, and next to no load.
	RedisPollMS int `yaml:"redis_poll_ms"`
}

// Push sends figures of apps, routes, nodes and the process to an Open-Falcon or Nightingale agent. See deploy/operate.md.
type Push struct {
	// Where to POST, for example http://127.0.0.1:1988/v1/push (Open-Falcon's agent) or http://n9e:17000/openfalcon/push (Nightingale). Empty: nothing is pushed.
	URL string `yaml:"url"`
	// Time between pushes, in s; each is made at a multiple of it. 60 is the step that Open-Falcon's own figures have.
	StepS int `yaml:"step_s"`
	// Whom the figures are of. Empty: the host's name.
	Endpoint string `yaml:"endpoint"`
	// Most figures in one POST. 500 have some 100 KB.
	Chunk int `yaml:"chunk"`
}

// Runtime is how the process uses the machine; the rest is for Go's own variables, GOMAXPROCS and GOMEMLIMIT.
type Runtime struct {
	// How far the heap grows between two garbage collections, in percent of what is alive, while that is below 32 MiB; it sinks to 100 at 128 MiB. 0: Go's own 100. The variable GOGC goes before it. 400 costs some 30 MB and saves 5 to 15 % of the CPU of a GET. With a memory limit (GOMEMLIMIT or overload.memory_max_bytes) the heap may grow to three quarters of that instead, by 192 MiB of garbage at the most.
	GCPercent int `yaml:"gc_percent"`
}

// Alerts are the thresholds that the rules in deploy/prometheus compare with. The gateway exports them as
// slotgate_alert_threshold, in the units of its metrics, and does nothing else with them.
type Alerts struct {
	// Share of all requests answered with 5xx, 0 to 1, above which SlotgateErrorRatio fires. 0.01 spends the month of a 99.9 % promise in three days.
	ErrorRatio float64 `yaml:"error_ratio"`
	// The same of one app on one route, for SlotgateAppErrorRatio. Higher, as a single caller's mistakes weigh more in it.
	AppErrorRatio float64 `yaml:"app_error_ratio"`
	// Time in seconds within which 99 % of an app's requests should be answered, for SlotgateAppLatency. Between the bounds of the buckets it is interpolated. As log.slow_ms.
	AppLatencySeconds float64 `yaml:"app_latency_seconds"`
	// The same of a route, all apps together, for SlotgateRouteLatency.
	RouteLatencySeconds float64 `yaml:"route_latency_seconds"`
	// Share of an app's requests refused by its limits, 0 to 1, for SlotgateQuotaRejections. One in five is no burst any more.
	QuotaRejectionRatio float64 `yaml:"quota_rejection_ratio"`
	// Refused authentications per second, of all gateways, for SlotgateAuthFailures. 5 are five peers at auth.failures_per_minute.
	AuthFailuresPerSecond float64 `yaml:"auth_failures_per_second"`
	// Seconds before the expiry of a key at which SlotgateKeyExpiring fires. A week, so that a working day lies in it.
	KeyExpirySeconds float64 `yaml:"key_expiry_seconds"`
	// Seconds before the expiry of a certificate at which SlotgateCertificateExpiring fires. Renewal is usually due at 30 days; 14 have missed it twice.
	CertificateExpirySeconds float64 `yaml:"certificate_expiry_seconds"`
	// Share of a cluster's commands refused because connections or queue were full, 0 to 1, for SlotgatePoolSaturated. 0.001 is the whole budget of a 99.9 % promise.
	PoolSaturationRatio float64 `yaml:"pool_saturation_ratio"`
	// Share of limits.bytes_in_flight in use, 0 to 1, for SlotgateBytesInFlight. At 1 requests are refused.
	BytesInFlightRatio float64 `yaml:"bytes_in_flight_ratio"`
	// Share of a gateway's descriptors in use, 0 to 1, for SlotgateDescriptors.
	DescriptorRatio float64 `yaml:"descriptor_ratio"`
	// Share of a Redis node's maxmemory in use, 0 to 1, for SlotgateNodeMemory. The last tenth is for the buffers of a replica that begins anew.
	NodeMemoryRatio float64 `yaml:"node_memory_ratio"`
	// Keys that a cluster evicts per second, for SlotgateEvictions. 0: fires at the first.
	EvictionsPerSecond float64 `yaml:"evictions_per_second"`
	// Bytes that a replica is behind, for SlotgateReplicaLag. 10 MiB are lost in a failover, and more than Redis' own backlog of 1 MiB holds.
	ReplicaLagBytes float64 `yaml:"replica_lag_bytes"`
	// Thresholds of one app, route or cluster, comma-separated in the environment: "app_error_ratio app=shop 0.2", "app_error_ratio app=shop route=/v1/mget 0.3", "node_memory_ratio cluster=cache 0.95". The most specific one holds.
	Overrides []string `yaml:"overrides"`
}

// defaultCluster is the cluster of an app that names none.
const defaultCluster = "default"
