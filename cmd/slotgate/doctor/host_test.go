package doctor_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/slotgate/slotgate/cmd/slotgate/doctor"
)

// machine is a good one; rows change files of it.
func machine(files map[string]string) doctor.Host {
	root := fstest.MapFS{}
	all := map[string]string{
		"proc/self/limits":                                "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 1048576              files\n",
		"proc/sys/net/core/somaxconn":                     "4096\n",
		"proc/self/cgroup":                                "0::/system.slice/slotgate.service\n",
		"proc/self/status":                                "Name:\tx\nCpus_allowed_list:\t0-3\n",
		"sys/devices/system/cpu/online":                   "0-3\n",
		"sys/class/net/lo/mtu":                            "1",
		"sys/class/net/eth0/device/vendor":                "1",
		"sys/class/net/eth0/queues/rx-0/rps_cpus":         "0",
		"sys/class/net/eth0/queues/rx-1/rps_cpus":         "0",
		"proc/interrupts":                                 interrupts(900_000, 800_000, 0, 0),
		"proc/7/comm":                                     "irqbalance\n",
		"proc/sys/vm/overcommit_memory":                   "0\n",
		"sys/kernel/mm/transparent_hugepage/enabled":      "[always] madvise never\n",
		"sys/fs/cgroup/system.slice/memory.max":           "max\n",
		"sys/fs/cgroup/system.slice/slotgate.service/x":   "",
		"proc/self/not-a-process":                         "",
		"sys/fs/cgroup/memory.max-of-root-does-not-exist": "",
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		if text != "gone" {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return doctor.Host{Root: root, Procs: 4}
}

func interrupts(counts ...int) string {
	return fmt.Sprintf("      CPU0 CPU1 CPU2 CPU3\n 24: %d %d %d %d PCI-MSI 1-edge eth0-rx-0\n 25: 9000000 0 0 0 PCI-MSI 2-edge nvme0\nERR: 0\n", counts[0], counts[1], counts[2], counts[3])
}

func TestHost(t *testing.T) {
	const memoryMax = "sys/fs/cgroup/system.slice/slotgate.service/memory.max"
	for name, row := range map[string]struct {
		files    map[string]string
		memLimit int64
		check    string
		want     doctor.Status
		detail   string
	}{
		"many descriptors":                 {nil, 0, "descriptors", doctor.OK, "1048576"},
		"unlimited descriptors":            {map[string]string{"proc/self/limits": "Max open files unlimited unlimited files\n"}, 0, "descriptors", doctor.OK, "unlimited"},
		"few descriptors":                  {map[string]string{"proc/self/limits": "Max open files 1024 1024 files\n"}, 0, "descriptors", doctor.Warn, "1024"},
		"a short queue of connections":     {map[string]string{"proc/sys/net/core/somaxconn": "128"}, 0, "somaxconn", doctor.Warn, "128"},
		"no limit of memory":               {nil, 0, "memory limit", doctor.OK, "no control group"},
		"a limit that Go does not know":    {map[string]string{memoryMax: "1073741824"}, 0, "memory limit", doctor.Warn, "1024 MiB"},
		"a limit of the group above":       {map[string]string{"sys/fs/cgroup/system.slice/memory.max": "1073741824"}, 0, "memory limit", doctor.Warn, "1024 MiB"},
		"a limit that Go may fill":         {map[string]string{memoryMax: "1073741824"}, 1 << 30, "memory limit", doctor.Fail, "leaves nothing"},
		"a limit and room in it":           {map[string]string{memoryMax: "1073741824"}, 900 << 20, "memory limit", doctor.OK, "900 MiB"},
		"Redis elsewhere":                  {nil, 0, "redis here", doctor.OK, "no;"},
		"Redis here, overcommit off":       {map[string]string{"proc/8/comm": "redis-server\n"}, 0, "overcommit", doctor.Warn, "is 0"},
		"Valkey here, huge pages":          {map[string]string{"proc/8/comm": "valkey-server\n"}, 0, "huge pages", doctor.Warn, "always on"},
		"Redis here, well set":             {map[string]string{"proc/8/comm": "redis-server", "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never"}, 0, "huge pages", doctor.OK, "madvise"},
		"all processors":                   {nil, 0, "processors", doctor.OK, "4 online, 4 allowed"},
		"more threads than processors":     {map[string]string{"proc/self/status": "Cpus_allowed_list:\t0,2\n"}, 0, "processors", doctor.Warn, "2 processors allowed"},
		"interrupts of a card are spread":  {nil, 0, "interrupts eth0", doctor.OK, "2 queues, 4 cores, irqbalance runs"},
		"all on one core, irqbalance runs": {map[string]string{"proc/interrupts": interrupts(5_000_000, 1, 1, 1)}, 0, "interrupts eth0", doctor.Warn, "though irqbalance runs"},
		"all on one core, no irqbalance":   {map[string]string{"proc/interrupts": interrupts(5_000_000, 1, 1, 1), "proc/7/comm": "x"}, 0, "interrupts eth0", doctor.Warn, "irqbalance does not run"},
		"one queue":                        {map[string]string{"proc/interrupts": interrupts(5_000_000, 1, 1, 1), "sys/class/net/eth0/queues/rx-1/rps_cpus": "gone"}, 0, "interrupts eth0", doctor.Warn, "one queue"},
		"few interrupts say nothing":       {map[string]string{"proc/interrupts": interrupts(5000, 0, 0, 0)}, 0, "interrupts eth0", doctor.OK, ""},
	} {
		h := machine(row.files)
		h.MemLimit = row.memLimit
		seen := false
		for _, f := range h.Check() {
			if f.Check != row.check {
				continue
			}
			seen = true
			if f.Status != row.want || !strings.Contains(f.Detail, row.detail) || (f.Status != doctor.OK) != (f.Do != "") {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if !seen {
			t.Errorf("%s: nothing was said of %s", name, row.check)
		}
	}
}

func TestAMachineThatTellsNothing(t *testing.T) {
	damaged := map[string]string{}
	for name := range machine(nil).Root.(fstest.MapFS) {
		damaged[name] = "\x00\xff 1 2 -3-x\n:::"
	}
	for _, h := range []doctor.Host{{Root: fstest.MapFS{}}, machine(damaged)} {
		for _, f := range h.Check() {
			if f.Status == doctor.Fail {
				t.Errorf("%+v", f)
			}
		}
	}
}

func TestPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := map[string]doctor.Status{"free": doctor.OK, "taken": doctor.Warn, "elsewhere": doctor.Fail}
	h := doctor.Host{Root: fstest.MapFS{}, Listen: map[string]string{
		"free": "127.0.0.1:0", "taken": l.Addr().String(), "elsewhere": "192.0.2.1:1",
	}}
	for _, f := range h.Check() {
		if s, is := want[f.Check]; is && f.Status != s {
			t.Errorf("%+v, want %s", f, s)
		}
		delete(want, f.Check)
	}
	for name := range want {
		t.Errorf("nothing was said of %s", name)
	}
}
