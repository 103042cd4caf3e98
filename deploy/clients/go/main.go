// Command tour is the README's tour, and a worker of a pool, with a Go client that oapi-codegen has made from openapi/openapi.yaml. It is a module of its own, so that
// neither the generator nor its runtime is a dependency of the gateway. deploy/clients/run generates the client and runs it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/slotgate/slotgate/deploy/clients/go/slotgate"
)

// awkward is a key that needs escaping: a slash, characters outside ASCII, a percent sign, a plus, a space.
const awkward = "tour-go/grüße/100% + ☃"

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := run(ctx, os.Getenv("GW"), os.Getenv("KEY")); err != nil {
		fmt.Fprintln(os.Stderr, "Go client:", err)
		os.Exit(1)
	}
}

// tour is a client and what the steps share.
type tour struct{ *slotgate.ClientWithResponses }

func connect(gw, key string) (tour, error) {
	c, err := slotgate.NewClientWithResponses(gw, slotgate.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+key)
		return nil
	}))
	return tour{c}, err
}

func run(ctx context.Context, gw, key string) error {
	t, err := connect(gw, key)
	if err != nil {
		return err
	}
	stranger, err := connect(gw, "sg_nobody")
	if err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"whoami", t.whoami}, {"strings", t.strings}, {"conditions", t.conditions}, {"counters", t.counters}, {"bytes", t.bytes},
		{"batches", t.batches}, {"keys", t.keys}, {"listing", t.listing}, {"deleting", t.deleting},
		{"pools", t.pools}, {"refusal", stranger.refused},
	} {
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	fmt.Println("Go client: 11 steps passed")
	return nil
}

// same is an error unless got is what the step wanted.
func same(what string, got, want any) error {
	if reflect.DeepEqual(got, want) {
		return nil
	}
	return fmt.Errorf("%s is %v, want %v", what, got, want)
}

// answered is an error unless the gateway answered with the status and, below 400, with a body of the client's type.
func answered(r interface {
	StatusCode() int
	GetBody() []byte
}, err error, status int) error {
	if err != nil {
		return err
	}
	if r.StatusCode() != status {
		return fmt.Errorf("status %d, want %d: %s", r.StatusCode(), status, r.GetBody())
	}
	return nil
}

// problem reads any error of the API; they all have one type.
func problem(body []byte) (p slotgate.Problem) {
	if err := json.Unmarshal(body, &p); err != nil {
		p.Title = err.Error()
	}
	return p
}

func (t tour) whoami(ctx context.Context) error {
	r, err := t.GetWhoamiWithResponse(ctx, nil)
	if err := answered(r, err, 200); err != nil {
		return err
	}
	if r.JSON200.App.Namespace == "" || r.JSON200.Sizes.ValueMaxBytes == 0 || len(r.JSON200.Permissions) == 0 {
		return fmt.Errorf("incomplete: %s", r.Body)
	}
	return nil
}

func (t tour) strings(ctx context.Context) error {
	ttl := slotgate.TtlMs(600_000)
	put, err := t.PutStringWithResponse(ctx, awkward, nil, slotgate.PutStringRequest{Value: "hellö", TtlMs: &ttl})
	if err := answered(put, err, 200); err != nil {
		return err
	}
	include := slotgate.IncludeTtlTtl
	got, err := t.GetStringWithResponse(ctx, awkward, &slotgate.GetStringParams{Include: &include})
	if err := answered(got, err, 200); err != nil {
		return err
	}
	if got.JSON200.TtlMs == nil || *got.JSON200.TtlMs < 1 || *got.JSON200.TtlMs > ttl {
		return fmt.Errorf("no TTL: %s", got.Body)
	}
	return errors.Join(same("the value", got.JSON200.Value, "hellö"), same("the ETag", got.JSON200.Etag, put.JSON200.Etag),
		same("the ETag header", got.HTTPResponse.Header.Get("ETag"), put.JSON200.Etag))
}

func (t tour) conditions(ctx context.Context) error {
	only := "*"
	r, err := t.PutStringWithResponse(ctx, awkward, &slotgate.PutStringParams{IfNoneMatch: &only}, slotgate.PutStringRequest{Value: "x"})
	if err := answered(r, err, 412); err != nil {
		return err
	}
	return same("the code", problem(r.Body).Code, slotgate.ErrorCodePreconditionFailed)
}

func (t tour) counters(ctx context.Context) error {
	const key = "tour-go/visits"
	set, err := t.PutCounterWithResponse(ctx, key, nil, slotgate.PutCounterRequest{Value: "9007199254740993"}) // 2^53 + 1
	if err := answered(set, err, 200); err != nil {
		return err
	}
	added, err := t.AddCounterWithResponse(ctx, key, nil, slotgate.AddCounterRequest{Delta: "2"})
	if err := answered(added, err, 200); err != nil {
		return err
	}
	n, err := added.JSON200.Value.Int64()
	if err := errors.Join(err, same("the counter", n, int64(9007199254740995))); err != nil {
		return err
	}
	quoted := slotgate.Int64ModeString
	text, err := t.GetCounterWithResponse(ctx, key, &slotgate.GetCounterParams{Int64: &quoted})
	if err := answered(text, err, 200); err != nil {
		return err
	}
	least := slotgate.CounterNumber("0")
	below, err := t.AddCounterWithResponse(ctx, "tour-go/stock", nil, slotgate.AddCounterRequest{Delta: "-7", Min: &least})
	if err := answered(below, err, 409); err != nil {
		return err
	}
	return errors.Join(same("the quoted counter", text.JSON200.Value.String(), "9007199254740995"),
		same("the code", problem(below.Body).Code, slotgate.ErrorCodeOutOfRange))
}

func (t tour) bytes(ctx context.Context) error {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	put, err := t.PutBytesWithBodyWithResponse(ctx, "tour-go/bytes", nil, "application/octet-stream", bytes.NewReader(all))
	if err := answered(put, err, 204); err != nil {
		return err
	}
	got, err := t.GetBytesWithResponse(ctx, "tour-go/bytes", nil)
	if err := answered(got, err, 200); err != nil {
		return err
	}
	span := "bytes=254-"
	part, err := t.GetBytesWithResponse(ctx, "tour-go/bytes", &slotgate.GetBytesParams{Range: &span})
	if err := answered(part, err, 206); err != nil {
		return err
	}
	head, err := t.HeadBytesWithResponse(ctx, "tour-go/bytes", nil)
	if err := answered(head, err, 200); err != nil {
		return err
	}
	return errors.Join(same("the bytes", got.Body, all), same("the part", part.Body, all[254:]),
		same("the length", head.HTTPResponse.ContentLength, int64(256)))
}

func (t tour) batches(ctx context.Context) error {
	set, err := t.MsetWithResponse(ctx, nil, slotgate.MsetRequest{Items: []slotgate.MsetItem{
		{Key: "tour-go/a", Value: "1"}, {Key: "tour-go/b", Value: "2"}, {Key: "tour-go/ç", Value: "3"},
	}})
	if err := answered(set, err, 200); err != nil {
		return err
	}
	got, err := t.MgetWithResponse(ctx, nil, slotgate.MgetRequest{Keys: []string{"tour-go/ç", "tour-go/missing", "tour-go/a"}})
	if err := answered(got, err, 200); err != nil {
		return err
	}
	exists, err := t.MexistsWithResponse(ctx, nil, slotgate.KeysRequest{Keys: []string{"tour-go/b", "tour-go/missing"}})
	if err := answered(exists, err, 200); err != nil {
		return err
	}
	three, one := "3", "1"
	return errors.Join(same("written", set.JSON200.Written, int64(3)), same("errors", got.JSON200.Errors, false),
		same("the values", got.JSON200.Items, []slotgate.MgetItem{
			{Key: "tour-go/ç", Found: true, Value: &three}, {Key: "tour-go/missing"}, {Key: "tour-go/a", Found: true, Value: &one},
		}),
		same("exists", []bool{*exists.JSON200.Items[0].Exists, *exists.JSON200.Items[1].Exists}, []bool{true, false}))
}

func (t tour) keys(ctx context.Context) error {
	ttl := slotgate.TtlMs(60_000)
	set, err := t.PutKeyTtlWithResponse(ctx, "tour-go/a", nil, slotgate.PutKeyTtlRequest{TtlMs: &ttl})
	if err := answered(set, err, 200); err != nil {
		return err
	}
	info, err := t.GetKeyWithResponse(ctx, "tour-go/a", nil)
	if err := answered(info, err, 200); err != nil {
		return err
	}
	head, err := t.HeadKeyWithResponse(ctx, "tour-go/missing", nil)
	if err := answered(head, err, 404); err != nil {
		return err
	}
	persisted, err := t.DeleteKeyTtlWithResponse(ctx, "tour-go/a", nil)
	if err := answered(persisted, err, 204); err != nil {
		return err
	}
	if info.JSON200.Key == nil || info.JSON200.TtlMs == nil {
		return fmt.Errorf("incomplete: %s", info.Body)
	}
	return errors.Join(same("applied", set.JSON200.Applied, true), same("the type", info.JSON200.Type, "string"),
		same("the key", *info.JSON200.Key, "tour-go/a"))
}

func (t tour) listing(ctx context.Context) error {
	var found []string
	prefix, limit := "tour-go/", int64(2)
	params := slotgate.ListKeysParams{Prefix: &prefix, Limit: &limit}
	for {
		page, err := t.ListKeysWithResponse(ctx, &params)
		if err := answered(page, err, 200); err != nil {
			return err
		}
		for _, item := range page.JSON200.Items {
			if item.Key == nil {
				return fmt.Errorf("a key without text: %s", page.Body)
			}
			found = append(found, *item.Key)
		}
		if params.Cursor = page.JSON200.NextCursor; params.Cursor == nil {
			break
		}
	}
	slices.Sort(found)
	found = slices.Compact(found) // a listing may name a key twice
	return same("the listing", found, []string{"tour-go/a", "tour-go/b", "tour-go/bytes", awkward, "tour-go/visits", "tour-go/ç"})
}

func (t tour) deleting(ctx context.Context) error {
	one, err := t.DeleteStringWithResponse(ctx, awkward, nil)
	if err := answered(one, err, 204); err != nil {
		return err
	}
	gone, err := t.GetStringWithResponse(ctx, awkward, nil)
	if err := answered(gone, err, 404); err != nil {
		return err
	}
	rest, err := t.MdeleteWithResponse(ctx, nil, slotgate.KeysRequest{Keys: []string{"tour-go/a", "tour-go/b", "tour-go/bytes", "tour-go/visits", "tour-go/ç"}})
	if err := answered(rest, err, 200); err != nil {
		return err
	}
	for _, item := range rest.JSON200.Items {
		if item.Deleted == nil || !*item.Deleted {
			return fmt.Errorf("not deleted: %s", rest.Body)
		}
	}
	if gone.ApplicationproblemJSON404 == nil {
		return fmt.Errorf("no problem: %s", gone.Body)
	}
	return same("the code", gone.ApplicationproblemJSON404.Code, slotgate.ErrorCodeKeyNotFound)
}

func (t tour) refused(ctx context.Context) error {
	r, err := t.GetWhoamiWithResponse(ctx, nil)
	if err := answered(r, err, 401); err != nil {
		return err
	}
	return same("the code", problem(r.Body).Code, slotgate.ErrorCodeUnauthenticated)
}
