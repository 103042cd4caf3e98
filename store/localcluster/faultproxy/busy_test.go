package faultproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
)

// dialBusy returns a connection through the proxy of a server that is busy for so long with each command.
func dialBusy(t *testing.T, each time.Duration) (*faultproxy.Proxy, io.ReadWriteCloser) {
	server, network, _ := behind(t)
	p := network.Proxy(server.Addr())
	p.Busy(each)
	conn, err := network.Dial(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return p, conn
}

// tell sends a command so many times, as one pipeline, and waits for as many replies of a line.
func tell(conn io.ReadWriter, command string, n int) error {
	if _, err := io.WriteString(conn, strings.Repeat(command, n)); err != nil {
		return err
	}
	from := bufio.NewReader(conn)
	for range n {
		if line, err := from.ReadString('\n'); err != nil || line[0] == '-' {
			return fmt.Errorf("the reply is %q, %w", line, err)
		}
	}
	return nil
}

const (
	incr = "*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n"
	ping = "*1\r\n$4\r\nPING\r\n"
)

// A machine may be late, never early: only that turns are not shortened is asserted.
func TestABusyServerTakesItsTimeForEachCommandOfAPipeline(t *testing.T) {
	p, conn := dialBusy(t, 2*time.Millisecond)
	begun := time.Now()
	if err := tell(conn, incr, 20); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 40*time.Millisecond {
		t.Errorf("20 commands of 2 ms took %v", took)
	}
	if n := p.Done(); n != 20 {
		t.Errorf("%d commands took their time", n)
	}
}

func TestABusyServerDoesTheCommandsOfAllConnectionsOneAfterTheOther(t *testing.T) {
	server, network, _ := behind(t)
	p := network.Proxy(server.Addr())
	p.Busy(2 * time.Millisecond)
	begun := time.Now()
	var both errgroup.Group
	for range 2 {
		both.Go(func() error {
			conn, err := network.Dial(t.Context(), "tcp", server.Addr())
			if err != nil {
				return err
			}
			defer conn.Close()
			return tell(conn, incr, 10)
		})
	}
	if err := both.Wait(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 40*time.Millisecond {
		t.Errorf("20 commands of 2 ms on two connections took %v", took)
	}
}

// With a turn of a minute each, a command that had one would not be answered before the test's end.
func TestWhatSetsConnectionsUpAndWatchesThemWaitsForNoTurn(t *testing.T) {
	p, conn := dialBusy(t, time.Minute)
	if err := tell(conn, ping, 3); err != nil {
		t.Fatal(err)
	}
	if n := p.Done(); n != 0 {
		t.Errorf("%d commands took their time", n)
	}
}

func TestPassAnswersWhatABusyServerStillHadToDo(t *testing.T) {
	server, network, client := behind(t)
	p := network.Proxy(server.Addr())
	p.Busy(time.Minute)
	conn, err := network.Dial(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, strings.Repeat(incr, 10)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); p.Done() < 10; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d commands came", p.Done())
		}
	}
	p.Pass()
	from := bufio.NewReader(conn)
	for range 10 {
		if _, err := from.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	p.Busy(time.Millisecond)
	if err := client.Incr(t.Context(), "k").Err(); err != nil {
		t.Errorf("after ten minutes' worth were forgotten: %v", err)
	}
}
