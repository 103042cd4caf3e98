package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store/localcluster"
	"github.com/slotgate/slotgate/store/localcluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

func TestWhatANodeLacks(t *testing.T) {
	all := map[string]int64{"unlink": -2, "memory": -2, "getex": -2, "getdel": 2, "pexpire": -3, "pexpireat": -3, "evalsha": -3}
	without := func(change func(map[string]int64)) map[string]int64 {
		m := map[string]int64{}
		for name, arity := range all {
			m[name] = arity
		}
		change(m)
		return m
	}
	for name, row := range map[string]struct {
		arities map[string]int64
		version string
		want    []string
		since   version
	}{
		"a current one has all":                        {all, "7.0.15", nil, version{}},
		"a renamed command is lacking in any version":  {without(func(m map[string]int64) { delete(m, "getex") }), "8.4.0", []string{"GETEX"}, version{6, 2, 0}},
		"an arity of before has no conditions":         {without(func(m map[string]int64) { m["pexpire"] = 3 }), "8.4.0", []string{"PEXPIRE"}, version{7, 0, 0}},
		"options go by the version":                    {all, "5.0.14", []string{"KEEPTTL", "SCAN TYPE", "PXAT"}, version{6, 2, 0}},
		"without COMMAND INFO all goes by the version": {nil, "6.2.20", []string{"PEXPIRE with", "PEXPIREAT"}, version{7, 0, 0}},
		"without a version the commands tell":          {all, "unstable", nil, version{}},
	} {
		v, known := parseVersion(row.version)
		got, since := lacks(row.arities, v, known)
		fits := slices.EqualFunc(got, row.want, strings.Contains)
		if !fits || since != row.since {
			t.Errorf("%s: %q since %v", name, got, since)
		}
	}
}

func TestCommandsOfARealNode(t *testing.T) {
	for name, row := range map[string]struct {
		config map[string]string
		want   Status
		text   string
	}{
		"as it comes":         {nil, OK, "all that the gateway uses"},
		"two renamed":         {map[string]string{"rename-command getex": `""`, "rename-command getdel": "hidden"}, Fail, "(GETEX); reading a value and deleting it (GETDEL)"},
		"COMMAND is not told": {map[string]string{"rename-command command": `""`}, OK, "by its version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := clustertest.Run(t, localcluster.Options{Primaries: 1, Config: row.config})
			f := commands(t.Context(), "x", cluster.Nodes()[0].Client(), "7.0.15")
			if f.Status != row.want || !strings.Contains(f.Detail, row.text) || (f.Status == OK) != (f.Do == "") {
				t.Errorf("%+v", f)
			}
		})
	}
}
