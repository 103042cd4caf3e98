package faults

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/store/localcluster"
)

// The floods O-04 to O-07 need data to be read and written, and no failover.
func floodCluster(t *testing.T) *installation {
	t.Helper()
	return install(t, startCluster(t, func(o *localcluster.Options) { o.Replicas = 0 }))
}

// citizen is the client beside a flood who must not notice it: some requests a second, on connections that stay.
func (in *installation) citizen(t *testing.T, g *gateway) *load {
	t.Helper()
	l := in.load(g, 4)
	l.rate, l.ops, l.prefix = 100, []string{opPut, opGet, opAdd}, "citizen-"
	return l.start(t)
}

// unharmed says what became of the citizen in a flood, which is asserted, and how fast, which is reported.
func unharmed(t *testing.T, l *load) string {
	t.Helper()
	l.stop()
	quiet, flood := l.sum("quiet", "*", "*"), l.sum("flood", "*", "*")
	// A deadline that passed is the machine's, as is a node that was not heard in time: the flood's clients run on it too.
	if refused := flood.failures() - flood.failed["504 backend_timeout"] - flood.failed["503 cluster_down"]; refused > 0 || flood.ok == 0 {
		t.Errorf("beside the flood %d requests succeeded, and failed: %v", flood.ok, flood.failed)
	}
	before, during := quiet.times.quantile(.99), flood.times.quantile(.99)
	return fmt.Sprintf("others: %d requests, %d errors, p99 %v, before %v", flood.ok+flood.failures(), flood.failures(), ms(during), ms(before))
}

// watched samples what a gateway holds until it is stopped, and asks its admin listener all the while.
type watched struct {
	stop       func()
	mu         sync.Mutex
	peak       size
	asked      int
	unanswered int
	slowest    time.Duration
}

func (g *gateway) watch(t *testing.T) *watched {
	t.Helper()
	w := &watched{peak: g.size(t)}
	end := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			begun := time.Now()
			ok := status("http://"+g.admin+"/livez") == 200
			if w.asked++; !ok {
				w.unanswered++
			}
			w.slowest = max(w.slowest, time.Since(begun))
			resident, descriptors := g.held()
			w.mu.Lock()
			w.peak.residentMB, w.peak.descriptors = max(w.peak.residentMB, resident), max(w.peak.descriptors, descriptors)
			w.mu.Unlock()
			select {
			case <-end:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	w.stop = sync.OnceFunc(func() { close(end); group.Wait() })
	t.Cleanup(w.stop)
	return w
}

// answered asserts that the admin listener always answered, and reports how fast.
func (w *watched) answered(t *testing.T) string {
	t.Helper()
	w.stop()
	if w.unanswered > 0 {
		t.Errorf("the admin listener did not answer %d of %d requests", w.unanswered, w.asked)
	}
	return fmt.Sprintf("the admin listener answered %d of %d, in at most %v", w.asked-w.unanswered, w.asked, ms(w.slowest))
}

// held is what the kernel says of a gateway; zeros when it is gone.
func (g *gateway) held() (residentMB, descriptors int) {
	dir := fmt.Sprintf("/proc/%d/", g.cmd.Process.Pid)
	statm, _ := os.ReadFile(dir + "statm")
	if fields := strings.Fields(string(statm)); len(fields) > 1 {
		pages, _ := strconv.Atoi(fields[1])
		residentMB = pages * os.Getpagesize() >> 20
	}
	fds, _ := os.ReadDir(dir + "fd")
	return residentMB, len(fds)
}

// once runs f n times side by side and returns how long each took, sorted.
func once(n int, f func(i int)) []time.Duration {
	took := make([]time.Duration, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			begun := time.Now()
			f(i)
			took[i] = time.Since(begun)
		})
	}
	group.Wait()
	slices.Sort(took)
	return took
}

// spread is the shortest, the middle and the longest of sorted times.
func spread(took []time.Duration) string {
	if len(took) == 0 {
		return "none"
	}
	return fmt.Sprintf("after %v to %v, median %v", ms(took[0]), ms(took[len(took)-1]), ms(took[len(took)/2]))
}

// floodPatience is how long a client of a flood waits to be cut off: longer than any bound of the gateway in these tests.
const floodPatience = 60 * time.Second

// dial opens a connection that ends with the test, and no later than floodPatience allows. nil when the gateway does not take it.
func dial(g *gateway) *net.TCPConn {
	conn, err := net.DialTimeout("tcp", g.api, 10*time.Second)
	if err != nil {
		return nil
	}
	_ = conn.SetDeadline(time.Now().Add(floodPatience))
	return conn.(*net.TCPConn)
}

// drip sends a byte at each interval until the gateway ends the connection or the deadline passes; it returns what was answered and
// whether the gateway ended it.
func drip(conn net.Conn, interval time.Duration) (answer string, ended bool) {
	over := make(chan struct{})
	var text strings.Builder
	go func() {
		defer close(over)
		_, err := io.Copy(&text, conn)
		ended = err == nil || !os.IsTimeout(err)
	}()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return text.String(), ended
		case <-tick.C:
			_, _ = conn.Write([]byte("a"))
		}
	}
}

// answerOf reads one answer; its body is read and dropped. 0 when there is none.
func answerOf(r *bufio.Reader) int {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}
