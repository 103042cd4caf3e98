package openapi_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/openapi"
	"github.com/slotgate/slotgate/openapi/openapitest"
)

var problems = []openapi.Problem{
	{Code: "key_not_found", Status: 404, Title: "Key not found", Explanation: "The key does not exist. See `<docs>`."},
	{Code: "cluster_down", Status: 503, Title: "Cluster down", Explanation: "The shard is not serving.", Retryable: true},
}

func newSite(t *testing.T) *openapi.Site {
	t.Helper()
	site, err := openapi.New(problems)
	if err != nil {
		t.Fatal(err)
	}
	return site
}

// siteHandler registers a site as the handlers package does.
func siteHandler(site *openapi.Site) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /openapi.yaml", site.YAML())
	mux.Handle("GET /openapi.json", site.JSON())
	mux.Handle("GET /docs", site.Docs())
	mux.Handle("GET /docs/reference", site.Reference())
	named := func(find func(string) (http.Handler, bool)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if h, ok := find(r.PathValue("name")); ok {
				h.ServeHTTP(w, r)
				return
			}
			http.NotFound(w, r)
		}
	}
	mux.Handle("GET /docs/{name}", named(site.Asset))
	mux.Handle("GET /problems/{name}", named(site.Problem))
	return mux
}

func get(t *testing.T, h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestDocumentIsServedByteForByte(t *testing.T) {
	w := get(t, newSite(t).YAML(), "/openapi.yaml")
	if w.Code != http.StatusOK || w.Body.String() != string(openapi.Document()) {
		t.Fatalf("status %d, %d bytes, want the %d of the document", w.Code, w.Body.Len(), len(openapi.Document()))
	}
	if got := w.Header().Get("Content-Type"); got != "application/yaml" {
		t.Errorf("Content-Type %q", got)
	}
}

func TestJSONSaysTheSameInTheSameOrder(t *testing.T) {
	body := get(t, newSite(t).JSON(), "/openapi.json").Body.Bytes()
	fromYAML, fromJSON := load(t, openapi.Document()), load(t, body)
	a, _ := json.Marshal(fromYAML)
	b, _ := json.Marshal(fromJSON)
	if string(a) != string(b) {
		t.Error("the JSON document differs from the YAML one")
	}
	if s := string(body); strings.Index(s, `"/v1/whoami"`) > strings.Index(s, `"/v1/strings/{key}"`) {
		t.Error("the paths are not in the order they were written in")
	}
}

func TestFilesAreCompressedAndRevalidated(t *testing.T) {
	h := siteHandler(newSite(t))
	for _, path := range []string{"/openapi.yaml", "/openapi.json", "/docs", "/docs/reference", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/docs/docs.js", "/docs/docs.css", "/problems/key_not_found"} {
		plain := get(t, h, path)
		tag := plain.Header().Get("ETag")
		if plain.Code != http.StatusOK || plain.Header().Get("Content-Encoding") != "" || tag == "" {
			t.Fatalf("%s: status %d, headers %v", path, plain.Code, plain.Header())
		}
		packed := get(t, h, path, "Accept-Encoding", "br, gzip")
		if packed.Header().Get("Content-Encoding") != "gzip" || packed.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: not compressed: %v", path, packed.Header())
		}
		zr, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if unpacked, err := io.ReadAll(zr); err != nil || string(unpacked) != plain.Body.String() {
			t.Errorf("%s: the compressed form differs: %v", path, err)
		}
		for _, sent := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
			if w := get(t, h, path, "If-None-Match", sent); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
				t.Errorf("%s with If-None-Match %s: status %d and %d bytes, want 304 and none", path, sent, w.Code, w.Body.Len())
			}
		}
		if w := get(t, h, path, "If-None-Match", `"other"`); w.Code != http.StatusOK {
			t.Errorf("%s with another ETag: status %d, want 200", path, w.Code)
		}
	}
}

func TestGzipIsSentOnlyWhenAccepted(t *testing.T) {
	docs := newSite(t).Docs()
	for accept, want := range map[string]string{
		"": "", "identity": "", "br": "", "gzip;q=0": "", "*;q=0": "", "*, gzip;q=0": "", "gzip;q=x": "",
		"gzip": "gzip", "GZIP": "gzip", "gzip; q=0.5": "gzip", "*": "gzip", "br;q=1, gzip;q=0.1": "gzip",
	} {
		w := get(t, docs, "/docs", "Accept-Encoding", accept)
		if got := w.Header().Get("Content-Encoding"); got != want {
			t.Errorf("Accept-Encoding %q: Content-Encoding %q, want %q", accept, got, want)
		}
	}
}

func TestPagesAllowNothingFromElsewhere(t *testing.T) {
	h := siteHandler(newSite(t))
	for _, path := range []string{"/docs", "/docs/reference", "/problems/cluster_down"} {
		w := get(t, h, path)
		csp := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'self';") || strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") {
			t.Errorf("%s: policy %q", path, csp)
		}
		for _, bad := range []string{"<style", "<script>", " style=", " onclick=", "src=\"http", "src=\"//"} {
			if strings.Contains(w.Body.String(), bad) {
				t.Errorf("%s contains %s", path, bad)
			}
		}
	}
}

func TestReferenceShowsEveryOperationWithItsCommand(t *testing.T) {
	page := get(t, newSite(t).Reference(), "/docs/reference").Body.String()
	for path, item := range load(t, openapi.Document()).Paths.Map() {
		for method, op := range item.Operations() {
			for _, want := range []string{`id="` + op.OperationID + `"`, "<code class=\"method\">" + method + "</code> <code>" + path + "</code>"} {
				if !strings.Contains(page, want) {
					t.Errorf("%s: the reference lacks %s", op.OperationID, want)
				}
			}
		}
	}
	for _, want := range []string{
		`curl -s -H &#34;Authorization: Bearer $KEY&#34; &#34;$GW/v1/whoami&#34;`,
		`href="#response-BatchIncomplete"`, `id="response-BatchIncomplete"`, `id="schema-Problem"`, `<code>batch_incomplete</code>`,
		`<h3 id="conditional-requests">`, "<strong>Nothing across slots is atomic</strong>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the reference lacks %s", want)
		}
	}
}

func TestReferenceLinksLeadSomewhere(t *testing.T) {
	page := get(t, newSite(t).Reference(), "/docs/reference").Body.String()
	ids := map[string]bool{}
	for part := range strings.SplitSeq(page, ` id="`) {
		id, _, _ := strings.Cut(part, `"`)
		if ids[id] {
			t.Errorf("id %q twice", id)
		}
		ids[id] = true
	}
	for _, part := range strings.Split(page, ` href="#`)[1:] {
		if id, _, _ := strings.Cut(part, `"`); !ids[id] {
			t.Errorf("a link leads to #%s, which is nowhere", id)
		}
	}
}

// A reader who goes from heading to heading must not miss a level.
func TestReferenceHeadingsAreNested(t *testing.T) {
	page := get(t, newSite(t).Reference(), "/docs/reference").Body.String()
	level, titles := 0, 0
	for _, m := range regexp.MustCompile(`<h([1-6])[ >]`).FindAllStringSubmatch(page, -1) {
		next := int(m[1][0] - '0')
		if next > level+1 {
			t.Errorf("a heading of level %d follows one of level %d", next, level)
		}
		if level = next; level == 1 {
			titles++
		}
	}
	if titles != 1 || !strings.Contains(page, `<html lang="en">`) {
		t.Errorf("%d titles, or no language", titles)
	}
}

func TestProblemPagesExplainAndEscape(t *testing.T) {
	h := siteHandler(newSite(t))
	page := get(t, h, "/problems/key_not_found").Body.String()
	for _, want := range []string{"<code>key_not_found</code>", "404", "The key does not exist. See <code>&lt;docs&gt;</code>."} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if w := get(t, h, "/problems/no_such_code"); w.Code != http.StatusNotFound {
		t.Errorf("an unknown code: status %d, want 404", w.Code)
	}
	if w := get(t, h, "/docs/no-such-file"); w.Code != http.StatusNotFound {
		t.Errorf("an unknown asset: status %d, want 404", w.Code)
	}
}

func TestPagesAreWhatTheDocumentSays(t *testing.T) {
	server := httptest.NewServer(siteHandler(newSite(t)))
	defer server.Close()
	client := &http.Client{Transport: openapitest.Transport(t, server.Client().Transport)}
	for _, path := range []string{"/openapi.yaml", "/openapi.json", "/docs", "/docs/reference", "/docs/swagger-ui.css", "/problems/key_not_found"} {
		for _, tag := range []string{`"other"`, "*"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("If-None-Match", tag)
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
	}
}
