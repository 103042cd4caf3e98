package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slotgate/slotgate/acl"
)

// mustRun runs the program and wants exit code 0.
func mustRun(t *testing.T, vars []string, args ...string) result {
	t.Helper()
	got := slotgate(t, vars, args...)
	if got.code != 0 {
		t.Fatalf("slotgate %s: code %d\n%s%s", strings.Join(args, " "), got.code, got.stdout, got.stderr)
	}
	return got
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return v
}

func showApp(t *testing.T, vars []string, id string) acl.App {
	t.Helper()
	return decode[acl.App](t, mustRun(t, vars, "app", "show", id, "-o", "json").stdout)
}

func TestAppLife(t *testing.T) {
	vars := clusterVars(t)
	got := mustRun(t, vars, "app", "create", "shop", "--permission", "strings:*", "--permission", "keys:read",
		"--limit", "id=rps,limit=100,period_ms=1000,burst=200", "--default-ttl", "24h", "--max-ttl", "30d",
		"--value-max-bytes", "1000", "--retries", "read=1,write=0", "--compression", "off", "--priority", "bulk", "--read", "replica", "--max-staleness", "3s", "--expires", "2099-01-31T00:00:00Z")
	contains(t, "app create", got.stdout, "App shop is created", "slotgate key create shop")
	if got.stderr != "" {
		t.Error(got.stderr)
	}
	app := showApp(t, vars, "shop")
	if app.Namespace != "shop" || app.Layout != acl.Spread || app.Cluster != "default" || app.State != acl.Active ||
		fmt.Sprint(app.Permissions) != "[strings:* keys:read]" || len(app.Limits) != 1 || app.Limits[0].Burst != 200 ||
		app.DefaultTTLMS != 86_400_000 || app.MaxTTLMS != 30*86_400_000 || app.Sizes.ValueMaxBytes != 1000 ||
		app.Retries.Read != 1 || app.Retries.Write != 0 || app.Compression != acl.NoCompression || app.Priority != acl.Bulk || app.Read != acl.ReadReplica || app.MaxStalenessMS != 3000 || app.ExpiresAt.Year() != 2099 {
		t.Errorf("created: %+v", app)
	}

	t.Run("set changes what is given and nothing else", func(t *testing.T) {
		mustRun(t, vars, "app", "set", "shop", "--permission", "*", "--limit", "none", "--max-ttl", "none",
			"--retries", "gateway", "--expires", "never", "--name", "The shop")
		app := showApp(t, vars, "shop")
		if fmt.Sprint(app.Permissions) != "[*]" || len(app.Limits) != 0 || app.MaxTTLMS != 0 || app.Retries != nil ||
			app.ExpiresAt != nil || app.Name != "The shop" || app.DefaultTTLMS != 86_400_000 || app.Sizes.ValueMaxBytes != 1000 {
			t.Errorf("changed: %+v", app)
		}
	})
	t.Run("suspend and resume", func(t *testing.T) {
		contains(t, "suspend", mustRun(t, vars, "app", "suspend", "shop").stdout, "App shop is suspended.")
		if s := showApp(t, vars, "shop").State; s != acl.Suspended {
			t.Error(s)
		}
		contains(t, "resume", mustRun(t, vars, "app", "resume", "shop").stdout, "App shop is active.")
	})
	t.Run("show and list are readable", func(t *testing.T) {
		contains(t, "app show", mustRun(t, vars, "app", "show", "shop").stdout,
			"name          The shop\n", "default ttl   24h0m0s\n", "value max     1000 bytes\n", "limits        (none)\n", "priority      bulk\n", "read          replica, replicas at most 3s old\n")
		contains(t, "app list", mustRun(t, vars, "app", "list").stdout, "ID    NAMESPACE", "shop  shop       spread  default  active  0")
	})
	t.Run("delete leaves a tombstone", func(t *testing.T) {
		contains(t, "delete", mustRun(t, vars, "app", "delete", "shop", "--confirm=shop").stdout, "is deleted; its data is kept")
		if apps := decode[[]acl.App](t, mustRun(t, vars, "app", "list", "-o", "json").stdout); len(apps) != 0 {
			t.Errorf("a deleted app is listed: %+v", apps)
		}
		contains(t, "app list --all", mustRun(t, vars, "app", "list", "--all").stdout, "shop", "deleted")
		for _, args := range []string{
			"app create shop", "app create shop2 --namespace shop", "app set shop --name x", "app suspend shop", "app delete shop --confirm=shop",
			"key create shop",
		} {
			if got := slotgate(t, vars, strings.Fields(args)...); got.code != exitFailure {
				t.Errorf("slotgate %s: code %d, %s", args, got.code, got.stderr)
			}
		}
	})
}

func TestAppMistakes(t *testing.T) {
	vars := clusterVars(t)
	mustRun(t, vars, "app", "create", "shop", "--permission", "*")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"app create shop", 1, `app "shop": acl: already exists`},
		{"app create other --namespace shop", 1, `namespace "shop" belongs to app "shop"`},
		{"app create X", 2, `"X" is not an id; use 2 to 63 of a-z`},
		{"app create slotgate-x", 2, "begins with slotgate, which is the gateway's own"},
		{"app create a1 --layout wide", 2, `"wide" must be spread`},
		{"app create a1 --cluster mars", 2, `no cluster "mars" is configured or stored; there are [default]`},
		{"app create a1 --permission strings:reed", 2, "strings:reed"},
		{"app create a1 --limit id=x,limit=1,period_ms=1,per=user", 2, `"user" must be app or key`},
		{"app create a1 --limit id=x,limit=1,period_ms=1,of=cats", 2, `"cats" must be requests, bytes or concurrency`},
		{"app create a1 --limit id=x,limit=1,period_ms=1,class=reads", 2, `"reads" is not a class of commands`},
		{"app create a1 --limit id=x,limit=1,period_ms=1,route=/v1/string/:key", 2, "route=/v1/string/:key: there is no such route"},
		{"app create a1 --limit id=x,limit=1,period_ms=1,mode=fast", 2, `"fast" must be prepaid, exact or local`},
		{"app create a1 --limit id=x,limit=1,period_ms=1,on_error=panic", 2, `"panic" must be local, open or closed`},
		{"app create a1 --limit id=x,limit=0,period_ms=1", 2, "0 must be 1 to 9007199254740992"},
		{"app create a1 --limit id=x,limit=1", 2, "0 must be 1 to 86400000 milliseconds"},
		{"app create a1 --limit id=x,limit=1,of=concurrency,period_ms=1", 2, "concurrency has no period"},
		{"app create a1 --limit id=x,limt=1", 2, `"limt=1": write name=value with one of id, per, of`},
		{"app create a1 --limit limit=many,id=x", 2, "limit=many: write a whole number"},
		{"app create a1 --limit id=x,id=y", 2, "id is given twice"},
		{"app create a1 --default-ttl 2h --max-ttl 1h", 2, "is more than max_ttl_ms"},
		{"app create a1 --max-ttl soon", 2, "write a time such as 90s, 24h or 30d, or none"},
		{"app create a1 --expires yesterday", 2, "write a time such as 2027-01-31T00:00:00Z"},
		{"app create a1 --value-max-bytes 1MB", 2, "write a number of bytes"},
		{"app create a1 --retries 3", 2, "write read=3,write=0, or gateway"},
		{"app create", 2, "accepts 1 arg(s), received 0"},
		{"app set shop", 2, "nothing to set was given"},
		{"app set shop --namespace other", 2, `namespace: stays "shop" for ever, because stored keys depend on it`},
		{"app set shop --layout together", 2, `layout: stays "spread" for ever`},
		{"app set shop --cluster other", 2, `cluster: stays "default" for ever`},
		{"app set shop --id other", 2, `id: stays "shop" for ever`},
		{"app set nobody --name x", 1, `app "nobody": acl: not found`},
		{"app show nobody", 1, `app "nobody": acl: not found`},
		{"app delete shop", 2, "deleting app shop is for ever; say so with --confirm=shop"},
		{"app delete shop --confirm=shopp", 2, "say so with --confirm=shop"},
		{"app lst", 2, "did you mean list?"},
		{"key create nobody", 1, `app "nobody": acl: not found`},
		{"key create shop --permission flying:read", 2, "flying"},
		{"app create a1 --permission commands:GTE", 2, `"GTE" is not a command slotgate knows`},
		{"key create shop --expires 2001-01-01T00:00:00Z", 2, "is past; use a later time"},
		{"key revoke 0123456789ab", 1, "not found"},
		{"key list nobody", 1, `app "nobody": acl: not found`},
	} {
		got := slotgate(t, vars, strings.Fields(c.args)...)
		if got.code != c.code {
			t.Errorf("slotgate %s: code %d, want %d", c.args, got.code, c.code)
		}
		contains(t, "slotgate "+c.args, got.stderr, c.want)
	}
	if app := showApp(t, vars, "shop"); app.Name != "shop" || app.Layout != acl.Spread {
		t.Errorf("a refused change was made: %+v", app)
	}
}

var tokenForm = regexp.MustCompile(`sg_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}`)

func TestKeyLife(t *testing.T) {
	vars := clusterVars(t)
	mustRun(t, vars, "app", "create", "shop", "--permission", "strings:*")
	got := mustRun(t, vars, "key", "create", "shop")
	token := tokenForm.FindString(got.stdout)
	contains(t, "key create", got.stdout, "Key "+token, `curl -H "Authorization: Bearer `+token+`"`, "KEY="+token, "GW=http://127.0.0.1:")

	type shown struct {
		ID, App, State, Last4, Hash string
		Permissions                 []string
	}
	narrow := decode[struct {
		Token string
		Key   shown
	}](t, mustRun(t, vars, "key", "create", "shop", "--permission", "strings:read", "--expires", "90d", "-o", "json").stdout)
	if !tokenForm.MatchString(narrow.Token) || narrow.Key.App != "shop" || fmt.Sprint(narrow.Key.Permissions) != "[strings:read]" || narrow.Key.Hash != "" {
		t.Errorf("%+v", narrow)
	}

	list := func() map[string]shown {
		text := mustRun(t, vars, "key", "list", "shop", "-o", "json").stdout
		lacks(t, "key list", text, "hash", token[len("sg_")+13:])
		keys := map[string]shown{}
		for _, k := range decode[[]shown](t, text) {
			keys[k.ID] = k
		}
		return keys
	}
	id := keyID(token)
	if keys := list(); len(keys) != 2 || keys[id].State != "active" || keys[id].Last4 != token[len(token)-4:] && keys[id].Last4 == "" {
		t.Errorf("%+v", keys)
	}
	contains(t, "key revoke", mustRun(t, vars, "key", "revoke", token).stdout, "Key "+id+" of app shop is revoked.")
	if keys := list(); keys[id].State != "revoked" || keys[narrow.Key.ID].State != "active" {
		t.Errorf("%+v", keys)
	}
	mustRun(t, vars, "key", "revoke", id) // again: nothing to do
	contains(t, "key list", mustRun(t, vars, "key", "list").stdout, id, "revoked", narrow.Key.ID, "strings:read", "the app's")
	contains(t, "app list", mustRun(t, vars, "app", "list").stdout, "active  1     -")
}

func TestFileStoreIsOnlyRead(t *testing.T) {
	const apps = "apps:\n- id: shop\n  namespace: shop\n  permissions: ['strings:*']\n"
	vars := fileVars(t, apps)
	file := strings.TrimPrefix(vars[1], "SLOTGATE_CONTROL_FILE=")
	for _, c := range []struct{ args, stdout string }{
		{"app create carts --permission *", "id: carts"},
		{"app set shop --max-ttl 1h", "max_ttl_ms: 3600000"},
		{"app suspend shop", "state: suspended"},
		{"app delete shop --confirm=shop --purge", "state: deleted"},
		{"key create shop", "hash: "},
	} {
		got := mustRun(t, vars, strings.Fields(c.args)...)
		contains(t, "stdout of "+c.args, got.stdout, c.stdout)
		contains(t, "stderr of "+c.args, got.stderr, "nothing was changed", file)
		lacks(t, "stdout of "+c.args, got.stdout, "nothing was changed", "sg_")
		if strings.HasPrefix(c.args, "key") && !tokenForm.MatchString(got.stderr) {
			t.Errorf("no key on stderr: %s", got.stderr)
		}
		if strings.Contains(c.args, "purge") {
			contains(t, c.args, got.stderr, "No data was deleted.")
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != apps {
		t.Errorf("the file was changed: %v\n%s", err, data)
	}

	t.Run("what is printed can be pasted", func(t *testing.T) {
		got := mustRun(t, vars, "key", "create", "shop")
		_, list, _ := strings.Cut(got.stdout, "keys:\n")
		if err := os.WriteFile(file, []byte(apps+"keys:\n"+list), 0o600); err != nil {
			t.Fatal(err)
		}
		contains(t, "key list", mustRun(t, vars, "key", "list").stdout, keyID(tokenForm.FindString(got.stderr)), "active")
	})
}

func TestUnreachableControlStore(t *testing.T) {
	vars := []string{"SLOTGATE_CLUSTERS_DEFAULT_ADDRS=127.0.0.1:1", "SLOTGATE_SECRET_FILE=testdata/secret"}
	for _, args := range []string{"app list", "app create shop", "key list"} {
		if got := slotgate(t, vars, strings.Fields(args)...); got.code != exitUnreachable {
			t.Errorf("slotgate %s: code %d, %s", args, got.code, got.stderr)
		}
	}
}

func TestDeniedControlStore(t *testing.T) {
	vars := clusterVars(t)
	for _, v := range [][]string{
		{"SLOTGATE_CLUSTERS_DEFAULT_USERNAME=nobody", "SLOTGATE_CLUSTERS_DEFAULT_PASSWORD=hunter2"},
	} {
		got := slotgate(t, append(v, vars...), "app", "list")
		if got.code != exitDenied {
			t.Errorf("%s: code %d, %s", v, got.code, got.stderr)
		}
		lacks(t, "the error", got.stderr, "hunter2")
	}
}

func TestPurge(t *testing.T) {
	vars := clusterVars(t)
	client := redisClient(t)
	fill := func(n int) {
		t.Helper()
		pipe := client.Pipeline()
		for i := range n {
			pipe.Set(t.Context(), fmt.Sprintf("shop:%d", i), "x", 0)
		}
		pipe.Set(t.Context(), "slotgate:p:{shop/pool}:ring", "x", 0)
		pipe.Set(t.Context(), "other:1", "x", 0)
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, vars, "app", "create", "shop", "--permission", "*")
	fill(1000)
	got := mustRun(t, vars, "app", "delete", "shop", "--confirm=shop", "--purge", "--settle=1ms")
	contains(t, "stdout", got.stdout, "App shop is deleted, and 1001 keys with it.")
	contains(t, "stderr", got.stderr, "purge: pass 2, 3 of 3 primaries done, 1001 keys deleted")
	lacks(t, "stderr off a terminal", got.stderr, "\r", "\x1b")
	if n := client.Exists(t.Context(), "other:1").Val(); n != 1 {
		t.Error("another app's key is gone")
	}

	t.Run("a deleted app can be purged again", func(t *testing.T) {
		fill(10)
		got := mustRun(t, vars, "app", "delete", "shop", "--confirm=shop", "--purge", "-o", "json")
		if r := decode[struct {
			Deleted int `json:"deleted_keys"`
		}](t, got.stdout); r.Deleted != 11 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("a signal stops it with 130 and a way on", func(t *testing.T) {
		mustRun(t, vars, "app", "create", "carts", "--permission", "*")
		ctx, cancel := context.WithCancel(t.Context())
		var stdout, stderr lockedBuffer
		done := make(chan int)
		go func() {
			done <- run(ctx, []string{"app", "delete", "carts", "--confirm=carts", "--purge", "--settle=1h"}, testEnv(vars, &stdout, &stderr))
		}()
		eventually(t, func() bool { return strings.Contains(stderr.String(), "Waiting 1h") })
		cancel()
		if code := <-done; code != exitInterrupted {
			t.Errorf("code %d", code)
		}
		contains(t, "stderr", stderr.String(), "stopped; the same command goes on with what is left")
		mustRun(t, vars, "app", "delete", "carts", "--confirm=carts", "--purge")
	})
}

func TestMeterOffATerminal(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	m := newMeter(&out, func() time.Time { return now })
	for second := range 5 {
		now = time.Unix(int64(second), 0)
		m.report(fmt.Sprint("at ", second))
	}
	m.finish("end")
	if out.String() != "at 2\nat 4\nend\n" {
		t.Errorf("%q", out.String())
	}
}

// eventually polls until ok, for 10 s at most.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within 10 s")
		}
		time.Sleep(5 * time.Millisecond)
	}
}
