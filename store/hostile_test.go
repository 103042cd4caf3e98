package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/store"
)

// operation is one method of the store, on the key "k".
type operation struct {
	write bool
	run   func(ctx context.Context, s *store.Store, id *acl.Identity) error
	// replies are the kinds it takes from its command, by their first byte; "" = a script's array.
	replies string
}

// firstError is that of an item.
func firstError[T any](items []T, err error, of func(T) *store.Error) error {
	for _, i := range items {
		if e := of(i); e != nil && err == nil {
			err = e
		}
	}
	return err
}

func flagError(i store.FlagItem) *store.Error { return i.Err }

func operations() map[string]operation {
	one, low := store.Int(1), store.Int(0)
	read := func(replies string, f func(context.Context, *store.Store, *acl.Identity) error) operation {
		return operation{false, f, replies}
	}
	write := func(replies string, f func(context.Context, *store.Store, *acl.Identity) error) operation {
		return operation{true, f, replies}
	}
	return map[string]operation{
		"Get": read("$", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			_, err := s.Get(ctx, id, "k", store.GetOptions{})
			return err
		}),
		"MGet": read("$", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			items, err := s.MGet(ctx, id, []string{"k", "l"}, store.Reading{})
			return firstError(items, err, func(i store.GetItem) *store.Error { return i.Err })
		}),
		"MExists": read(":", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			items, err := s.MExists(ctx, id, []string{"k"}, store.Reading{})
			return firstError(items, err, flagError)
		}),
		"GetRange": read("", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			_, err := s.GetRange(ctx, id, "k", 0, -1, store.Reading{})
			return err
		}),
		"Length": read("", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			_, err := s.Length(ctx, id, "k", store.Reading{})
			return err
		}),
		"KeyInfo": read("+:", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			_, err := s.KeyInfo(ctx, id, "k", true, store.Reading{})
			return err
		}),
		"List": read("", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			_, err := s.List(ctx, id, store.ListOptions{Limit: 10})
			return err
		}),
		"Set": write("+", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			_, err := s.Set(ctx, id, "k", []byte("v"), store.SetOptions{})
			return err
		}),
		"Append": write("", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			_, err := s.Append(ctx, id, "k", []byte("v"), store.AppendOptions{})
			return err
		}),
		"CounterAdd": write(":", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			_, err := s.CounterAdd(ctx, id, "k", store.AddOptions{Delta: one})
			return err
		}),
		"CounterAdd in bounds": write("", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			_, err := s.CounterAdd(ctx, id, "k", store.AddOptions{Delta: one, Min: &low})
			return err
		}),
		"Delete": write(":", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			_, err := s.Delete(ctx, id, "k", store.DeleteOptions{})
			return err
		}),
		"MDelete": write(":", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			items, err := s.MDelete(ctx, id, []string{"k", "l"})
			return firstError(items, err, flagError)
		}),
		"MSet": write("+", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			_, err := s.MSet(ctx, id, []store.SetItem{{Key: "k", Data: []byte("v")}, {Key: "l", Data: []byte("v")}})
			return err
		}),
		"Persist": write("", func(ctx context.Context, s *store.Store, id *acl.Identity) error {
			return s.Persist(ctx, id, "k", store.Delivery{})
		}),
	}
}

// allocated runs f and tells how many bytes were allocated meanwhile, which is more than ever were held.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// mostAllocated is what four tries may take: the largest reply that package wire lets pass is 8 MiB, or a million elements of 16 bytes.
const mostAllocated = 160 << 20

// after closes the connection behind what was said.
func after(text string) func(net.Conn, string) {
	return func(c net.Conn, _ string) { _, _ = io.WriteString(c, text); _ = c.Close() }
}

func says(text string) func(net.Conn, string) {
	return func(c net.Conn, _ string) { _, _ = io.WriteString(c, text) }
}

// endless repeats a piece until nobody listens.
func endless(head, piece string) func(net.Conn, string) {
	return func(c net.Conn, _ string) {
		_, err := io.WriteString(c, head)
		for err == nil {
			_, err = io.WriteString(c, piece)
		}
	}
}

// slowly says a byte now and then.
func slowly(text string, every time.Duration) func(net.Conn, string) {
	return func(c net.Conn, _ string) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := range len(text) {
			if _, err := c.Write([]byte(text[i : i+1])); err != nil {
				return
			}
			<-tick.C
		}
	}
}

// TestALyingNodeHarmsNobody: whatever a node says in place of a reply, every operation ends by its deadline with an error that
// is the node's (a 5xx), a write with an outcome, memory does not grow, and the next command is not taken for the victim of the last.
func TestALyingNodeHarmsNobody(t *testing.T) {
	lies := map[string]func(net.Conn, string){
		"a length of 4 GiB":                  says("$4294967296\r\n"),
		"a length of 1 GB, and silence":      says("*1\r\n$1000000000\r\n"),
		"a length of -2":                     says("$-2\r\n"),
		"a million million elements":         says("*1000000000\r\n"),
		"a nesting of 100,000":               says(strings.Repeat("*1\r\n", 100_000)),
		"an endless nesting":                 endless("", strings.Repeat("*1\r\n", 1000)),
		"an endless array":                   endless("*1000000\r\n", strings.Repeat(":1\r\n", 1000)),
		"an endless line":                    endless("+", strings.Repeat("x", 10_000)),
		"an endless stream of line ends":     endless("", "\r\n"),
		"an endless string in an array":      endless("*1\r\n$900000000\r\n", strings.Repeat("x", 10_000)),
		"another protocol":                   says("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"a map of RESP3":                     says("%1\r\n+a\r\n+b\r\n"),
		"a push of RESP3":                    says(">1\r\n+a\r\n"),
		"a null of RESP3":                    says("_\r\n"),
		"a boolean of RESP3":                 says("#t\r\n"),
		"a big number of RESP3":              says("(12345678901234567890\r\n"),
		"a string without its CR LF":         says("$5\r\nhelloXXXXX"),
		"half a reply, then the end":         after("$5\r\nhe"),
		"half a length, then the end":        after("$"),
		"half an array, then the end":        after("*2\r\n:1\r\n"),
		"the end":                            after(""),
		"silence":                            says(""),
		"a byte now and then":                slowly("$5\r\nhello\r\n", 200*time.Millisecond),
		"an array in an array":               says("*1\r\n*1\r\n:1\r\n"),
		"an array that begins with a string": says("*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
		"an empty array":                     says("*0\r\n"),
		"an error nobody knows":              says("-WHATEVER 10.0.0.1 secret\r\n"),
		"a MOVED to nowhere":                 says("-MOVED x y\r\n"),
		"a MOVED without words":              says("-MOVED\r\n"),
		"a MOVED to a closed port":           says("-MOVED 5 127.0.0.1:1\r\n"),
		"an ASK to nowhere":                  says("-ASK x\r\n"),
	}
	l := newLiar(t)
	s, id := l.store(t), newApp(t, func(a *acl.App) { a.Sizes.ResponseMaxBytes = 1 << 20 })
	lies["a MOVED to itself"] = says(fmt.Sprintf("-MOVED 5 %s\r\n", l.Addr()))
	lies["an ASK to itself"] = says(fmt.Sprintf("-ASK 5 %s\r\n", l.Addr()))
	for lie, does := range lies {
		t.Run(lie, func(t *testing.T) {
			for name, op := range operations() {
				l.does(does)
				var err error
				took := time.Now()
				bytes := allocated(func() {
					err = within(t, 80*time.Millisecond, func(ctx context.Context) error { return op.run(ctx, s, id) })
				})
				var e *store.Error
				switch {
				case !errors.As(err, &e) || e.Status() < 500:
					t.Errorf("%s: %v", name, err)
				case op.write != (e.Outcome != store.NoOutcome):
					t.Errorf("%s: outcome %q: %v", name, e.Outcome, err)
				case e.Outcome == store.Applied:
					t.Errorf("%s: nobody can know that: %v", name, err)
				case strings.Contains(e.Detail, "10.0.0.1"):
					t.Errorf("%s: passes on what Redis said: %s", name, e.Detail)
				}
				if bytes > mostAllocated {
					t.Errorf("%s: allocated %d MB", name, bytes>>20)
				}
				if d := time.Since(took); d > 5*time.Second {
					t.Errorf("%s: took %v", name, d)
				}
				l.says("$5\r\nhello\r\n")
				eventually(t, func() string { // a circuit may be open, or the slot map in doubt
					err = within(t, time.Second, func(ctx context.Context) error {
						v, err := s.Get(ctx, id, "k", store.GetOptions{})
						if err == nil && string(v.Data) != "hello" {
							t.Fatalf("%s: the next command got %q", name, v.Data)
						}
						return err
					})
					if err != nil {
						return fmt.Sprintf("%s: the next command: %v", name, err)
					}
					return ""
				})
			}
		})
	}
}

// A reply of a kind that the command does not have is nobody's, and costs the connection.
func TestAReplyOfTheWrongKindIsAnError(t *testing.T) {
	replies := map[string]string{
		"+": "+OK\r\n", ":": ":5\r\n", "$": "$1\r\nx\r\n", "*": "*2\r\n*1\r\n:1\r\n:2\r\n",
	}
	l := newLiar(t)
	s, id := l.store(t), newApp(t)
	for name, op := range operations() {
		for kind, reply := range replies {
			if strings.Contains(op.replies, kind) || name == "KeyInfo" {
				continue
			}
			var bad net.Conn
			l.does(func(c net.Conn, _ string) { bad = c; _, _ = io.WriteString(c, reply) })
			err := within(t, 200*time.Millisecond, func(ctx context.Context) error { return op.run(ctx, s, id) })
			var e *store.Error
			if !errors.As(err, &e) || e.Code != store.CodeBackendError && e.Code != store.CodeBatchIncomplete || op.write != (e.Outcome == store.Unknown) {
				t.Errorf("%s, a reply %q: %v", name, reply, err)
			}
			if op.replies == "" {
				continue // go-redis has read a whole reply, and keeps the connection
			}
			again := false
			l.does(func(c net.Conn, _ string) { again = again || c == bad; _, _ = io.WriteString(c, "$5\r\nhello\r\n") })
			if v, err := s.Get(testContext(t), id, "k", store.GetOptions{}); err != nil || string(v.Data) != "hello" {
				t.Errorf("%s, after a reply %q: %q %v", name, reply, v.Data, err)
			}
			if again {
				t.Errorf("%s: the connection that carried %q was used again", name, reply)
			}
		}
	}
}

// A reply that nobody has asked for is never the answer to the next command.
func TestOneReplyTooManyIsNotTheNextOnes(t *testing.T) {
	l := newLiar(t)
	s, id := l.store(t), newApp(t)
	add := func(name, want string) {
		t.Helper()
		if n, err := s.CounterAdd(testContext(t), id, "k", store.AddOptions{Delta: store.Int(1)}); err != nil || n.String() != want {
			t.Fatalf("%s: got %v, want %s, error %v", name, n, want, err)
		}
	}
	for range 20 {
		for name, behind := range map[string]string{"at once": "", "behind it": ":99\r\n"} {
			sent := make(chan struct{})
			l.does(func(c net.Conn, _ string) {
				defer close(sent)
				if behind == "" {
					_, _ = io.WriteString(c, ":1\r\n:99\r\n")
					return
				}
				_, _ = io.WriteString(c, ":1\r\n")
				_, _ = io.WriteString(c, behind)
			})
			add(name, "1")
			<-sent
			l.says(":2\r\n")
			add(name, "2")
		}
	}
}

// TestAReplyOverTheCapIsNeverHeld: whichever way a value comes, one over the cap is refused, and no memory is made for it.
func TestAReplyOverTheCapIsNeverHeld(t *testing.T) {
	const size = 200 << 20
	huge := func(c net.Conn, _ string) {
		if _, err := fmt.Fprintf(c, "$%d\r\n", size); err != nil {
			return
		}
		piece := make([]byte, 1<<20)
		for range size >> 20 {
			if _, err := c.Write(piece); err != nil {
				return
			}
		}
		_, _ = io.WriteString(c, "\r\n")
	}
	l := newLiar(t)
	id := newApp(t, func(a *acl.App) { a.Sizes.ResponseMaxBytes = 1 << 20 })
	moved := says(fmt.Sprintf("-MOVED 5 %s\r\n", l.Addr()))
	for name, c := range map[string]struct {
		op    string
		first func(net.Conn, string) // of each pair of commands; nil = as the others
	}{
		"a value":                   {"Get", nil},
		"values of a batch":         {"MGet", nil},
		"a value behind a redirect": {"Get", moved},
		"values behind redirects":   {"MGet", moved},
	} {
		t.Run(name, func(t *testing.T) {
			s := l.store(t)
			redirect := c.first != nil
			l.does(func(conn net.Conn, command string) {
				if redirect && c.first != nil {
					redirect = false
					c.first(conn, command)
					return
				}
				huge(conn, command)
			})
			bytes := allocated(func() {
				err := within(t, 10*time.Second, func(ctx context.Context) error { return operations()[c.op].run(ctx, s, id) })
				wantCode(t, err, store.CodeResponseTooLarge)
			})
			t.Logf("allocated %d KB", bytes>>10)
			if bytes > size/2 { // it takes 2.5 MB, and whatever the tests before have left running
				t.Errorf("allocated %d MB for a value of %d MB", bytes>>20, size>>20)
			}
		})
	}
}

func TestALyingSlotMapHarmsNobody(t *testing.T) {
	one := func(start, end int, nodes string) string {
		return fmt.Sprintf("*3\r\n:%d\r\n:%d\r\n%s", start, end, nodes)
	}
	node := func(host string, port int) string {
		return fmt.Sprintf("*3\r\n$%d\r\n%s\r\n:%d\r\n$40\r\n%040d\r\n", len(host), host, port, 1)
	}
	for name, slots := range map[string]string{
		"nothing":                      "*0\r\n",
		"a nil":                        "*-1\r\n",
		"a string":                     "$5\r\nhello\r\n",
		"an integer":                   ":1\r\n",
		"an error":                     "-ERR no\r\n",
		"a slot too many":              "*1\r\n" + one(0, 16384, node("127.0.0.1", 1)),
		"negative slots":               "*1\r\n" + one(-5, 16383, node("127.0.0.1", 1)),
		"slots far away":               "*1\r\n" + one(1<<40, 1<<41, node("127.0.0.1", 1)),
		"a range that is upside down":  "*1\r\n" + one(16383, 0, node("127.0.0.1", 1)),
		"no node":                      "*1\r\n*2\r\n:0\r\n:16383\r\n",
		"an empty node":                "*1\r\n" + one(0, 16383, "*0\r\n"),
		"a node that is none":          "*1\r\n" + one(0, 16383, ":7\r\n"),
		"a negative port":              "*1\r\n" + one(0, 16383, node("127.0.0.1", -1)),
		"a port too many":              "*1\r\n" + one(0, 16383, node("127.0.0.1", 99999)),
		"an odd host":                  "*1\r\n" + one(0, 16383, node("a b/\x00", 1)),
		"a million ranges":             "*1000000\r\n" + strings.Repeat(one(0, 1, node("127.0.0.1", 1)), 100_000),
		"a claim of a million million": "*1000000000000\r\n",
		"a nesting of 100,000":         strings.Repeat("*1\r\n", 100_000),
		"metadata without end":         "*1\r\n" + one(0, 16383, "*4\r\n$9\r\n127.0.0.1\r\n:1\r\n$1\r\na\r\n"+strings.Repeat("*1\r\n", 1000)),
		"silence":                      "",
	} {
		t.Run(name, func(t *testing.T) {
			l := newLiar(t)
			l.slots.Store(&slots)
			s, id := l.store(t), newApp(t)
			for _, op := range slices.Sorted(maps.Keys(operations())) {
				var err error
				bytes := allocated(func() {
					err = within(t, 100*time.Millisecond, func(ctx context.Context) error { return operations()[op].run(ctx, s, id) })
				})
				var e *store.Error
				if op == "List" && err == nil {
					continue // a cluster without slots has no keys
				}
				if !errors.As(err, &e) || e.Status() < 500 || operations()[op].write && e.Outcome == store.NoOutcome {
					t.Errorf("%s: %v", op, err)
				}
				if bytes > mostAllocated {
					t.Errorf("%s: allocated %d MB", op, bytes>>20)
				}
			}
		})
	}
}
