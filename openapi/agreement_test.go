package openapi_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/openapi"
	"github.com/slotgate/slotgate/store"
)

// What the document says of codes and permissions is decided in store; these tests keep the two the same.

func TestErrorCodesAreThoseOfTheStore(t *testing.T) {
	var documented []store.Code
	for _, code := range load(t, openapi.Document()).Components.Schemas["ErrorCode"].Value.Enum {
		documented = append(documented, store.Code(code.(string)))
	}
	if !slices.Equal(documented, store.Codes()) {
		t.Errorf("the document has the codes\n%v, the store\n%v", documented, store.Codes())
	}
}

func TestErrorCodesStandAtTheirStatus(t *testing.T) {
	eachOperation(t, func(t *testing.T, _, _ string, _ *openapi3.PathItem, op *openapi3.Operation) {
		for status, r := range op.Responses.Map() {
			codes, _ := r.Value.Extensions["x-codes"].([]any)
			for _, c := range codes {
				code := store.Code(c.(string))
				if strconv.Itoa(code.Status()) != status && (code != store.CodeBatchIncomplete || status != "504") {
					t.Errorf("%s is %d, not %s", code, code.Status(), status)
				}
			}
		}
	})
}

func TestExamplesOfProblemsAreWhatTheStoreSays(t *testing.T) {
	for name, r := range load(t, openapi.Document()).Components.Responses {
		for _, e := range examples(r.Value.Content) {
			code := store.Code(e["code"].(string))
			if e["title"] != code.Title() || e["type"] != code.Type() {
				t.Errorf("%s: %s has the title %q and the type %q, want %q and %q", name, code, e["title"], e["type"], code.Title(), code.Type())
			}
			if e["retryable"] == true && !code.Retryable() {
				t.Errorf("%s: %s is never retryable", name, code)
			}
		}
	}
}

func TestPermissionsFollowTheCommands(t *testing.T) {
	eachOperation(t, func(t *testing.T, _, _ string, _ *openapi3.PathItem, op *openapi3.Operation) {
		granted := permissions(t, op)
		for _, c := range op.Extensions["x-redis-commands"].([]any) {
			command := c.(string)
			if command == "PING" {
				continue // readiness; no caller's
			}
			class, access, ok := store.Command(command)
			if !ok {
				t.Errorf("the gateway has no command %s", command)
				continue
			}
			// The second command of a step, such as PTTL beside GET, goes with the permission of the first.
			if access == acl.Read && command != op.Extensions["x-redis-commands"].([]any)[0] {
				continue
			}
			if !granted.Allows(class, access, command) {
				t.Errorf("x-permission does not grant %s", command)
			}
		}
	})
}

// permissions is all that x-permission and x-permission-when name.
func permissions(t *testing.T, op *openapi3.Operation) acl.Permissions {
	t.Helper()
	var list []string
	collect := func(v any) {
		if text, ok := v.(string); ok && text != "none" {
			list = append(list, text)
		}
	}
	collect(op.Extensions["x-permission"])
	alternatives, _ := op.Extensions["x-permission"].([]any)
	conditional, _ := op.Extensions["x-permission-when"].([]any)
	for _, p := range alternatives {
		collect(p)
	}
	for _, w := range conditional {
		collect(w.(map[string]any)["permission"])
	}
	p, err := acl.CompilePermissions(list)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(list, ", "), err)
	}
	return p
}
