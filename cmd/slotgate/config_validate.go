package main

import (
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store/metric"
)

// bounds are the least and the largest right value of a number.
type bounds struct{ min, max int64 }

const (
	oneHourMS  = 3_600_000
	redisValue = 512 << 20 // Redis' own limit of a string
)

// numberBounds has a row for every number in Config (a test looks). The upper ones catch a wrong unit, they are no
// advice.
var numberBounds = map[string]bounds{
	"compress_min_bytes":               {0, redisValue},
	"limits.key_max_bytes":             {1, 1 << 20},
	"limits.value_max_bytes":           {1, redisValue},
	"limits.request_max_bytes":         {1, 1 << 30},
	"limits.response_max_bytes":        {1, 1 << 30},
	"limits.bytes_in_flight":           {1, 1 << 42},
	"limits.deadline_ms":               {1, oneHourMS},
	"limits.idempotency_ttl_s":         {1, 30 * 86_400},
	"limits.idempotency_records_per_s": {1, 1_000_000},
	"redis.pool_size":                  {1, 10_000},
	"redis.pipeline_pool_size":         {1, 10_000},
	"redis.dial_timeout_ms":            {1, oneHourMS},
	"redis.read_timeout_ms":            {1, oneHourMS},
	"redis.write_timeout_ms":           {1, oneHourMS},
	"redis.pool_timeout_ms":            {1, oneHourMS},
	"redis.topology_reload_ms":         {100, oneHourMS},
	"redis.circuit_open_ms":            {0, oneHourMS},
	"redis.circuit_probe_ms":           {200, oneHourMS},
	"redis.max_dials":                  {1, 10_000},
	"coalesce.max_batch":               {1, 10_000},
	"coalesce.max_queued":              {1, 1_000_000},
	"batch.chunk":                      {1, 10_000},
	"batch.parallel_per_request":       {1, 1000},
	"batch.parallel_per_node":          {1, 1000},
	"batch.max_keys":                   {1, 1_000_000},
	"durability.replicas":              {0, 100},
	"durability.replica_wait_ms":       {1, oneHourMS},
	"durability.fsync_wait_ms":         {1, oneHourMS},
	"replica_reads.max_staleness_ms":   {acl.LeastStalenessMS, acl.MostStalenessMS},
	"ratelimits.timeout_ms":            {1, oneHourMS},
	"ratelimits.gateways":              {0, 10_000},
	"ratelimits.blocked_ms":            {0, 10_000},
	"pools.timeout_ms":                 {1, oneHourMS},
	"pools.member_series":              {0, metric.MaxMembers},
	"overload.shard_initial":           {1, 1 << 16},
	"overload.shard_min":               {1, 1 << 16},
	"overload.shard_max":               {1, 1 << 16},
	"retries.read":                     {0, 10},
	"retries.write":                    {0, 10},
	"retries.budget_percent":           {0, 100},
	"overload.gateway_initial":         {1, 500_000},
	"overload.gateway_min":             {1, 500_000},
	"overload.gateway_max":             {1, 500_000},
	"overload.memory_max_bytes":        {0, 1 << 42},
	"auth.failures_per_minute":         {1, 1_000_000},
	"auth.burst":                       {1, 1_000_000},
	"log.sample":                       {0, math.MaxInt32},
	"log.slow_ms":                      {0, oneHourMS},
	"log.failures_per_s":               {0, 1_000_000},
	"metrics.redis_poll_ms":            {0, oneHourMS},
	"http.max_concurrent_streams":      {1, 10_000},
	"http.max_connections":             {0, 1 << 24},
	"http.max_connections_per_peer":    {0, 1 << 24},
	"http.read_header_timeout_ms":      {1, oneHourMS},
	"http.read_timeout_ms":             {1, oneHourMS},
	"http.body_timeout_ms":             {1, oneHourMS},
	"http.body_min_bytes_per_s":        {0, 1 << 30},
	"http.write_timeout_ms":            {1, oneHourMS},
	"http.send_buffer_bytes":           {0, 1 << 30},
	"http.idle_timeout_ms":             {1, oneHourMS},
	"http.max_header_bytes":            {4096, 1 << 20},
	"http.drain_delay_ms":              {0, oneHourMS},
	"http.shutdown_timeout_ms":         {1, oneHourMS},
	"push.step_s":                      {10, 300},
	"push.chunk":                       {1, 10_000},
	"runtime.gc_percent":               {0, 10_000},
}

// Validate joins all faults of the values themselves; it opens no file and no connection. Each names its setting,
// what stands there and what is right. nil when there is none.
func (c Config) Validate() error { return c.faults().orNil() }

func (c Config) faults() faults {
	var v validation
	v.addresses(c)
	v.tls(c)
	v.clusters(c)
	v.control(c)
	v.metrics(c.Metrics)
	v.push(c.Push)
	v.jwt(c.JWT)
	v.numbers(c)
	v.relations(c)
	v.alerts(c)
	v.ceilings(c)
	return faults(v)
}

// validation collects faults.
type validation faults

func (v *validation) fault(field, format string, args ...any) {
	*v = append(*v, fault{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (v *validation) addresses(c Config) {
	v.listener("listen", c.Listen, "127.0.0.1:8080")
	v.listener("admin_listen", c.AdminListen, "127.0.0.1:8081")
	if c.Listen == c.AdminListen && !strings.HasSuffix(c.Listen, ":0") {
		v.fault("admin_listen", "%q is the API's address too; write another port, for example 127.0.0.1:8081", c.AdminListen)
	}
	for _, p := range c.TrustedProxies {
		if _, err := netip.ParsePrefix(p); err == nil {
			continue
		}
		want := "10.0.0.0/8"
		if addr, err := netip.ParseAddr(p); err == nil {
			want = netip.PrefixFrom(addr, addr.BitLen()).String()
		}
		v.fault("trusted_proxies", "%q is not a CIDR; write for example %s", p, want)
	}
}

// tls looks at the settings; the files they name are for fileFaults.
func (v *validation) tls(c Config) {
	v.pair("tls", c.TLS.CertFile, c.TLS.KeyFile)
	v.tlsVersion("tls.min_version", c.TLS.MinVersion)
	v.pair("admin_tls", c.AdminTLS.CertFile, c.AdminTLS.KeyFile)
	v.tlsVersion("admin_tls.min_version", c.AdminTLS.MinVersion)
	if c.AdminTLS.ClientCAFile != "" && c.AdminTLS.CertFile == "" {
		v.fault("admin_tls.client_ca_file", "is set without admin_tls.cert_file; client certificates need TLS on the admin listener")
	}
	if c.HTTP.H2C && c.TLS.CertFile != "" {
		v.fault("http.h2c", "is on together with tls.cert_file; over TLS http.h2 offers HTTP/2, turn http.h2c off")
	}
}

func (v *validation) pair(group, cert, key string) {
	switch {
	case cert != "" && key == "":
		v.fault(group+".key_file", "is empty; write the file with the private key of %s.cert_file", group)
	case cert == "" && key != "":
		v.fault(group+".cert_file", "is empty; write the file with the certificate of %s.key_file", group)
	}
}

func (v *validation) tlsVersion(field, version string) {
	if _, ok := tlsVersions[version]; !ok {
		v.fault(field, "%q is no version the gateway speaks; write 1.2 or 1.3", version)
	}
}

func (v *validation) clusterTLS(path string, t ClusterTLS) {
	v.pair(path, t.CertFile, t.KeyFile)
	if !t.Enabled && t != (ClusterTLS{}) {
		v.fault(path+".enabled", "is false, and so the other settings of %s do nothing; write true", path)
	}
}

func (v *validation) listener(field, addr, example string) {
	if !isHostPort(addr) {
		v.fault(field, "%q is not an address; write host:port, for example %s", addr, example)
	}
}

func isHostPort(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n >= 0 && n <= 65535
}

func (v *validation) clusters(c Config) {
	for _, name := range slices.Sorted(maps.Keys(c.Clusters)) {
		cluster, path := c.Clusters[name], "clusters."+name
		if len(cluster.Addrs) == 0 {
			v.fault(path+".addrs", "is empty; write the nodes, for example [10.0.0.1:6379, 10.0.0.2:6379]")
		}
		for _, addr := range cluster.Addrs {
			v.seed(path+".addrs", addr)
		}
		if cluster.Password != "" && cluster.PasswordFile != "" {
			v.fault(path+".password", "is set together with password_file; keep one, better the file")
		}
		if cluster.Password == redacted {
			v.fault(path+".password", "is the mask of `config print`, not the password; write it, or password_file")
		}
		v.clusterTLS(path+".tls", cluster.TLS)
	}
}

func (v *validation) seed(field, addr string) {
	if problem := acl.AddrProblem(addr); problem != "" {
		v.fault(field, "%s", problem)
	}
}

func (v *validation) control(c Config) {
	if c.Control.File != "" && c.Control.Cluster != "" {
		v.fault("control.file", "%q is set together with control.cluster; keep one", c.Control.File)
	}
	if !filepath.IsAbs(c.Control.PasswordDir) {
		v.fault("control.password_dir", "%q is not a whole path; write for example /etc/slotgate/passwords", c.Control.PasswordDir)
	}
	name := c.controlCluster()
	if _, ok := c.Clusters[name]; name != "" && !ok {
		v.fault("control.cluster", "there is no cluster %q; write one of %s", name,
			strings.Join(slices.Sorted(maps.Keys(c.Clusters)), ", "))
	}
	if c.SecretFile == "" {
		v.fault("secret_file", "is empty; make one with `head -c 32 /dev/urandom | base64 > slotgate.secret` and write its path")
	}
}

func (v *validation) push(p Push) {
	if strings.ContainsFunc(p.Endpoint, func(r rune) bool { return r == ',' || r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		v.fault("push.endpoint", "%q has a blank, comma or equals sign; write for example gw-01", p.Endpoint)
	}
	if p.URL == "" {
		return
	}
	switch u, err := url.Parse(p.URL); {
	case strings.Contains(p.URL, "@"): // not quoted back: it may hold a password
		v.fault("push.url", "holds a user or password, which is not supported; push to an agent that asks for none")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		v.fault("push.url", "%q is no URL of an agent; write for example http://127.0.0.1:1988/v1/push", p.URL)
	}
}

func (v *validation) numbers(c Config) {
	for _, s := range c.settings() {
		if k := s.Value.Kind(); k != reflect.Int && k != reflect.Int64 || strings.HasPrefix(s.Path, "ceilings.") {
			continue
		}
		n, b := s.Value.Int(), numberBounds[s.Path]
		if n < b.min || n > b.max {
			v.fault(s.Path, "%d is out of range; write %d to %d", n, b.min, b.max)
		}
	}
	levels := []string{"debug", "info", "warn", "error"}
	if !slices.Contains(levels, c.Log.Level) {
		v.fault("log.level", "%q is no level; write one of %s", c.Log.Level, strings.Join(levels, ", "))
	}
}

// leastPoll keeps a wrong unit from asking every node sixty times a second.
const leastPoll = 1000

func (v *validation) metrics(m Metrics) {
	if m.RedisPollMS > 0 && m.RedisPollMS < leastPoll {
		v.fault("metrics.redis_poll_ms", "%d asks every Redis node too often; write %d or more, or 0 for never", m.RedisPollMS, leastPoll)
	}
}

// alerts are faults of the thresholds, whose bounds stand in their own table.
func (v *validation) alerts(c Config) {
	for _, row := range thresholdTable {
		if err := row.check(row.of(c.Alerts)); err != nil {
			v.fault("alerts."+row.name, "%v", err)
		}
	}
	seen := map[threshold]string{}
	for _, text := range c.Alerts.Overrides {
		t, err := parseThreshold(text)
		if err != nil {
			v.fault("alerts.overrides", "%q %v", text, err)
			continue
		}
		key := t
		key.value = 0
		if first, twice := seen[key]; twice {
			v.fault("alerts.overrides", "%q says the same as %q; keep one", text, first)
		}
		seen[key] = text
	}
}

// relations are faults of two settings that are fine alone.
func (v *validation) relations(c Config) {
	l := c.Limits
	if l.ValueMaxBytes > l.RequestMaxBytes {
		v.fault("limits.request_max_bytes", "%d holds no value of limits.value_max_bytes; write %d or more", l.RequestMaxBytes, l.ValueMaxBytes)
	}
	if l.ValueMaxBytes > l.ResponseMaxBytes {
		v.fault("limits.response_max_bytes", "%d holds no value of limits.value_max_bytes; write %d or more", l.ResponseMaxBytes, l.ValueMaxBytes)
	}
	if l.BytesInFlight < l.RequestMaxBytes {
		v.fault("limits.bytes_in_flight", "%d never admits a request of limits.request_max_bytes; write %d or more", l.BytesInFlight, l.RequestMaxBytes)
	}
	v.places("overload.shard", c.Overload.ShardInitial, c.Overload.ShardMin, c.Overload.ShardMax)
	v.places("overload.gateway", c.Overload.GatewayInitial, c.Overload.GatewayMin, c.Overload.GatewayMax)
	if m := c.Overload.MemoryMaxBytes; m > 0 && m < l.BytesInFlight {
		v.fault("overload.memory_max_bytes", "%d is less than limits.bytes_in_flight; write %d, three times that, or lower both", m, 3*l.BytesInFlight)
	}
	if h := c.HTTP; h.MaxConnections > 0 && h.MaxConnectionsPerPeer > h.MaxConnections {
		v.fault("http.max_connections_per_peer", "%d is more than http.max_connections, and so bounds nobody; write %d or less, or 0 for half",
			h.MaxConnectionsPerPeer, h.MaxConnections)
	}
	if longest := max(c.HTTP.BodyTimeoutMS, 2*l.DeadlineMS) + l.DeadlineMS; c.HTTP.WriteTimeoutMS <= longest {
		v.fault("http.write_timeout_ms", "%d cuts off requests that may take http.body_timeout_ms and limits.deadline_ms; write more than %d",
			c.HTTP.WriteTimeoutMS, longest)
	}
}

// places are faults of a limit that finds its own value between two others.
func (v *validation) places(path string, initial, least, most int) {
	if least > most {
		v.fault(path+"_min", "%d is more than %s_max; write %d or less", least, path, most)
		return
	}
	if initial < least || initial > most {
		v.fault(path+"_initial", "%d is not between %s_min and %s_max; write %d to %d", initial, path, path, least, most)
	}
}
