package store

import (
	"context"
	"io"
	"net"
	"testing"
	"time"
)

func TestAConnectionIsMadeWhenItHasBeenAnsweredOn(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		ok     bool
	}{
		"a node that is well":                {"+PONG\r\n", true},
		"one that wants a password first":    {"-NOAUTH Authentication required.\r\n", true},
		"one that is busy":                   {"-BUSY Redis is busy running a script.\r\n", true},
		"one that has no place left":         {"-ERR max number of clients reached\r\n", false},
		"one that closes":                    {"", false},
		"one that closes in mid-line":        {"+PO", false},
		"one whose line does not end":        {string(make([]byte, 2*maxGreeting)), false},
		"one that says more than was wanted": {"+PONG\r\n+OK", false},
	} {
		t.Run(name, func(t *testing.T) {
			raw := func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				go func() {
					_, _ = io.ReadFull(there, make([]byte, len("*1\r\n$4\r\nPING\r\n")))
					_, _ = io.WriteString(there, c.answer)
					if !c.ok {
						_ = there.Close()
					}
				}()
				t.Cleanup(func() { _ = there.Close() })
				return here, nil
			}
			conn, err := meeting(raw, 5*time.Second)(t.Context(), "tcp", "node:1")
			if (err == nil) != c.ok {
				t.Fatalf("error %v", err)
			}
			if err == nil {
				_ = conn.Close()
			}
		})
	}
	hung := func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		t.Cleanup(func() { _ = there.Close() })
		return here, nil
	}
	if _, err := meeting(hung, 10*time.Millisecond)(t.Context(), "tcp", "node:1"); err == nil {
		t.Error("one that hangs has answered")
	}
}
