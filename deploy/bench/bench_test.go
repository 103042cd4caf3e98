//go:build linux

package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReaderTakesWhatTheServersSend(t *testing.T) {
	for name, c := range map[string]struct {
		sent string
		want answer
	}{
		"a length":                    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", answer{Status: 200, Length: 5, Head: []byte("hello")}},
		"a length in small letters":   {"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok", answer{Status: 201, Length: 2, Head: []byte("ok")}},
		"chunks":                      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", answer{Status: 200, Length: 13, Head: []byte("abc0123456789")}},
		"no body with 204":            {"HTTP/1.1 204 No Content\r\nDate: today\r\n\r\n", answer{Status: 204, Length: -1}},
		"an end of the connection":    {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", answer{Status: 200, Close: true}},
		"a body longer than it keeps": {"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000), answer{Status: 200, Length: 100_000, Head: []byte(strings.Repeat("x", headSize))}},
	} {
		t.Run(name, func(t *testing.T) {
			// Two answers in a row, in whole and byte by byte: nothing may be left over or taken from the next.
			twice := c.sent + c.sent
			for way, src := range map[string]io.Reader{"whole": strings.NewReader(twice), "bytes": iotest.OneByteReader(strings.NewReader(twice))} {
				r := newReader(src, callerBuffer)
				for range 2 {
					got, err := r.next()
					if err != nil || got.Status != c.want.Status || got.Length != c.want.Length || got.Close != c.want.Close || string(got.Head) != string(c.want.Head) {
						t.Fatalf("%s: got %+v, %v; want %+v", way, got, err, c.want)
					}
				}
				if _, err := r.next(); !errors.Is(err, io.EOF) {
					t.Fatalf("%s: something is left over: %v", way, err)
				}
			}
		})
	}
}

func TestReaderRefusesWhatIsNoAnswer(t *testing.T) {
	for name, sent := range map[string]string{
		"another protocol":  "+PONG\r\n\r\n",
		"no length":         "HTTP/1.1 200 OK\r\n\r\n",
		"a wrong length":    "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
		"a wrong chunk":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"a chunk too long":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
		"an endless header": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 100_000),
		"half a body":       "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe",
	} {
		if a, err := newReader(strings.NewReader(sent), callerBuffer).next(); err == nil {
			t.Errorf("%s is taken for %+v", name, a)
		}
	}
}

func TestHistogramIsRightToThreePercent(t *testing.T) {
	h := newHistogram()
	for i := 1; i <= 1000; i++ {
		h.record(time.Duration(i) * 10 * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0: 10 * time.Microsecond, 0.5: 5 * time.Millisecond, 0.99: 9900 * time.Microsecond, 1: 10 * time.Millisecond} {
		if got := h.quantile(q); got < want*96/100 || got > want*104/100 {
			t.Errorf("quantile %v is %v, want about %v", q, got, want)
		}
	}
	for d := time.Duration(0); d < time.Hour; d = d*9/8 + 1 {
		if low := lowerBound(bucketOf(d)); low > d || d < 10*time.Minute && d > low+low/31+1 {
			t.Fatalf("%v is in the bucket that begins at %v", d, low)
		}
	}
	if got := (histogram{}).quantile(0.5); got != 0 {
		t.Errorf("an empty histogram says %v", got)
	}
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	res := newResults(options{Rounds: 3})
	res.Rows = []*rowResult{
		{Name: baseDoor, Rounds: cpuRounds(10, 20, 40)},
		{Name: "slotgate", Rounds: cpuRounds(20, 20, 80)},
	}
	res.summarize()
	// The ratio of the medians would be 1: it compares different moments.
	if got, want := res.Rows[1].CPURatio, (spread{Median: 2, Min: 1, Max: 2}); got != want {
		t.Errorf("ratios %+v, want %+v", got, want)
	}
	var out strings.Builder
	res.print(&out)
	if !res.Valid || !strings.Contains(out.String(), "2.00 (1.00–2.00)") {
		t.Errorf("valid %v, printed:\n%s", res.Valid, out.String())
	}
}

func TestBuildsAreComparedWithTheFirst(t *testing.T) {
	res := newResults(options{Rounds: 2})
	for i, rounds := range [][]roundResult{cpuRounds(10, 10), cpuRounds(20, 40), cpuRounds(30, 40)} {
		row := &rowResult{Name: baseDoor, Rounds: rounds}
		if i > 0 {
			row.Build, row.Kind = "slotgate-"+string(rune('@'+i)), "JSON"
			row.Name = row.Build + " JSON"
		}
		res.Rows = append(res.Rows, row)
	}
	res.summarize()
	if got := res.laterBuilds(); len(got) != 1 || got[0] != "slotgate-B JSON" {
		t.Fatalf("later builds are %v", got)
	}
	if got, want := *res.Rows[2].BuildRatio, (spread{Median: 1.25, Min: 1, Max: 1.5}); got != want {
		t.Errorf("the second build is at %+v of the first, want %+v", got, want)
	}
}

func TestReadmeTablesAreReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "README.md")
	text := "before\n" + readmeBegin + "old\n" + readmeEnd + "\nafter\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	res := newResults(options{Rounds: 2})
	get := scenario{Op: opGet, Batch: 1}
	res.Rows = []*rowResult{{scenario: get, Name: baseDoor, Rounds: cpuRounds(10, 10)}, {scenario: get, Name: "slotgate", Rounds: cpuRounds(20, 30)}}
	res.summarize()
	if err := res.writeReadme(path); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n" + readmeBegin, "| | webdis | slotgate |\n|---|---|---|\n", "| GET | 1.00 (1.00–1.00) | 2.50 (2.00–3.00) |\n", readmeEnd + "\nafter\n"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("the file lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "old") {
		t.Error("the old table is still there")
	}
	res.Rows[0].Errors = 1
	if err := res.writeReadme(path); err == nil {
		t.Error("an invalid run is published")
	}
}

func cpuRounds(us ...float64) []roundResult {
	var rounds []roundResult
	for _, v := range us {
		rounds = append(rounds, roundResult{Requests: 1, Seconds: 1, CPUUS: v})
	}
	return rounds
}

func TestARunWithAFailedRequestIsInvalid(t *testing.T) {
	res := newResults(options{Rounds: 1})
	res.Rows = []*rowResult{{Name: "slotgate", Rounds: []roundResult{{Requests: 9, Errors: 1, Seconds: 1, firstError: "status 503"}}}}
	res.summarize()
	if err := res.invalid(); res.Valid || err == nil || !strings.Contains(err.Error(), "status 503") {
		t.Errorf("valid %v, error %v", res.Valid, err)
	}
	var out strings.Builder
	res.print(&out)
	if !strings.HasPrefix(out.String(), "INVALID") {
		t.Errorf("the table does not begin with the warning:\n%s", out.String())
	}
}

func TestCPUTimeCountsWork(t *testing.T) {
	p, err := start(t.TempDir(), "busy", nil, "sh", "-c", "while :; do :; done")
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	deadline := time.Now().Add(10 * time.Second)
	for {
		used, err := cpuTime(p.pids())
		if err != nil {
			t.Fatal(err)
		}
		slow, err := ticks(p.cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if used > 50*time.Millisecond && slow > 0 && (used-slow).Abs() < 60*time.Millisecond {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the scheduler says %v, stat %v", used, slow)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestMissingPackagesAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := checkPackages()
	if err == nil || !strings.Contains(err.Error(), "apt-get install") || !strings.Contains(err.Error(), "webdis") {
		t.Errorf("the error is %v", err)
	}
}
