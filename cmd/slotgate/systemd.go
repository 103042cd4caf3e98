package main

import (
	"context"
	"log/slog"
	"net"
)

// systemd is the manager that a unit of Type=notify is started by: the datagram socket that NOTIFY_SOCKET names, "" without a manager.
// What it is told is worded as in sd_notify(3). A gateway that cannot tell goes on: it serves all the same.
type systemd struct {
	socket string // @ in front for one without a file, as Go's net has it too
	log    *slog.Logger
}

func (s systemd) tell(state string) {
	if s.socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		s.log.Warn("systemd was not told", "state", state, "error", err)
	}
}

// ready says that both listeners accept. Redis may be away: a manager that waited for it would give up and start again, which helps nobody.
func (s systemd) ready() { s.tell("READY=1") }

// stopping says so when ctx ends, the moment the drain begins. The function it returns waits until that is said, or calls it off.
func (s systemd) stopping(ctx context.Context) (done func()) {
	said := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(said)
		s.tell("STOPPING=1")
	})
	return func() {
		switch {
		case !stop():
			<-said
		case ctx.Err() != nil: // all has ended before the callback had begun
			s.tell("STOPPING=1")
		}
	}
}
