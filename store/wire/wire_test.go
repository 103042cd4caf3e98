package wire_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/slotgate/slotgate/store/wire"
)

// sent is a connection from which a node's bytes come.
type sent struct{ io.Reader }

func (sent) Write(p []byte) (int, error)      { return len(p), nil }
func (sent) Close() error                     { return nil }
func (sent) LocalAddr() net.Addr              { return nil }
func (sent) RemoteAddr() net.Addr             { return nil }
func (sent) SetDeadline(time.Time) error      { return nil }
func (sent) SetReadDeadline(time.Time) error  { return nil }
func (sent) SetWriteDeadline(time.Time) error { return nil }

// ways are how bytes may arrive and be asked for.
var ways = map[string]func(io.Reader) io.Reader{
	"at once":      func(r io.Reader) io.Reader { return r },
	"byte by byte": iotest.OneByteReader,
	"in halves":    iotest.HalfReader,
}

func read(from string, limit *wire.Limit, way func(io.Reader) io.Reader) (string, error) {
	got, err := io.ReadAll(wire.Guard(sent{way(strings.NewReader(from))}, limit))
	return string(got), err
}

func TestWhatIsAReplyPassesAsItIs(t *testing.T) {
	for _, reply := range []string{
		"+OK\r\n", ":1\r\n", "-ERR no\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n", "$0\r\n\r\n", "$5\r\nhello\r\n", "$2\r\n\r\n\r\n",
		"*2\r\n$1\r\na\r\n:5\r\n", "*3\r\n*1\r\n*0\r\n*2\r\n+a\r\n-b\r\n$-1\r\n",
		"+\r\n",
		"$" + "100000\r\n" + strings.Repeat("x", 100000) + "\r\n",
		strings.Repeat("*1\r\n", 32) + ":1\r\n",
		"*100000\r\n" + strings.Repeat(":1\r\n", 100000),
	} {
		for name, way := range ways {
			stream := reply + "+next\r\n" + reply
			if got, err := read(stream, nil, way); err != nil || got != stream {
				t.Errorf("%.40q %s: got %.60q, %v", reply, name, got, err)
			}
		}
	}
}

func TestWhatIsNoneEndsTheConnection(t *testing.T) {
	for name, c := range map[string]string{
		"a length that only a liar has":                    "$4294967296\r\n",
		"a length over 64 bits":                            "$99999999999999999999999\r\n",
		"a negative length":                                "$-2\r\n",
		"a negative count":                                 "*-2\r\n",
		"a length with a plus":                             "$+5\r\nhello\r\n",
		"no length":                                        "$\r\n",
		"a length with a bare LF":                          "$5\nhello\r\n",
		"a length without an end":                          "$" + strings.Repeat("0", 100),
		"a million million elements":                       "*1000000000000\r\n",
		"a thousand million elements":                      "*1000000000\r\n",
		"arrays whose elements are too many only together": "*1000\r\n" + strings.Repeat("*2000\r\n"+strings.Repeat(":1\r\n", 2000), 1000),
		"a nesting of 33":                                  strings.Repeat("*1\r\n", 33),
		"a nesting of 100,000":                             strings.Repeat("*1\r\n", 100_000),
		"a string without its end":                         "$5\r\nhelloworld",
		"a string with half its end":                       "$5\r\nhello\rX",
		"a line without an end":                            "+" + strings.Repeat("x", 1<<20),
		"a line with a bare LF":                            "+OK\n",
		"an inline command":                                "PING\r\n",
		"HTTP":                                             "HTTP/1.1 400 Bad Request\r\n\r\n",
		"nothing but line ends":                            "\r\n\r\n",
		"a push of RESP3":                                  ">2\r\n+a\r\n+b\r\n",
		"a map of RESP3":                                   "%1\r\n+a\r\n+b\r\n",
		"a null of RESP3":                                  "_\r\n",
		"a big number of RESP3":                            "(1\r\n",
		"a boolean of RESP3":                               "#t\r\n",
		"an attribute of RESP3, nested":                    strings.Repeat("|1\r\n", 1000),
		"a large string in an array":                       "*1\r\n$500000000\r\n",
		"many strings, too large only together":            "*100\r\n" + strings.Repeat("$1000000\r\n"+strings.Repeat("x", 1_000_000)+"\r\n", 20),
		"many lines, too large only together":              "*10000\r\n" + strings.Repeat("+"+strings.Repeat("x", 10_000)+"\r\n", 2000),
	} {
		for way, from := range ways {
			if len(c) > 1<<20 && way == "byte by byte" {
				continue // slow, and nothing new
			}
			got, err := read("+before\r\n"+c, nil, from)
			if !errors.Is(err, wire.ErrProtocol) {
				t.Errorf("%s, %s: %v", name, way, err)
			}
			if !strings.HasPrefix(got, "+before\r\n") {
				t.Errorf("%s, %s: the reply before it is lost: %.30q", name, way, got)
			}
		}
	}
}

func TestAStringOverTheLimitIsNotPassedOn(t *testing.T) {
	const size = 10 << 20
	huge := "$10485760\r\n" + strings.Repeat("x", size) + "\r\n"
	const said = "-SLOTGATEOVERCAP 10485760\r\n"
	for name, way := range ways {
		if name == "byte by byte" {
			way = func(r io.Reader) io.Reader { // the header's end only, in which the work is
				return io.MultiReader(iotest.OneByteReader(io.LimitReader(r, 40)), r)
			}
		}
		if got, err := read(huge+":1\r\n"+huge+"$1\r\na\r\n", nil, way); err != nil || got != said+":1\r\n"+said+"$1\r\na\r\n" {
			t.Errorf("%s: %.80q %v", name, got, err)
		}
	}
	if n, ok := wire.OverCap(said[1 : len(said)-2]); !ok || n != size {
		t.Errorf("read as %d, %v", n, ok)
	}
	if _, ok := wire.OverCap("OOM command not allowed"); ok {
		t.Error("any error is taken for it")
	}
	var limit wire.Limit
	limit.Allow(size)
	if got, err := read(huge, &limit, ways["at once"]); err != nil || got != huge {
		t.Errorf("where it is allowed: %.30q %v", got, err)
	}
}

// FuzzGuard: whatever comes, in whatever pieces, what passes is the same, and nothing is made of nothing.
func FuzzGuard(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "$5\r\nhello\r\n*2\r\n:1\r\n$-1\r\n", "*1\r\n*1\r\n$9\r\n", "$99999999\r\nxxx", "-a\r\n>"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, err := read(string(stream), nil, ways["at once"])
		pieces, err2 := read(string(stream), nil, ways["byte by byte"])
		if (err == nil) != (err2 == nil) || err == nil && whole != pieces {
			t.Fatalf("%q: %q %v, in pieces %q %v", stream, whole, err, pieces, err2)
		}
		if !bytes.Contains(stream, []byte("$")) && !bytes.HasPrefix(stream, []byte(whole)) {
			t.Fatalf("%q became %q", stream, whole)
		}
	})
}

// BenchmarkGuard is what a reply costs: 100 small strings, as a batch reads them.
func BenchmarkGuard(b *testing.B) {
	stream := []byte(strings.Repeat("$100\r\n"+strings.Repeat("x", 100)+"\r\n", 100))
	r := bytes.NewReader(stream)
	buf := make([]byte, 64<<10)
	for name, from := range map[string]net.Conn{"guarded": wire.Guard(sent{r}, nil), "bare": sent{r}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Reset(stream)
				for read := 0; read < len(stream); {
					n, err := from.Read(buf)
					if err != nil {
						b.Fatal(err)
					}
					read += n
				}
			}
		})
	}
}
