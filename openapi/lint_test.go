package openapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/slotgate/slotgate/openapi"
)

// The rules of openapi.yaml, beyond being valid. They keep the document to the subset that every generator reads well, and complete.

// eachOperation runs check for every operation, named by its id.
func eachOperation(t *testing.T, check func(t *testing.T, method, path string, item *openapi3.PathItem, op *openapi3.Operation)) {
	t.Helper()
	for path, item := range load(t, openapi.Document()).Paths.Map() {
		for method, op := range item.Operations() {
			t.Run(op.OperationID, func(t *testing.T) { check(t, method, path, item, op) })
		}
	}
}

// eachSchema runs check for every schema of the document, named by where it is.
func eachSchema(t *testing.T, check func(where string, s *openapi3.SchemaRef)) {
	t.Helper()
	var visit func(where string, s *openapi3.SchemaRef)
	visit = func(where string, s *openapi3.SchemaRef) {
		if s == nil {
			return
		}
		check(where, s)
		if s.Ref != "" {
			return
		}
		for name, p := range s.Value.Properties {
			visit(where+"."+name, p)
		}
		for _, list := range []openapi3.SchemaRefs{s.Value.AnyOf, s.Value.OneOf, s.Value.AllOf} {
			for i, one := range list {
				visit(fmt.Sprint(where, ".", i), one)
			}
		}
		visit(where+"[]", s.Value.Items)
		visit(where+"{}", s.Value.AdditionalProperties.Schema)
	}
	doc := load(t, openapi.Document())
	for name, s := range doc.Components.Schemas {
		visit(name, s)
	}
	for name, p := range doc.Components.Parameters {
		visit("parameter "+name, p.Value.Schema)
	}
	for name, h := range doc.Components.Headers {
		visit("header "+name, h.Value.Schema)
	}
}

func TestOperationIDsAreUniqueCamelCaseWords(t *testing.T) {
	seen := map[string]string{}
	camel := regexp.MustCompile(`^[a-z]+([A-Z][a-z0-9]+)*$`)
	for path, item := range load(t, openapi.Document()).Paths.Map() {
		for method, op := range item.Operations() {
			if !camel.MatchString(op.OperationID) {
				t.Errorf("%s %s: the id %q is not in camel case", method, path, op.OperationID)
			}
			if other := seen[op.OperationID]; other != "" {
				t.Errorf("%s %s has the id of %s", method, path, other)
			}
			seen[op.OperationID] = method + " " + path
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d operations", len(seen))
	}
}

func TestEveryOperationIsDescribed(t *testing.T) {
	doc := load(t, openapi.Document())
	permission := regexp.MustCompile(`^(none|[a-z]+:(read|write))$`)
	eachOperation(t, func(t *testing.T, method, path string, _ *openapi3.PathItem, op *openapi3.Operation) {
		if len(op.Tags) != 1 || doc.Tags.Get(op.Tags[0]) == nil {
			t.Errorf("tags %v, want one that is declared", op.Tags)
		}
		if op.Summary == "" || strings.HasSuffix(op.Summary, ".") || op.Description == "" {
			t.Errorf("summary %q, description %q", op.Summary, op.Description)
		}
		permissions, isList := op.Extensions["x-permission"].([]any)
		if !isList {
			permissions = []any{op.Extensions["x-permission"]}
		}
		for _, p := range permissions {
			if text, _ := p.(string); !permission.MatchString(text) {
				t.Errorf("x-permission %v", op.Extensions["x-permission"])
			}
		}
		if public := !strings.HasPrefix(path, "/v1/"); public != (op.Security != nil && len(*op.Security) == 0) {
			t.Errorf("security %v at %s", op.Security, path)
		}
		for _, name := range []string{"x-cost", "x-min-redis"} {
			if text, _ := op.Extensions[name].(string); text == "" {
				t.Errorf("%s is missing", name)
			}
		}
		if _, ok := op.Extensions["x-redis-commands"].([]any); !ok {
			t.Error("x-redis-commands is missing")
		}
		checkSample(t, method, path, op)
	})
}

// checkSample looks whether the curl command is one for this operation that can be pasted.
func checkSample(t *testing.T, method, path string, op *openapi3.Operation) {
	t.Helper()
	samples, _ := json.Marshal(op.Extensions["x-codeSamples"])
	var list []struct{ Lang, Source string }
	if err := json.Unmarshal(samples, &list); err != nil || len(list) != 1 || list[0].Lang != "curl" {
		t.Fatalf("x-codeSamples %s", samples)
	}
	source := list[0].Source
	prefix, _, _ := strings.Cut(path, "{")
	if !strings.Contains(source, `"$GW`+prefix) {
		t.Errorf("the command is for another path: %s", source)
	}
	if strings.HasPrefix(path, "/v1/") != strings.Contains(source, `-H "Authorization: Bearer $KEY"`) {
		t.Errorf("the command sends no key, or one that is not needed: %s", source)
	}
	flag := map[string]string{http.MethodGet: "", http.MethodHead: "-I ", http.MethodPut: "-X PUT ", http.MethodPost: "-X POST ", http.MethodPatch: "-X PATCH ", http.MethodDelete: "-X DELETE "}[method]
	if !strings.Contains(source, flag) || flag == "" && strings.Contains(source, "-X") {
		t.Errorf("the command is not a %s: %s", method, source)
	}
}

func TestEveryParameterIsDescribed(t *testing.T) {
	eachOperation(t, func(t *testing.T, _, path string, item *openapi3.PathItem, op *openapi3.Operation) {
		names := map[string]bool{}
		for _, p := range slices.Concat(item.Parameters, op.Parameters) {
			p := p.Value
			if names[p.In+p.Name] {
				t.Errorf("%s appears twice", p.Name)
			}
			names[p.In+p.Name] = true
			if p.Description == "" || p.Schema == nil {
				t.Errorf("%s lacks a description or a schema", p.Name)
			}
			if p.Required != (p.Example != nil) {
				t.Errorf("%s: required %v, example %v; Swagger UI would send the example of an optional parameter unasked", p.Name, p.Required, p.Example)
			}
			if !p.Required && p.Schema.Value.Example != nil {
				t.Errorf("%s: its schema has an example, which Swagger UI would send unasked", p.Name)
			}
		}
		if strings.HasPrefix(path, "/v1/") && (!names["headerX-Request-Id"] || !names["headerX-Request-Deadline-Ms"] || !names["headerX-Request-Priority"]) {
			t.Error("X-Request-Id, X-Request-Deadline-Ms or X-Request-Priority is missing")
		}
		if strings.Contains(path, "{key}") && !names["querykey_encoding"] {
			t.Error("key_encoding is missing")
		}
	})
}

func TestEveryAnswerIsDescribed(t *testing.T) {
	eachOperation(t, func(t *testing.T, method, path string, _ *openapi3.PathItem, op *openapi3.Operation) {
		v1 := strings.HasPrefix(path, "/v1/")
		want := []string{}
		if v1 {
			want = []string{"400", "401", "403", "422", "429", "500", "503", "504"}
			if op.RequestBody != nil {
				want = append(want, "413", "415")
			}
		}
		for _, status := range want {
			if op.Responses.Value(status) == nil {
				t.Errorf("%s is missing", status)
			}
		}
		for status, r := range op.Responses.Map() {
			if *r.Value.Description == "" {
				t.Errorf("%s lacks a description", status)
			}
			if v1 && (r.Value.Headers["X-Request-Id"] == nil || status != "401" && r.Value.Headers["RateLimit"] == nil) {
				t.Errorf("%s lacks the headers of every answer", status)
			}
			if status < "400" {
				continue
			}
			if method == http.MethodHead {
				if len(r.Value.Content) != 0 {
					t.Errorf("%s has a body, to HEAD", status)
				}
				continue
			}
			media := r.Value.Content["application/problem+json"]
			if len(r.Value.Content) != 1 || media == nil || media.Schema.Ref != "#/components/schemas/Problem" {
				t.Errorf("%s is not a Problem", status)
			}
		}
	})
}

func TestBodiesHaveOneMediaTypeAndANamedSchema(t *testing.T) {
	check := func(t *testing.T, where string, content openapi3.Content) {
		t.Helper()
		if len(content) > 1 {
			t.Errorf("%s has %d media types", where, len(content))
		}
		for name, media := range content {
			if media.Schema == nil || !strings.HasPrefix(media.Schema.Ref, "#/components/schemas/") {
				t.Errorf("%s: the schema of %s has no name", where, name)
			}
			json := name == "application/json" || name == "application/problem+json"
			if open := media.Schema.Ref == "#/components/schemas/OpenapiDocument"; json && !open && media.Example == nil && len(media.Examples) == 0 {
				t.Errorf("%s has no example", where)
			}
		}
	}
	eachOperation(t, func(t *testing.T, _, _ string, _ *openapi3.PathItem, op *openapi3.Operation) {
		if op.RequestBody != nil {
			check(t, "the request", op.RequestBody.Value.Content)
			if media := op.RequestBody.Value.Content["application/json"]; media != nil {
				closed := media.Schema.Value.AdditionalProperties.Has
				if closed == nil || *closed {
					t.Error("the request's body is open")
				}
			}
		}
		for status, r := range op.Responses.Map() {
			check(t, status, r.Value.Content)
		}
	})
}

// nobody is the one member that can be null: that an allocation has found nobody is said, and not left to be concluded.
const nobody = "PoolAllocation.member"

func TestSchemasStayInTheSubset(t *testing.T) {
	eachSchema(t, func(where string, ref *openapi3.SchemaRef) {
		s := ref.Value
		switch {
		case ref.Ref != "":
		case s.Nullable != (where == nobody):
			t.Errorf("%s: nullable %v; leave members out instead", where, s.Nullable)
		case len(s.OneOf) > 0 && s.Discriminator == nil:
			t.Errorf("%s has oneOf without a discriminator", where)
		case len(s.AllOf) > 0:
			t.Errorf("%s has allOf", where)
		case s.Type.Is("integer") && s.Format != "int64" && s.Format != "int32":
			t.Errorf("%s is an integer of no size", where)
		case s.Type.Is("object") && len(s.Properties) > 0 && strings.Contains(where, "."):
			t.Errorf("%s is an object without a name", where)
		case s.Extensions["x-enum-varnames"] != nil:
			t.Errorf("%s has x-enum-varnames; what is a good name in Go is a bad one in Python, and both make good ones themselves", where)
		case s.Description == "" && !strings.HasPrefix(where, "parameter ") && !strings.HasPrefix(where, "header ") && !strings.HasSuffix(where, "[]") && !strings.HasPrefix(where, "CounterValue."):
			t.Errorf("%s lacks a description", where)
		}
	})
}

func TestComponentsAreUsed(t *testing.T) {
	doc := string(openapi.Document())
	c := load(t, openapi.Document()).Components
	used := func(kind, name string) {
		if !strings.Contains(doc, "#/components/"+kind+"/"+name+"'") {
			t.Errorf("%s %s is not used", kind, name)
		}
	}
	for name := range c.Schemas {
		used("schemas", name)
	}
	for name := range c.Parameters {
		used("parameters", name)
	}
	for name := range c.Responses {
		used("responses", name)
	}
	for name := range c.Headers {
		used("headers", name)
	}
}

func TestSchemasAndOthersDoNotShareNames(t *testing.T) {
	c := load(t, openapi.Document()).Components
	for name := range c.Schemas {
		if c.Parameters[name] != nil || c.Responses[name] != nil || c.RequestBodies[name] != nil || strings.HasSuffix(name, "Response") {
			t.Errorf("%s: oapi-codegen gives two types this name", name)
		}
	}
}

// elsewhere are codes no operation answers: the first two of the router, the others of resources still to come.
var elsewhere = []string{
	"not_found", "method_not_allowed", "field_not_found",
	"pool_not_found", "member_not_found", "lease_not_found", "lease_lost", "fence_mismatch", "pool_empty", "pool_saturated",
}

func TestEveryErrorCodeIsExplained(t *testing.T) {
	doc := load(t, openapi.Document())
	documented := map[string]bool{}
	for name, r := range doc.Components.Responses {
		codes, _ := r.Value.Extensions["x-codes"].([]any)
		if isProblem := r.Value.Content["application/problem+json"] != nil; isProblem != (len(codes) > 0) {
			t.Errorf("%s: x-codes %v", name, codes)
		}
		for _, code := range codes {
			documented[code.(string)] = true
			if !strings.Contains(*r.Value.Description, "`"+code.(string)+"`") && len(codes) > 1 {
				t.Errorf("%s does not say what %s is", name, code)
			}
		}
		for exampleName, e := range examples(r.Value.Content) {
			if code := e["code"]; exampleName != code || !slices.Contains(codes, code) {
				t.Errorf("%s: the example %s is of %v", name, exampleName, code)
			}
		}
	}
	for _, code := range doc.Components.Schemas["ErrorCode"].Value.Enum {
		if !documented[code.(string)] && !slices.Contains(elsewhere, code.(string)) {
			t.Errorf("no answer has the code %s", code)
		}
	}
}

func examples(content openapi3.Content) map[string]map[string]any {
	all := map[string]map[string]any{}
	if media := content["application/problem+json"]; media != nil {
		for name, e := range media.Examples {
			all[name], _ = e.Value.Value.(map[string]any)
		}
	}
	return all
}
