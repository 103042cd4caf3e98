package metric

// The request path.
var (
	BuildInfo = define("slotgate_build_info", Gauge, "What the gateway was built from; always 1.", "version", "revision", "goversion")

	HTTPRequests           = define("slotgate_http_requests_total", Counter, "Requests answered, by route template, method, status and app.", "route", "method", "code", "app")
	HTTPErrors             = define("slotgate_http_errors_total", Counter, "Requests answered with a problem, by its code in the API.", "app", "route", "code")
	HTTPRequestBytes       = define("slotgate_http_request_bytes_total", Counter, "Bytes of request bodies, as far as they were read.", "route", "app")
	HTTPResponseBytes      = define("slotgate_http_response_bytes_total", Counter, "Bytes of response bodies.", "route", "app")
	HTTPDuration           = define("slotgate_http_request_duration_seconds", Histo, "Time from arrival to the end of the answer.", "route", "method")
	AppDuration            = define("slotgate_app_request_duration_seconds", Histo, "Time from arrival to the end of the answer, by app.", "app")
	HTTPInFlight           = define("slotgate_http_in_flight_requests", Gauge, "Requests that run now, of authenticated callers.", "app")
	HTTPRequestSize        = define("slotgate_http_request_size_bytes", Histo, "Bytes of request bodies, as far as they were read.", "route", "method")
	HTTPResponseSize       = define("slotgate_http_response_size_bytes", Histo, "Bytes of response bodies.", "route", "method")
	HTTPPanics             = define("slotgate_http_panics_total", Counter, "Panics turned into 500.")
	QuotaRejections        = define("slotgate_quota_rejections_total", Counter, "Requests refused with quota_exceeded, by app and policy.", "app", "policy")
	QuotaRemaining         = define("slotgate_quota_remaining_ratio", Gauge, "Share of the app's quota that is left now, from 0 to 1.", "app", "policy")
	QuotaUnasked           = define("slotgate_quota_unasked_total", Counter, "Decisions about a limit that gateways share which its cluster was not asked for, as it did not answer in time: by on_error, each gateway for itself. Ceilings have the app slotgate.", "app", "policy")
	CeilingRejections      = define("slotgate_ceiling_rejections_total", Counter, "Requests refused with overloaded because a ceiling of the operator was reached.", "ceiling")
	CeilingRemaining       = define("slotgate_ceiling_remaining_ratio", Gauge, "Share of a ceiling of the operator that is left now, from 0 to 1.", "ceiling")
	AuthFailures           = define("slotgate_auth_failures_total", Counter, "Failed authentications, by reason. Clients see one answer for all.", "reason")
	HTTPConnections        = define("slotgate_http_connections", Gauge, "Connections of clients that are open now.")
	HTTPConnectionsRefused = define("slotgate_http_connections_refused_total", Counter, "Connections reset as soon as they came: total = over http.max_connections, peer = over http.max_connections_per_peer.", "reason")
	BytesInFlight          = define("slotgate_bytes_in_flight", Gauge, "Bytes of requests and answers reserved now.")
	BytesLimit             = define("slotgate_bytes_in_flight_limit", Gauge, "Bytes that may be reserved at once.")
	DroppedLabels          = define("slotgate_metrics_dropped_labels_total", Counter, "Requests counted under app __other__ because there are too many apps.")
)

// The gateway's own protection from overload.
var (
	OverloadShed      = define("slotgate_overload_shed_total", Counter, "Requests refused with overloaded before their body was read, by class and reason: full = over slotgate_overload_limit, deadline = could not be answered in time, memory = over slotgate_overload_memory_max_bytes.", "reason", "class")
	OverloadLimit     = define("slotgate_overload_limit", Gauge, "Places for requests that the gateway has now; it takes some away while it is slow itself. Bulk may fill 60 % of them, normal 85 %.")
	OverloadInFlight  = define("slotgate_overload_in_flight", Gauge, "Places that are taken; a request takes one, a batch one for each ten keys.")
	OverloadWaiting   = define("slotgate_overload_waiting", Gauge, "Places that requests have left because they wait for long, and so for something else than the gateway: a slow shard, a body or a client.")
	OverloadCPUWait   = define("slotgate_overload_cpu_wait_seconds", Gauge, "How long the gateway's goroutines waited for a processor in the last 100 ms, on average. A request waits several times.")
	OverloadMemory    = define("slotgate_overload_memory_bytes", Gauge, "Memory of the process that is no garbage, as of the last garbage collection.")
	OverloadMemoryMax = define("slotgate_overload_memory_max_bytes", Gauge, "The ceiling: bulk is refused from 80 % of it, normal with a body from 90 %, all normal from 95 %; 0 = none.")
)

// Apps, keys and the configuration.
var (
	KeyLastUsed         = define("slotgate_key_last_used_timestamp_seconds", Gauge, "When the key was last used, to the minute; at this gateway at once, at others when the set is loaded again. Keys beyond 1000 share key_id __other__.", "app", "key_id")
	KeyExpires          = define("slotgate_key_expires_timestamp_seconds", Gauge, "When a key that is in use expires; the soonest 1000.", "app", "key_id")
	ControlConnected    = define("slotgate_control_connected", Gauge, "1 if the storage of apps and keys answered when it was last asked, which is each second; 0 while known keys are served from memory.")
	ControlLastSuccess  = define("slotgate_control_last_success_timestamp_seconds", Gauge, "When the storage of apps and keys last answered; 0 = never.")
	CertificateExpiry   = define("slotgate_certificate_expiry_timestamp_seconds", Gauge, "When the certificate in use expires: of the listeners api and admin, and the one shown to a cluster as cluster-NAME.", "listener")
	ConfigLastReload    = define("slotgate_config_last_reload_successful", Gauge, "0 if the last reload was refused, or if certificates cannot be used since their files changed; the old state is in use then.")
	ConfigReloadSuccess = define("slotgate_config_reload_success_timestamp_seconds", Gauge, "When the configuration in use was loaded.")
	AlertThreshold      = define("slotgate_alert_threshold", Gauge, "Value from which an alert fires, from the settings under alerts. An empty label holds for all that have no value of their own.", "alert", "app", "route", "cluster")
)

// What is pushed to an Open-Falcon or Nightingale agent.
var (
	PushItems    = define("slotgate_push_items_total", Counter, "Items for the Open-Falcon agent: sent, or dropped because the agent did not confirm them.", "result")
	PushFailures = define("slotgate_push_failures_total", Counter, "POSTs to the Open-Falcon agent that failed: timeout, refused, or status other than 2xx.", "reason")
)

// Redis, as the gateway's own commands see it. node is the address that is dialled; __other__ stands for nodes beyond 500 of a
// cluster, and "" for what failed before a node was known.
var (
	RedisDuration       = define("slotgate_redis_command_duration_seconds", Histo, "Time of a Redis command, repetitions included; a batch counts once for each chunk.", "cluster", "command")
	RedisNodeDuration   = define("slotgate_redis_node_command_duration_seconds", Histo, "Time of a Redis command by the node that was asked last, repetitions included; a batch counts once for each chunk.", "cluster", "node")
	RedisErrors         = define("slotgate_redis_errors_total", Counter, "Commands that failed, repetitions included, by error code.", "cluster", "kind")
	RedisRetries        = define("slotgate_redis_retries_total", Counter, "Commands sent again by the gateway, by the node that made it necessary.", "cluster", "node")
	RedisRedirects      = define("slotgate_redis_redirects_total", Counter, "MOVED and ASK answers, by the node that gave them.", "cluster", "node", "kind")
	RedisPoolConns      = define("slotgate_redis_pool_connections", Gauge, "Connections to a node, those for single commands and those for pipelines together.", "cluster", "node", "state")
	RedisPoolTimeouts   = define("slotgate_redis_pool_timeouts_total", Counter, "Waits for a connection that were given up.", "cluster", "node")
	RedisPoolWait       = define("slotgate_redis_pool_wait_seconds_total", Counter, "Time spent waiting for a free connection.", "cluster", "node")
	RedisCircuitOpen    = define("slotgate_redis_circuit_open", Gauge, "1 while the node does not answer and commands to it are refused at once.", "cluster", "node")
	RedisCircuitOpens   = define("slotgate_redis_circuit_opens_total", Counter, "Times that commands to the node began to be refused at once.", "cluster", "node")
	RedisPlaces         = define("slotgate_redis_places", Gauge, "Places at the node, which commands take while they are under way and a batch takes one of for ten commands: it falls when the node answers slowly, see overload.shard_max.", "cluster", "node")
	RedisPlacesTaken    = define("slotgate_redis_places_taken", Gauge, "Places at the node that are taken.", "cluster", "node")
	RedisShed           = define("slotgate_redis_shed_total", Counter, "Commands, or chunks of a batch, that were not sent (503 overloaded) because the node has too much to do: full, no place for this class; deadline, it would not have answered in time.", "cluster", "node", "reason", "class")
	RedisRetriesRefused = define("slotgate_redis_retries_refused_total", Counter, "Repetitions that were not made because retries.budget_percent was used up; of a batch, each item counts.", "cluster")
	DurableWrites       = define("slotgate_redis_durable_writes_total", Counter, "Writes with durability replica or fsync: ok, or the code of what became of them; applied_not_replicated are those whose copies were not confirmed in time.", "cluster", "durability", "result")
	DurableDuration     = define("slotgate_redis_durable_seconds", Histo, "Time of a group of durable writes to a node, until their copies were confirmed or given up.", "cluster", "durability")
	BatchItems          = define("slotgate_batch_items_total", Counter, "Items of mget, mset, mdelete and mexists: ok, or the code of what became of them.", "cluster", "result")
)

// Reads whose caller lets replicas answer (read=replica): who is chosen, and what is known of whom. Nodes beyond 500 of a cluster are left out.
var (
	ReplicaReads = define("slotgate_replica_reads_total", Counter, "Reads with read=replica, of a batch each item: answered by a replica or by the primary; or by the primary in the ordinary way, because no replica may be asked (unknown), those asked did not answer or the slot has moved (failed), one has no such key (absent), or one had less than was known of it (doubted).", "cluster", "result")

	ReadNodeState     = readNodeMetric("state", Gauge, "How a node is that reads with read=replica may go to: 0 healthy, 1 degraded, 2 ejected.")
	ReadNodeWeight    = readNodeMetric("weight", Gauge, "Weight of the node among those of its shard, from 0.1 to 1, and 0 while it is ejected; a primary counts for half.")
	ReadNodePicks     = readNodeMetric("picks_total", Counter, "Reads, or chunks of a batch, that the node was chosen for. Its share is its rate beside the others'.")
	ReadNodeEjections = readNodeMetric("ejections_total", Counter, "Times that the node was ejected.")
	ReadNodeInFlight  = readNodeMetric("in_flight", Gauge, "Reads, or chunks of a batch, that are under way to the node.")
	ReadNodeLatency   = readNodeMetric("latency_seconds", Gauge, "What a read of one value takes at the node, as the choice goes by it; absent while it is not known.")
	ReadNodeAge       = readNodeMetric("staleness_seconds", Gauge, "How old what the node holds may be, 0 of a primary; absent while it is not known. A read goes only to nodes below its max_staleness_ms.")
)

func readNodeMetric(name string, kind Kind, help string) Metric {
	return define("slotgate_read_node_"+name, kind, help, "cluster", "node", "role")
}

// The limits that apps define for their own users (/v1/ratelimits).
var (
	RateLimitTakes    = define("slotgate_ratelimit_takes_total", Counter, "Takes of limits that apps define: allowed, denied, shadow_denied (would have been refused), cached (refused without asking Redis, which had just done so), replayed (a repetition with the same Idempotency-Key); and when Redis did not answer in time, fail_open, fail_closed, local and local_denied.", "app", "limit", "result")
	RateLimitNear     = define("slotgate_ratelimit_near_limit_total", Counter, "Takes that were allowed and left a rule with a fifth of its limit, or of its burst, or less.", "app", "limit")
	RateLimitDuration = define("slotgate_ratelimit_take_duration_seconds", Histo, "Time of a take, by its result as in slotgate_ratelimit_takes_total.", "result")
)

// The pools that apps define (/v1/pools). What is known of members is asked of Redis every ten seconds, so every gateway says the same: take
// the greatest, not the sum.
var (
	PoolAllocations       = define("slotgate_pool_allocations_total", Counter, "Requests to allocate from pools: allocated, replayed (a repetition with the same Idempotency-Key); why there was nobody, empty, excluded, no_weight, cooling or saturated; failed, when Redis did not answer.", "app", "pool", "result")
	PoolAllocateDuration  = define("slotgate_pool_allocation_duration_seconds", Histo, "Time of an allocation, by its result as in slotgate_pool_allocations_total.", "result")
	PoolReports           = define("slotgate_pool_reports_total", Counter, "Reports on members: success, failure, timeout; unknown, of a member that had left or was not available.", "app", "pool", "outcome")
	PoolLeases            = define("slotgate_pool_leases_total", Counter, "What became of leases: renewed, completed, late (completed when it had expired), lost (renewed or completed when it had expired and was gone), abandoned (expired, and ended by this gateway).", "app", "pool", "result")
	PoolEjections         = define("slotgate_pool_ejections_total", Counter, "Members of adaptive pools that were ejected after a report to this gateway, or an abandoned lease that it ended.", "app", "pool")
	PoolMemberState       = define("slotgate_pool_member_state", Gauge, "State of a member: 0 healthy, also where the policy knows no health; 1 degraded; 2 unhealthy, it is ejected; 3 not available, or it cools.", "app", "pool", "member")
	PoolMemberWeight      = define("slotgate_pool_member_weight", Gauge, "Weight of a member, of adaptive times what reports say of it.", "app", "pool", "member")
	PoolMemberShare       = define("slotgate_pool_member_share", Gauge, "Part of the allocations, 0 to 1, that the member is to get by the policy.", "app", "pool", "member")
	PoolMemberAllocations = define("slotgate_pool_member_allocations", Gauge, "Allocations of the member; falls when counts are rebased, and by those that a failover has lost.", "app", "pool", "member")
	PoolMemberInflight    = define("slotgate_pool_member_inflight", Gauge, "Leases of the member.", "app", "pool", "member")
)

// Redis, as its nodes describe themselves when they are polled. A node that leaves its cluster leaves the metrics.
var (
	ClusterUp      = define("slotgate_cluster_up", Gauge, "1 if most primaries say that the cluster serves.", "cluster")
	ClusterSlotsOK = define("slotgate_cluster_slots_ok", Gauge, "Slots that a primary serves, of 16384.", "cluster")
	ClusterNodes   = define("slotgate_cluster_nodes", Gauge, "Nodes that the cluster names: primaries with slots, and replicas that have not failed.", "cluster", "role")

	NodeUp            = nodeMetric("up", Gauge, "1 if the node answered the last poll.")
	NodeUptime        = nodeMetric("uptime_seconds", Gauge, "Time since the server started.")
	NodeMemoryUsed    = nodeMetric("memory_used_bytes", Gauge, "Memory that the allocator gave to Redis.")
	NodeMemoryMax     = nodeMetric("memory_max_bytes", Gauge, "maxmemory; 0 = no limit.")
	NodeFragmentation = nodeMetric("memory_fragmentation_ratio", Gauge, "Resident memory divided by used memory.")
	NodeCPU           = nodeMetric("cpu_seconds_total", Counter, "CPU time of the server, user and system.")
	NodeClients       = nodeMetric("clients", Gauge, "Client connections, replicas excluded.")
	NodeOps           = nodeMetric("ops_per_second", Gauge, "Commands per second, as the server averages them over its last 1.6 s.")
	NodeCommands      = nodeMetric("commands_total", Counter, "Commands that the server has processed.")
	NodeHits          = nodeMetric("keyspace_hits_total", Counter, "Look-ups that found their key.")
	NodeMisses        = nodeMetric("keyspace_misses_total", Counter, "Look-ups that did not.")
	NodeEvicted       = nodeMetric("evicted_keys_total", Counter, "Keys removed because of maxmemory.")
	NodeExpired       = nodeMetric("expired_keys_total", Counter, "Keys removed because their time was over.")
	NodeKeys          = nodeMetric("keys", Gauge, "Keys of all databases.")
	NodeNetworkIn     = nodeMetric("network_input_bytes_total", Counter, "Bytes that the server has read.")
	NodeNetworkOut    = nodeMetric("network_output_bytes_total", Counter, "Bytes that the server has written.")
	NodeMasterLinkUp  = nodeMetric("master_link_up", Gauge, "Replicas only: 1 if the link to the primary stands.")
	NodeLag           = nodeMetric("replication_lag_bytes", Gauge, "Replicas only: how far the replica is behind its primary.")
)

func nodeMetric(name string, kind Kind, help string) Metric {
	return define("slotgate_redis_node_"+name, kind, help, "cluster", "node", "role")
}
