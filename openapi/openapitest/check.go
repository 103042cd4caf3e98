package openapitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// Check fails t unless the answer, whose body has been read, is one that the document allows for the request; and, when it is a success, unless
// the request is one that the document allows. The request's body is looked at when it can be had again (GetBody).
func Check(t testing.TB, req *http.Request, resp *http.Response, body []byte) {
	t.Helper()
	e := exchange{contract: load(t), req: req, resp: resp, body: body}
	for _, err := range e.check() {
		t.Errorf("%s %s: %d: %v\n%.500s", req.Method, req.URL.RequestURI(), resp.StatusCode, err, body)
	}
}

// RoundTrip checks one exchange.
func (tr *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	tr.t.Helper()
	var sent []byte
	if req.Body != nil && req.GetBody == nil {
		var err error
		if sent, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(sent))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(sent)), nil }
	}
	resp, err := tr.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failed{err}))
		return resp, nil
	}
	Check(tr.t, req, resp, body)
	return resp, nil
}

// failed is the end of a body that broke off, which is not this package's business.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// exchange is one request and its answer.
type exchange struct {
	*contract
	req   *http.Request
	resp  *http.Response
	body  []byte
	route *routers.Route
	input *openapi3filter.RequestValidationInput
}

func (e *exchange) check() []error {
	route, params := e.find(e.req.Method, e.req.URL)
	if route == nil {
		return e.checkStranger()
	}
	e.route = route
	e.input = &openapi3filter.RequestValidationInput{
		Request: e.req, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, MultiError: true},
	}
	documented := route.Operation.Responses.Status(e.resp.StatusCode)
	if documented == nil {
		return []error{fmt.Errorf("%s does not document this status", route.Operation.OperationID)}
	}
	errs := slices.Concat(e.checkHeaders(documented.Value), e.checkBody(documented.Value))
	if e.resp.StatusCode < 400 {
		errs = append(errs, e.checkRequest()...)
	}
	return errs
}

// strangers are the statuses of a request that is no operation: refused by a guard, or nothing there.
var strangers = []int{400, 401, 404, 405, 429, 500, 503}

func (e *exchange) checkStranger() []error {
	if !slices.Contains(strangers, e.resp.StatusCode) {
		return []error{errors.New("the document has no such operation")}
	}
	if e.req.Method == http.MethodHead {
		return nil
	}
	return e.checkJSON(e.doc.Components.Schemas["Problem"])
}

// everywhere are headers of HTTP and of the pages that the document does not repeat at each operation.
var everywhere = []string{
	"Allow", "Cache-Control", "Connection", "Content-Encoding", "Content-Length", "Content-Security-Policy", "Content-Type", "Date", "Referrer-Policy", "Vary",
	"X-Content-Type-Options",
}

func (e *exchange) checkHeaders(documented *openapi3.Response) []error {
	var errs []error
	known := map[string]bool{}
	for name, h := range documented.Headers {
		known[http.CanonicalHeaderKey(name)] = true
		if h.Value.Required && e.resp.Header.Get(name) == "" {
			errs = append(errs, fmt.Errorf("the header %s is missing", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.resp.Header)) {
		if !known[name] && !slices.Contains(everywhere, name) {
			errs = append(errs, fmt.Errorf("the header %s is not documented", name))
		}
	}
	if strings.HasPrefix(e.route.Path, "/v1/") {
		for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
			if got := e.resp.Header.Get(name); got != want {
				errs = append(errs, fmt.Errorf("the header %s is %q, want %q", name, got, want))
			}
		}
	}
	return append(errs, e.checkHeaderValues()...)
}

// checkHeaderValues lets kin look at the headers' schemas. It skips answers to HEAD, which have the same headers, so HEAD is shown to it as
// GET; bodies are looked at by checkBody.
func (e *exchange) checkHeaderValues() []error {
	input := *e.input
	input.Request = e.req.Clone(e.req.Context())
	input.Request.Method = http.MethodGet
	return flatten(openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &input, Status: e.resp.StatusCode, Header: e.resp.Header,
		Options: &openapi3filter.Options{ExcludeResponseBody: true, IncludeResponseStatus: true, MultiError: true},
	}))
}

func (e *exchange) checkBody(documented *openapi3.Response) []error {
	if e.req.Method == http.MethodHead || len(documented.Content) == 0 {
		if len(e.body) != 0 {
			return []error{errors.New("there is a body where the document has none")}
		}
		return nil
	}
	for want, media := range documented.Content { // there is one
		got, _, err := mime.ParseMediaType(e.resp.Header.Get("Content-Type"))
		if err != nil || got != want && want != "*/*" {
			return []error{fmt.Errorf("Content-Type is %q, want %s", e.resp.Header.Get("Content-Type"), want)}
		}
		if !strings.HasSuffix(want, "json") {
			return nil // octets and pages have no schema worth the name
		}
		errs := e.checkJSON(media.Schema)
		if want == "application/problem+json" && len(errs) == 0 {
			errs = e.checkProblem(documented)
		}
		return errs
	}
	return nil
}

// checkJSON validates the body itself instead of leaving it to kin, whose decoder rounds numbers.
func (e *exchange) checkJSON(schema *openapi3.SchemaRef) []error {
	if got := e.resp.Header.Get("Content-Type"); !strings.Contains(got, "json") {
		return []error{fmt.Errorf("Content-Type is %q, want JSON", got)}
	}
	value, err := decode(e.body)
	if err != nil {
		return []error{fmt.Errorf("the body is not one JSON value: %w", err)}
	}
	return flatten(schema.Value.VisitJSON(value, openapi3.VisitAsResponse(), openapi3.MultiErrors()))
}

func decode(body []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after it")
	}
	return value, nil
}

// checkProblem looks at what a schema cannot say: that the parts of a problem and the answer around it tell the same story.
func (e *exchange) checkProblem(documented *openapi3.Response) []error {
	var p struct {
		Type, Code string
		Status     int
		RequestID  string `json:"request_id"`
	}
	if err := json.Unmarshal(e.body, &p); err != nil {
		return []error{err}
	}
	var errs []error
	if codes, _ := documented.Extensions["x-codes"].([]any); !slices.Contains(codes, any(p.Code)) {
		errs = append(errs, fmt.Errorf("the code %s is not one of the documented %v", p.Code, codes))
	}
	if p.Status != e.resp.StatusCode {
		errs = append(errs, fmt.Errorf("the problem says %d", p.Status))
	}
	if p.RequestID != e.resp.Header.Get("X-Request-Id") {
		errs = append(errs, fmt.Errorf("the problem has the request id %q, the header %q", p.RequestID, e.resp.Header.Get("X-Request-Id")))
	}
	if p.Type != "/problems/"+p.Code && p.Code != "quota_exceeded" {
		errs = append(errs, fmt.Errorf("the type is %s", p.Type))
	}
	return errs
}

// checkRequest looks whether the document allows what the server has accepted. Bodies of octets may have any Content-Type, which kin would
// refuse, so they are left out.
func (e *exchange) checkRequest() []error {
	known := map[string]bool{}
	for _, list := range []openapi3.Parameters{e.route.PathItem.Parameters, e.route.Operation.Parameters} {
		for _, p := range list {
			known[p.Value.In+" "+p.Value.Name] = true
		}
	}
	var errs []error
	for name := range e.req.URL.Query() {
		if !known["query "+name] {
			errs = append(errs, fmt.Errorf("the query parameter %s is accepted, but not documented", name))
		}
	}
	input := *e.input
	input.Request = e.req.Clone(e.req.Context())
	body := e.route.Operation.RequestBody
	options := *input.Options
	options.ExcludeRequestBody = body == nil || body.Value.Content.Get("application/json") == nil || e.req.GetBody == nil
	if !options.ExcludeRequestBody {
		again, err := e.req.GetBody()
		if err != nil {
			return append(errs, err)
		}
		input.Request.Body = again
	}
	input.Options = &options
	return append(errs, flatten(openapi3filter.ValidateRequest(context.Background(), &input))...)
}

// flatten makes one error of each fault, without kin's dump of the whole schema.
func flatten(err error) []error {
	var many openapi3.MultiError
	var fault *openapi3.SchemaError
	var answer *openapi3filter.ResponseError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer) && answer.Err != nil:
		all := flatten(answer.Err)
		for i, one := range all {
			all[i] = fmt.Errorf("%s: %w", answer.Reason, one)
		}
		return all
	case errors.As(err, &many) && len(many) > 0:
		var all []error
		for _, one := range many {
			all = append(all, flatten(one)...)
		}
		return all
	case errors.As(err, &fault):
		return []error{fmt.Errorf("at /%s: %s", strings.Join(fault.JSONPointer(), "/"), fault.Reason)}
	default:
		return []error{err}
	}
}
