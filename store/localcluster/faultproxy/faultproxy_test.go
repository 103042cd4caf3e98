package faultproxy_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/slotgate/slotgate/store/localcluster/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// behind returns a server, a proxy in front of it and a client that goes through the proxy and retries nothing.
func behind(t *testing.T) (*miniredis.Miniredis, *faultproxy.Network, *redis.Client) {
	server := miniredis.RunT(t)
	network, err := faultproxy.NewNetwork([]string{server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr(), Dialer: network.Dial, Protocol: 2, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		_ = client.Close()
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	return server, network, client
}

func TestPassesEverything(t *testing.T) {
	server, network, client := behind(t)
	big := strings.Repeat("0123456789abcdef", 100_000) + "\r\n\x00"
	if err := client.Set(t.Context(), "k", big, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, _ := server.Get("k"); got != big {
		t.Errorf("stored %d bytes", len(got))
	}
	if got, err := client.MGet(t.Context(), "k", "none").Result(); err != nil || got[0] != big || got[1] != nil {
		t.Errorf("MGET: %v", err)
	}
	if n := network.Proxy(server.Addr()).Open(); n != 1 {
		t.Errorf("%d connections are open", n)
	}
}

func TestDropRepliesExecutesTheRequest(t *testing.T) {
	server, network, client := behind(t)
	ctx := t.Context()
	p := network.Proxy(server.Addr())
	p.DropReplies(1, "incr")
	if err := client.Set(ctx, "k", "1", 0).Err(); err != nil {
		t.Errorf("another command: %v", err)
	}
	if err := client.Incr(ctx, "k").Err(); !errors.Is(err, io.EOF) {
		t.Errorf("a dropped reply: %v", err)
	}
	p.ResetReplies(1, "INCR")
	if err := client.Incr(ctx, "k").Err(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a reset reply: %v", err)
	}
	if got, err := client.Incr(ctx, "k").Result(); err != nil || got != 4 {
		t.Errorf("after two lost replies: %d, %v", got, err)
	}
	if n := p.Pending(); n != 0 {
		t.Errorf("%d replies are still to be lost", n)
	}
}

func TestDropRepliesInAPipelineKeepsTheEarlierOnes(t *testing.T) {
	server, network, _ := behind(t)
	network.Proxy(server.Addr()).DropReplies(1, "INCR")
	// Not with go-redis, which calls a pipeline lost as a whole.
	conn, err := network.Dial(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	pipeline := "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n" + "*2\r\n$3\r\nGET\r\n$1\r\na\r\n" +
		"*2\r\n$4\r\nincr\r\n$1\r\nb\r\n" + "*2\r\n$3\r\nGET\r\n$1\r\na\r\n"
	if _, err := io.WriteString(conn, pipeline); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "+OK\r\n$1\r\n1\r\n" {
		t.Errorf("before the lost reply came %q, %v", got, err)
	}
	if got, _ := server.Get("b"); got != "1" {
		t.Errorf("b is %q", got)
	}
}

func TestBlackHoleDeliversLate(t *testing.T) {
	server, network, client := behind(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	network.Proxy(server.Addr()).BlackHole()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := client.Incr(ctx, "k").Err(); !isTimeout(err) {
		t.Errorf("in a black hole: %v", err)
	}
	if server.Exists("k") {
		t.Error("the request came through")
	}
	network.Pass()
	for deadline := time.Now().Add(5 * time.Second); !server.Exists("k"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the late request never arrives")
		}
	}
}

func TestDelay(t *testing.T) {
	server, network, client := behind(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	network.Proxy(server.Addr()).Delay(30 * time.Millisecond)
	begun := time.Now()
	if err := client.Ping(t.Context()).Err(); err != nil || time.Since(begun) < 30*time.Millisecond {
		t.Errorf("answered after %v, %v", time.Since(begun), err)
	}
}

func TestJitterHoldsSomeRepliesBack(t *testing.T) {
	server, network, client := behind(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	p := network.Proxy(server.Addr())
	p.Jitter(4, 20*time.Millisecond, 30*time.Millisecond)
	late := 0
	for range 100 {
		begun := time.Now()
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if time.Since(begun) >= 20*time.Millisecond {
			late++
		}
	}
	if late == 0 || late == 100 {
		t.Errorf("%d of 100 replies were late", late)
	}
}

func TestCutRepliesEndsInsideThem(t *testing.T) {
	server, network, client := behind(t)
	value := strings.Repeat("v", 1000)
	if err := client.Set(t.Context(), "k", value, 0).Err(); err != nil {
		t.Fatal(err)
	}
	p := network.Proxy(server.Addr())
	p.CutReplies(3)
	failed, resets := 0, 0
	for range 100 {
		got, err := client.Get(t.Context(), "k").Result()
		if err == nil && got != value {
			t.Fatalf("half a reply: %d bytes", len(got))
		}
		if err != nil {
			failed++
		}
		if errors.Is(err, syscall.ECONNRESET) {
			resets++
		}
	}
	if n := p.Cuts(); failed == 0 || failed != n || resets == 0 || resets == failed {
		t.Errorf("%d failures, %d of them resets, of %d replies that were cut", failed, resets, n)
	}
	p.Pass()
	for range 20 {
		if err := client.Get(t.Context(), "k").Err(); err != nil {
			t.Fatalf("Pass does not end it: %v", err)
		}
	}
}

func TestRefuseAndReset(t *testing.T) {
	server, network, client := behind(t)
	p := network.Proxy(server.Addr())
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if n := network.ResetAll(); n != 1 {
		t.Errorf("%d connections were reset", n)
	}
	p.Refuse()
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Error("a refusing proxy lets requests through")
	}
	p.Pass()
	for deadline := time.Now().Add(5 * time.Second); client.Ping(t.Context()).Err() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Pass does not end Refuse")
		}
	}
	if p.Accepted() < 2 {
		t.Errorf("%d connections were made", p.Accepted())
	}
	if _, err := network.Dial(t.Context(), "tcp", "127.0.0.1:1"); err == nil {
		t.Error("an address without a proxy was dialled")
	}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
