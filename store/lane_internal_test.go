package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestReplicasAreReadFromTheListOfNodes(t *testing.T) {
	const me = "aaa 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-5460\n"
	for _, row := range []struct {
		name, list string
		want       replicaView
		ok         bool
	}{
		{"a primary alone", me, replicaView{primary: true}, true},
		{"its replica", me + "bbb 10.0.0.2:6379@16379 slave aaa 0 1 1 connected\n", replicaView{true, 1, 1}, true},
		{"one that has failed", me + "bbb 10.0.0.2:6379@16379,host.a slave,fail aaa 0 1 1 disconnected\n", replicaView{true, 1, 1}, true},
		{"one that may have failed", me + "bbb 10.0.0.2:6379@16379 slave,fail? aaa 0 1 1 connected\n", replicaView{true, 1, 1}, true},
		{"one whose address is lost", me + "bbb :0@0 slave,fail,noaddr aaa 0 1 1 disconnected\n", replicaView{true, 1, 1}, true},
		{"that of another", me + "bbb 10.0.0.2:6379@16379 slave ccc 0 1 1 connected\n", replicaView{true, 0, 1}, true},
		{"another primary, failed", me + "ccc 10.0.0.3:6379@16379 master,fail - 0 1 1 disconnected\n", replicaView{primary: true}, true},
		{"one whose role is not known yet", me + "ddd 10.0.0.4:6379@16379 handshake - 0 0 0 connected\n", replicaView{primary: true}, true},
		{"a replica", "bbb 10.0.0.2:6379@16379 myself,slave aaa 0 1 1 connected\n" + strings.Replace(me, "myself,", "", 1), replicaView{false, 0, 1}, true},
		{"nobody", "bbb 10.0.0.2:6379@16379 slave aaa 0 1 1 connected\n", replicaView{false, 0, 1}, false},
		{"nothing", "", replicaView{}, false},
		{"half a line", "aaa 10.0.0.1:6379@16379 myself,master", replicaView{}, false},
	} {
		if got, ok := parseReplicas(row.list); got != row.want || ok != row.ok {
			t.Errorf("%s: %+v, %v", row.name, got, ok)
		}
	}
}

func FuzzReplicas(f *testing.F) {
	f.Add("aaa 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-5460\nbbb :0@0 slave,fail aaa 0 1 1 connected\n")
	f.Add("aaa x myself,slave,master aaa\n\n")
	f.Fuzz(func(t *testing.T, list string) {
		v, ok := parseReplicas(list)
		if v.own < 0 || v.own > v.cluster || v.cluster > strings.Count(list, "slave") || ok && !strings.Contains(list, "myself") {
			t.Errorf("%+v, %v", v, ok)
		}
	})
}

func TestAWaitEndsBeforeTheDeadline(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, level := range []Durability{Replica, Fsync} {
		for _, longest := range []time.Duration{time.Millisecond, 200 * time.Millisecond, 1500 * time.Millisecond, time.Minute} {
			l := &lane{level: level, longest: longest}
			for _, left := range []time.Duration{-time.Second, 0, 1, time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, time.Second, time.Hour} {
				t.Run(fmt.Sprint(level, longest, left), func(t *testing.T) {
					ctx, cancel := context.WithDeadline(t.Context(), now.Add(left))
					defer cancel()
					wait := l.wait(ctx, now)
					if wait < time.Millisecond || wait > longest {
						t.Errorf("waits %v", wait)
					}
					whole := time.Duration(0) // the time of all steps, if each but the last is late
					steps := l.steps(wait)
					for i, step := range steps {
						if step <= 0 {
							t.Errorf("step %d is %v: Redis takes 0 for ever", i, step)
						}
						whole += step + late
					}
					if whole > wait+late {
						t.Errorf("%v in %d steps may take %v", wait, len(steps), whole)
					}
					if left > 3*late && whole > left {
						t.Errorf("with %v left it waits %v", left, whole)
					}
				})
			}
			if l.wait(t.Context(), now) != longest {
				t.Error("without a deadline it waits less than it may")
			}
		}
	}
}
