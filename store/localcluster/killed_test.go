package localcluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
)

// childEnv makes the test program start a cluster and wait to be killed.
const childEnv = "SLOTGATE_TEST_CHILD"

func runChild() {
	c, err := localcluster.Start(context.Background(), localcluster.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("dir", c.Dir())
	for _, n := range c.Nodes() {
		fmt.Println("pid", n.PID())
	}
	fmt.Println("ready")
	select {}
}

func TestNothingOutlivesAKilledProgram(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // of its own, so that no other package's Start sweeps first
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=1")
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	var pids []int
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "ready"; {
		if d, ok := strings.CutPrefix(lines.Text(), "dir "); ok {
			dir = d
		}
		var pid int
		if _, err := fmt.Sscanf(lines.Text(), "pid %d", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if dir == "" || len(pids) != 3 {
		t.Fatalf("the child started %v in %q", pids, dir)
	}

	ctx := within(t, 10*time.Second)
	for _, pid := range pids {
		eventually(ctx, t, fmt.Sprintf("process %d ends with its parent", pid), func() bool { return !exists(pid) })
	}
	if err := localcluster.Sweep(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// A server that its parent could not take with it, as on other systems than Linux, is killed by the next sweep; a process that
// merely has its number is not.
func TestSweepKillsOnlyServersOfTheFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c := start(t, localcluster.Options{Primaries: 1})
	record := onlyRecord(t)
	raw, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := localcluster.Sweep(); err != nil {
		t.Error(err)
	}
	if !exists(c.Nodes()[0].PID()) {
		t.Fatal("a running program's server was swept away")
	}
	orphan := strings.Replace(string(raw), fmt.Sprintf(`"pid":%d,`, os.Getpid()), `"pid":999999999,`, 1)

	elsewhere := strings.ReplaceAll(orphan, c.Dir(), c.Dir()+"-other")
	if err := os.WriteFile(record, []byte(elsewhere), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := localcluster.Sweep(); err != nil {
		t.Error(err)
	}
	if !exists(c.Nodes()[0].PID()) {
		t.Fatal("the server of another folder was swept away")
	}

	if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil { // the sweep has removed it, empty as it was
		t.Fatal(err)
	}
	if err := os.WriteFile(record, []byte(orphan), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := localcluster.Sweep(); err != nil {
		t.Error(err)
	}
	eventually(within(t, 5*time.Second), t, "the orphan is swept away", func() bool { return !exists(c.Nodes()[0].PID()) })
	if _, err := os.Stat(c.Dir()); !os.IsNotExist(err) {
		t.Errorf("its folder is still there: %v", err)
	}
}

func onlyRecord(t *testing.T) string {
	dir := fmt.Sprintf("%s/slotgate-dev-%d", os.TempDir(), os.Getuid())
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("records: %v, %v", entries, err)
	}
	return dir + "/" + entries[0].Name()
}

func TestRecordsOfOthersAreNotBelieved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := fmt.Sprintf("%s/slotgate-dev-%d", os.TempDir(), os.Getuid())
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := localcluster.Sweep(); err == nil {
		t.Error("a folder that everybody can write to is believed")
	}
}

// exists tells whether a process still runs. One that has ended may stay a zombie where nobody waits for orphans.
func exists(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && !strings.Contains(string(stat), ") Z ")
}

func listen(t *testing.T, addr string) net.Listener {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func port(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
