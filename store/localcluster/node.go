package localcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// poll is how often a condition is looked at while waiting.
const poll = 10 * time.Millisecond

// restartTimeout bounds a Restart whose context has no deadline.
const restartTimeout = 15 * time.Second

// Role is what a node is to its slots.
type Role string

// The roles; Redis says master and slave.
const (
	Primary Role = "primary"
	Replica Role = "replica"
)

// Node is one server of a Cluster. Its methods are safe for concurrent use.
type Node struct {
	Addr string // host:port; stays over a Restart
	ID   string // the node's name in the cluster

	cluster *Cluster
	binary  string
	dir     string
	ports   [2]int

	mu      sync.Mutex
	process *process // nil before the first start
	paused  bool
	client  *redis.Client
}

// PID returns the number of the node's process, also of one that has ended.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil {
		return 0
	}
	return n.process.pid
}

// Running tells whether the node's process runs and is not paused.
func (n *Node) Running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process != nil && n.process.alive() && !n.paused
}

// Client returns a client of this node alone, for administration: no retries, no redirections. It belongs to the cluster,
// which closes it, and is another one after a Restart.
func (n *Node) Client() *redis.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client == nil {
		n.client = redis.NewClient(&redis.Options{
			Addr:                     n.Addr,
			Username:                 n.cluster.options.Username,
			Password:                 n.cluster.options.Password,
			TLSConfig:                n.cluster.tls,
			Protocol:                 2,
			MaxRetries:               -1,
			PoolSize:                 4,
			DialTimeout:              time.Second,
			ReadTimeout:              5 * time.Second,
			ContextTimeoutEnabled:    true,
			DisableIdentity:          true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
	}
	return n.client
}

func (n *Node) closeClient() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client != nil {
		_ = n.client.Close()
		n.client = nil
	}
}

// Role asks the node what it believes to be.
func (n *Node) Role(ctx context.Context) (Role, error) {
	info, err := n.info(ctx, "replication")
	if err != nil {
		return "", err
	}
	if info["role"] == "master" {
		return Primary, nil
	}
	return Replica, nil
}

func (n *Node) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := n.Client().Info(ctx, section).Result()
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", n.Addr, err)
	}
	return fields(text), nil
}

// fields reads the lines "name:value" of INFO and CLUSTER INFO.
func fields(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// Kill kills the process as a crash would, and returns when it has ended.
func (n *Node) Kill() { n.end((*os.Process).Kill, 0) }

// Stop ends the process in an orderly way: it flushes its append-only file. After 5 s it is killed.
func (n *Node) Stop() { n.end(terminate, 5*time.Second) }

func (n *Node) end(signal func(*os.Process) error, patience time.Duration) {
	n.mu.Lock()
	p, wasPaused := n.process, n.paused
	n.paused = false
	n.mu.Unlock()
	if p == nil || !p.alive() {
		return
	}
	_ = signal(p.cmd.Process) // an error says that it has ended
	if wasPaused {
		_ = resume(p.cmd.Process) // a paused process heeds nothing but Kill
	}
	if patience > 0 {
		select {
		case <-p.done:
		case <-time.After(patience):
			_ = p.cmd.Process.Kill()
		}
	}
	<-p.done
}

// Pause stops the process from doing anything, as a hung machine would: the system still accepts connections for it.
func (n *Node) Pause() error { return n.setPaused(true, pause) }

// Resume ends a Pause.
func (n *Node) Resume() error { return n.setPaused(false, resume) }

func (n *Node) setPaused(paused bool, signal func(*os.Process) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil || !n.process.alive() {
		return fmt.Errorf("%s does not run", n.Addr)
	}
	if err := signal(n.process.cmd.Process); err != nil {
		return fmt.Errorf("signalling %s: %w", n.Addr, err)
	}
	n.paused = paused
	return nil
}

// Restart starts the node again, on its old port and with what it has stored (nothing but its place in the cluster, unless the
// cluster has a Dir), and returns when it answers; WaitOK waits for the cluster. A node that runs is stopped first.
func (n *Node) Restart(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, restartTimeout)
		defer cancel()
	}
	n.Stop()
	n.closeClient() // its connections are dead, and it remembers that dialling failed
	for {
		err := n.start(ctx)
		if !errors.Is(err, errPortTaken) || !wait(ctx) {
			return err
		}
	}
}

// errPortTaken is returned by start when another program has taken a port since it was chosen.
var errPortTaken = errors.New("port in use")

// start starts the process and returns when it has loaded its data and answers.
func (n *Node) start(ctx context.Context) error {
	config, log := filepath.Join(n.dir, "redis.conf"), filepath.Join(n.dir, "redis.log")
	args := append([]string{config}, n.cluster.options.Args...)
	p, err := n.cluster.spawner.start(log, n.binary, args...)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.process = p
	n.mu.Unlock()
	if err := n.cluster.folder.add(p.pid); err != nil {
		return err
	}
	for {
		if !p.alive() {
			return n.explain(log)
		}
		if err := n.answers(ctx, p.pid); err == nil {
			return nil
		} else if !wait(ctx) {
			return fmt.Errorf("%s does not answer: %w", n.Addr, err)
		}
	}
}

// answers checks that this very process serves the port: another program might, and must not be taken into the cluster.
func (n *Node) answers(ctx context.Context, pid int) error {
	// The client is asked only when somebody listens: after some failed dials it would wait a second between them.
	conn, err := net.DialTimeout("tcp", n.Addr, time.Second)
	if err != nil {
		return err
	}
	_ = conn.Close()
	info, err := n.info(ctx, "everything")
	switch {
	case err != nil:
		return err
	case info["process_id"] != fmt.Sprint(pid):
		return fmt.Errorf("%s is served by process %s", n.Addr, info["process_id"])
	case info["loading"] != "0":
		return fmt.Errorf("%s is loading its data", n.Addr)
	}
	return nil
}

// explain tells from its log why a server has ended.
func (n *Node) explain(log string) error {
	raw, _ := os.ReadFile(log)
	text := strings.TrimSpace(string(raw))
	if strings.Contains(text, "Address already in use") || strings.Contains(text, "Failed listening on port") {
		return fmt.Errorf("%s: %w", n.Addr, errPortTaken)
	}
	if strings.Contains(text, "Failed finding TLS support") {
		return fmt.Errorf("%s: %w", n.binary, ErrNoTLS)
	}
	lines := strings.Split(text, "\n")
	return fmt.Errorf("%s ended at once; its last words: %s", n.binary, strings.Join(lines[max(0, len(lines)-5):], " | "))
}

// wait waits a moment and tells whether ctx is still on.
func wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(poll):
		return true
	}
}
