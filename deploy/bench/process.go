//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a server that bench started. Its output goes to a file, whose end is shown when the server fails.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when the process has ended
}

// start runs a program in the foreground. It gets a process group of its own, so that Ctrl-C reaches bench alone and the servers are
// stopped in order; should bench be killed, the kernel ends them.
func start(dir, name string, env []string, program string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(program, args...), log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // its end is what matters; the log says why
		close(p.done)
	}()
	return p, nil
}

// ready waits until addr accepts connections.
func (p *process) ready(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended at once:\n%s", p.name, p.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer on %s: %w\n%s", p.name, addr, context.Cause(ctx), p.lastWords())
		case <-tick.C:
		}
	}
}

func (p *process) lastWords() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-10):], []byte("\n")))
}

// stop asks the process to end, kills it after five seconds, and waits for its end.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

func (p *process) pids() []int { return family(p.cmd.Process.Pid) }

// family is a process and all that descend from it: nginx works in children.
func family(pid int) []int {
	all := []int{pid}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, field := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			all = append(all, family(child)...)
		}
	}
	return all
}

// freePorts returns ports on loopback that were free just now.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // held until all are found, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// findProgram looks into the system folders too: nginx is not on an ordinary user's PATH.
func findProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// required are the Debian packages of what is measured beside the gateway, each with a file that shows it is there.
var required = []struct{ pkg, program, file string }{
	{"redis-server", "redis-server", ""},
	{"webdis", "webdis", ""},
	{"nginx-core", "nginx", ""},
	{"libnginx-mod-http-lua", "", nginxModules + "/ngx_http_lua_module.so"},
	{"lua-nginx-redis", "", luaPackages + "/nginx/redis.lua"},
}

const (
	nginxModules = "/usr/lib/nginx/modules"
	luaPackages  = "/usr/share/lua/5.1"
)

// checkPackages names what is missing and the line that installs it.
func checkPackages() error {
	var missing []string
	for _, r := range required {
		var err error
		if r.program != "" {
			_, err = findProgram(r.program)
		} else {
			_, err = os.Stat(r.file)
		}
		if err != nil {
			missing = append(missing, r.pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("not installed: %s; on Debian: apt-get install -y --no-install-recommends %s",
		strings.Join(missing, ", "), strings.Join(missing, " "))
}
