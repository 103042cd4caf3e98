package info_test

import (
	"math"
	"testing"

	"github.com/slotgate/slotgate/store/info"
)

const answer = "# Server\r\nredis_version:7.0.15\r\nuptime_in_seconds:42\r\n\r\n# Memory\r\nused_memory:1048576\r\nmaxmemory:0\r\n" +
	"mem_fragmentation_ratio:1.25\r\n# CPU\r\nused_cpu_sys:0.5\r\nused_cpu_user:1.25\r\n# Replication\r\nrole:master\r\n" +
	"master_replid:abc\r\nmaster_repl_offset:1000\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=990,lag=0\r\n" +
	"# Keyspace\r\ndb0:keys=12,expires=3,avg_ttl=100\r\ndb1:keys=3,expires=0,avg_ttl=0,subexpiry=0\r\n"

func TestParse(t *testing.T) {
	f := info.Parse(answer)
	for name, want := range map[string]float64{"uptime_in_seconds": 42, "used_memory": 1 << 20, "maxmemory": 0, "mem_fragmentation_ratio": 1.25} {
		if got, ok := f.Number(name); !ok || got != want {
			t.Errorf("%s is %v, %v; want %v", name, got, ok, want)
		}
	}
	if sum, ok := f.Sum("used_cpu_sys", "used_cpu_user", "nowhere"); !ok || sum != 1.75 {
		t.Errorf("CPU %v, %v", sum, ok)
	}
	if keys := f.Keys(); keys != 15 {
		t.Errorf("%v keys, want 15", keys)
	}
	if f.Replica() {
		t.Error("a primary is taken for a replica")
	}
}

func TestWhatIsNoNumberIsNotThere(t *testing.T) {
	for _, value := range []string{"", "x", "-1", "1x", "NaN", "Inf", "1e999", "0x", "1,5", " 1"} {
		f := info.Parse("used_memory:" + value + "\r\n")
		if n, ok := f.Number("used_memory"); ok {
			t.Errorf("%q is taken for %v", value, n)
		}
		if _, ok := f.Sum("used_memory"); ok {
			t.Errorf("the sum of %q is a number", value)
		}
	}
	if _, ok := info.Parse("").Number("used_memory"); ok {
		t.Error("a field that is not there is a number")
	}
	if n := info.Parse("db0:keys=x\r\ndbx:keys=1\r\ndb:keys=1\r\nkeys=1\r\ndb99999999999:keys=4\r\ndb2:keys=\r\n").Keys(); n != 0 {
		t.Errorf("%v keys", n)
	}
}

func TestLag(t *testing.T) {
	primary := "role:master\r\nmaster_replid:abc\r\nmaster_repl_offset:1000\r\n"
	for name, c := range map[string]struct {
		replica string
		want    float64
		ok      bool
	}{
		"a replica behind":             {"role:slave\r\nmaster_replid:abc\r\nslave_repl_offset:900\r\n", 100, true},
		"one that was asked later":     {"role:slave\r\nmaster_replid:abc\r\nslave_repl_offset:1100\r\n", 0, true},
		"a replica of somebody else":   {"role:slave\r\nmaster_replid:xyz\r\nslave_repl_offset:900\r\n", 0, false},
		"a primary":                    {primary, 0, false},
		"one without an id":            {"role:slave\r\nslave_repl_offset:900\r\n", 0, false},
		"one that tells no offset":     {"role:slave\r\nmaster_replid:abc\r\n", 100, false},
		"one that has nothing to tell": {"", 0, false},
	} {
		got, ok := info.Lag(info.Parse(primary), info.Parse(c.replica))
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %v, %v; want %v, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{answer, "", ":", "#:", "a:b:c\n", "db0:keys=1,keys=2", "db0:", "\r\n\r\n", "role:slave\nslave_repl_offset:-5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fields := info.Parse(text)
		for name := range fields {
			if n, ok := fields.Number(name); ok && (n < 0 || math.IsNaN(n) || math.IsInf(n, 0)) {
				t.Errorf("%s is %v", name, n)
			}
		}
		if n := fields.Keys(); n < 0 || math.IsNaN(n) {
			t.Errorf("%v keys", n)
		}
		if lag, ok := info.Lag(info.Parse(answer), fields); ok && (lag < 0 || math.IsNaN(lag)) {
			t.Errorf("a lag of %v", lag)
		}
	})
}
