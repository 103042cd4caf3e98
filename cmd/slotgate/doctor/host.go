package doctor

import (
	"fmt"
	"io/fs"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
)

const host = "host"

// What is too little. 65,536 descriptors hold as many callers; the unit in deploy asks for a million.
const (
	leastFiles   = 65_536
	leastBacklog = 1024
	// memoryShare is the part of a memory limit that GOMEMLIMIT may take: the rest is for what Go does not count.
	memoryShare = 0.95
	// busyShare of a card's interrupts on one core, of a number that tells, is a core that ends before the others do.
	busyShare      = 0.8
	manyInterrupts = 1_000_000
)

// A Host is the machine, seen through its files.
type Host struct {
	Root     fs.FS // the root of the file system; of it proc and sys are read
	MemLimit int64 // GOMEMLIMIT in bytes; 0 = none
	Procs    int   // GOMAXPROCS
	// Listen are the addresses the gateway is to take, by their setting.
	Listen map[string]string
}

// Check looks at everything. What a file system does not have (another system than Linux, a container) is passed over.
func (h Host) Check() []Finding {
	var found []Finding
	for _, look := range []func() []Finding{h.files, h.backlog, h.memoryLimit, h.redisHere, h.affinity, h.interrupts, h.ports} {
		found = append(found, look()...)
	}
	return found
}

// read gives a file's text without the space around it, "" when there is none.
func (h Host) read(name string) string {
	text, err := fs.ReadFile(h.Root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (h Host) files() []Finding {
	const check = "descriptors"
	for line := range strings.Lines(h.read("proc/self/limits")) {
		rest, is := strings.CutPrefix(line, "Max open files")
		fields := strings.Fields(rest)
		if !is || len(fields) < 2 {
			continue
		}
		n, err := strconv.Atoi(fields[1]) // the hard limit, to which Go raises the soft one
		if err == nil && n < leastFiles {
			return []Finding{warn(host, check, "LimitNOFILE=1048576 in the unit, or ulimits in compose; each caller and each connection to a node takes one",
				"%d may be open", n)}
		}
		return []Finding{ok(host, check, "%s may be open", fields[1])}
	}
	return nil
}

func (h Host) backlog() []Finding {
	const check = "somaxconn"
	n, err := strconv.Atoi(h.read("proc/sys/net/core/somaxconn"))
	switch {
	case err != nil:
		return nil
	case n < leastBacklog:
		return []Finding{warn(host, check, "sysctl net.core.somaxconn=4096", "%d connections may wait to be accepted: a fleet that reconnects is turned away", n)}
	}
	return []Finding{ok(host, check, "%d", n)}
}

// memoryLimit compares the limit of the control group with what Go was told.
func (h Host) memoryLimit() []Finding {
	const check = "memory limit"
	limit := h.cgroupMemory()
	share := int64(float64(limit) * memoryShare)
	do := fmt.Sprintf("GOMEMLIMIT=%dMiB, nine tenths of the limit", limit/10*9>>20)
	switch {
	case limit == 0:
		return []Finding{ok(host, check, "no control group limits memory")}
	case h.MemLimit == 0:
		return []Finding{warn(host, check, do, "memory is limited to %d MiB and Go does not know it: it may be ended under load", limit>>20)}
	case h.MemLimit > share:
		return []Finding{fail(host, check, do, "GOMEMLIMIT %d MiB leaves nothing of the %d MiB that the control group allows", h.MemLimit>>20, limit>>20)}
	}
	return []Finding{ok(host, check, "%d MiB, GOMEMLIMIT %d MiB", limit>>20, h.MemLimit>>20)}
}

// cgroupMemory is the closest limit of cgroup v2 around this process, 0 for none.
func (h Host) cgroupMemory() (least int64) {
	_, group, found := strings.Cut(h.read("proc/self/cgroup"), "0::")
	if !found {
		return 0
	}
	for dir := path.Join("/", strings.TrimSpace(group)); ; dir = path.Dir(dir) {
		n, err := strconv.ParseInt(h.read(path.Join("sys/fs/cgroup", dir, "memory.max")), 10, 64)
		if err == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
		if dir == "/" {
			return least
		}
	}
}

// runs says whether a program of this name runs here, as far as can be seen.
func (h Host) runs(names ...string) bool {
	entries, _ := fs.ReadDir(h.Root, "proc")
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		_, err := strconv.Atoi(e.Name())
		return err == nil && slices.Contains(names, h.read(path.Join("proc", e.Name(), "comm")))
	})
}

// redisHere looks at what matters on machines where Redis runs.
func (h Host) redisHere() []Finding {
	if !h.runs("redis-server", "valkey-server") {
		return []Finding{ok(host, "redis here", "no; look at overcommit and huge pages on the machines of the nodes")}
	}
	var found []Finding
	if mode := h.read("proc/sys/vm/overcommit_memory"); mode == "1" {
		found = append(found, ok(host, "overcommit", "1"))
	} else if mode != "" {
		found = append(found, warn(host, "overcommit", "sysctl vm.overcommit_memory=1", "vm.overcommit_memory is %s: a save in the background may fail while memory is free", mode))
	}
	if mode := h.read("sys/kernel/mm/transparent_hugepage/enabled"); strings.Contains(mode, "[always]") {
		found = append(found, warn(host, "huge pages", "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled", "transparent huge pages are always on: saves in the background cost latency and memory"))
	} else if mode != "" {
		found = append(found, ok(host, "huge pages", "%s", mode))
	}
	return found
}

// affinity says whether the process may use the whole machine.
func (h Host) affinity() []Finding {
	const check = "processors"
	online := cpuCount(h.read("sys/devices/system/cpu/online"))
	allowed := 0
	for line := range strings.Lines(h.read("proc/self/status")) {
		if list, is := strings.CutPrefix(line, "Cpus_allowed_list:"); is {
			allowed = cpuCount(strings.TrimSpace(list))
		}
	}
	switch {
	case online == 0 || allowed == 0:
		return nil
	case h.Procs > allowed:
		return []Finding{warn(host, check, "unset GOMAXPROCS: Go finds the right number by itself", "GOMAXPROCS %d is more than the %d processors allowed to this process", h.Procs, allowed)}
	}
	return []Finding{ok(host, check, "%d online, %d allowed, GOMAXPROCS %d", online, allowed, h.Procs)}
}

// cpuCount counts a list such as 0-3,8.
func cpuCount(list string) (n int) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		b := a
		if isRange && err == nil {
			b, err = strconv.Atoi(to)
		}
		if err != nil || b < a {
			return 0
		}
		n += b - a + 1
	}
	return n
}

// interrupts looks how the network cards' work is spread over the processors.
func (h Host) interrupts() []Finding {
	cores := cpuCount(h.read("sys/devices/system/cpu/online"))
	cards := h.cards()
	if cores < 2 || len(cards) == 0 {
		return nil
	}
	perCard := h.interruptsOf(cards)
	balanced := h.runs("irqbalance")
	var found []Finding
	for _, card := range cards {
		queues, _ := fs.Glob(h.Root, path.Join("sys/class/net", card, "queues/rx-*"))
		check := "interrupts " + card
		share, total := largestShare(perCard[card])
		switch {
		case total >= manyInterrupts && share > busyShare && len(queues) == 1:
			found = append(found, warn(host, check, "ethtool -L "+card+" combined "+strconv.Itoa(cores)+", or spread in software: see deploy/tuning.md, RPS",
				"one queue: %.0f %% of its interrupts are for one of %d cores", 100*share, cores))
		case total >= manyInterrupts && share > busyShare && !balanced:
			found = append(found, warn(host, check, "run irqbalance, or give each queue its core in /proc/irq/*/smp_affinity_list",
				"%.0f %% of its interrupts go to one of %d cores, and irqbalance does not run", 100*share, cores))
		case total >= manyInterrupts && share > busyShare:
			found = append(found, warn(host, check, "look at /proc/irq/*/smp_affinity_list", "%.0f %% of its interrupts go to one of %d cores, though irqbalance runs", 100*share, cores))
		default:
			found = append(found, ok(host, check, "%d queues, %d cores, irqbalance %s", len(queues), cores, map[bool]string{true: "runs", false: "does not run"}[balanced]))
		}
	}
	return found
}

// cards are the network interfaces with hardware behind them.
func (h Host) cards() (cards []string) {
	entries, _ := fs.ReadDir(h.Root, "sys/class/net")
	for _, e := range entries {
		if _, err := fs.Stat(h.Root, path.Join("sys/class/net", e.Name(), "device")); err == nil {
			cards = append(cards, e.Name())
		}
	}
	return cards
}

// interruptsOf sums /proc/interrupts by card and processor. A line belongs to a card whose name is in its last columns.
func (h Host) interruptsOf(cards []string) map[string][]int64 {
	sums := map[string][]int64{}
	lines := strings.Split(h.read("proc/interrupts"), "\n")
	cpus := len(strings.Fields(lines[0]))
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if len(fields) < cpus+2 {
			continue
		}
		name := strings.Join(fields[cpus+1:], " ")
		for _, card := range cards {
			if !strings.Contains(name, card) {
				continue
			}
			if sums[card] == nil {
				sums[card] = make([]int64, cpus)
			}
			for i := range cpus {
				n, _ := strconv.ParseInt(fields[i+1], 10, 64)
				sums[card][i] += n
			}
		}
	}
	return sums
}

func largestShare(counts []int64) (share float64, total int64) {
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return 0, 0
	}
	return float64(slices.Max(counts)) / float64(total), total
}

// ports takes each address for a moment.
func (h Host) ports() (found []Finding) {
	for _, setting := range slices.Sorted(maps.Keys(h.Listen)) {
		addr := h.Listen[setting]
		l, err := net.Listen("tcp", addr)
		switch {
		case err == nil:
			_ = l.Close()
			found = append(found, ok(host, setting, "%s is free", addr))
		case strings.Contains(err.Error(), "address already in use"):
			found = append(found, warn(host, setting, "nothing, if the gateway runs here; ss -ltnp shows who has it", "%s is taken", addr))
		default:
			found = append(found, fail(host, setting, "write an address of this machine, with a port that this user may take", "%v", err))
		}
	}
	return found
}
