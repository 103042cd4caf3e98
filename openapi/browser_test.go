package openapi_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slotgate/slotgate/openapi"
)

// origin is a gateway and, at the same time, the browser's proxy: whatever the browser asks of another host arrives here too, is refused and
// remembered.
type origin struct {
	*httptest.Server
	mu      sync.Mutex
	foreign []string
	served  []string
}

func newOrigin(t *testing.T, h http.Handler) *origin {
	o := &origin{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.note(r) {
			h.ServeHTTP(w, r)
			return
		}
		http.Error(w, "no way out", http.StatusForbidden)
	}))
	t.Cleanup(o.Close)
	return o
}

// note remembers a request and reports whether it is for this server.
func (o *origin) note(r *http.Request) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	here := r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
	if r.Method == http.MethodConnect || r.Host != here {
		o.foreign = append(o.foreign, r.Method+" "+r.Host)
		return false
	}
	o.served = append(o.served, r.URL.Path)
	return true
}

// loaded are the paths that were asked for here.
func (o *origin) loaded() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.served)
}

// browse loads a page in a headless Chromium and returns the document after its scripts have run, and what the browser logged.
func (o *origin) browse(t *testing.T, path string) (dom, log string) {
	t.Helper()
	binary, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("SLOTGATE_TEST_ALLOW_SKIP") != "" {
			t.Skip("chromium is not installed")
		}
		t.Fatal("chromium is not installed; install it, or set SLOTGATE_TEST_ALLOW_SKIP to skip the tests of the pages")
	}
	proxy, err := url.Parse(o.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
		"--disable-extensions", "--user-data-dir="+t.TempDir(), "--proxy-server="+proxy.Host, "--proxy-bypass-list=<-loopback>",
		"--enable-logging=stderr", "--v=0", "--virtual-time-budget=20000", "--dump-dom", o.URL+path)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, stderr.String())
	}
	return stdout.String(), stderr.String()
}

func TestDocsPageWorksOffline(t *testing.T) {
	o := newOrigin(t, siteHandler(newSite(t)))
	dom, log := o.browse(t, "/docs")
	for path, item := range load(t, openapi.Document()).Paths.Map() {
		for _, op := range item.Operations() {
			if !strings.Contains(dom, `id="operations-`+op.Tags[0]+"-"+op.OperationID+`"`) {
				t.Errorf("the page does not show %s (%s)", op.OperationID, path)
			}
		}
	}
	for _, path := range []string{"/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/docs/docs.js", "/openapi.json"} {
		if !slices.Contains(o.loaded(), path) {
			t.Errorf("the page did not load %s; it loaded %v", path, o.loaded())
		}
	}
	assertQuiet(t, o, log)
}

// driver presses the page's own button, once the operation is shown whole, from a script of the same origin, as the page's policy demands.
const driver = `var timer = window.setInterval(function () {
  var operation = document.querySelector("#operations-identity-getWhoami");
  if (operation && operation.querySelector(".responses-table .response[data-code='504']")) {
    window.clearInterval(timer);
    operation.querySelector(".execute").click();
  }
}, 50);`

func TestOperationsCanBeTriedOnTheDocsPage(t *testing.T) {
	site := siteHandler(newSite(t))
	o := newOrigin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/docs":
			page := get(t, site, "/docs")
			w.Header().Set("Content-Security-Policy", page.Header().Get("Content-Security-Policy"))
			_, _ = w.Write([]byte(strings.Replace(page.Body.String(), "</body>", `<script src="/driver.js"></script></body>`, 1)))
		case "/driver.js":
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = w.Write([]byte(driver))
		case "/v1/whoami":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"app":{"id":"answered-by-the-test"}}`))
		default:
			site.ServeHTTP(w, r)
		}
	}))
	dom, log := o.browse(t, "/docs#/identity/getWhoami")
	if !slices.Contains(o.loaded(), "/v1/whoami") {
		t.Fatalf("the page did not send the request; it loaded %v\n%s", o.loaded(), log)
	}
	for _, want := range []string{"answered-by-the-test", o.URL + "/v1/whoami"} {
		if !strings.Contains(dom, want) {
			t.Errorf("the page does not show %s", want)
		}
	}
	assertQuiet(t, o, log)
}

func TestReferencePageIsStyledAndQuiet(t *testing.T) {
	o := newOrigin(t, siteHandler(newSite(t)))
	dom, log := o.browse(t, "/docs/reference")
	if !strings.Contains(dom, `id="addCounter"`) || strings.Contains(dom, "<script") {
		t.Error("the reference lacks its operations, or has a script")
	}
	if !slices.Contains(o.loaded(), "/docs/docs.css") {
		t.Errorf("the page did not load its style sheet; it loaded %v", o.loaded())
	}
	assertQuiet(t, o, log)
}

// TestBrowserLogsWhatThePolicyRefuses is the counter-proof: without it assertQuiet could pass because nothing is logged at all.
func TestBrowserLogsWhatThePolicyRefuses(t *testing.T) {
	o := newOrigin(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", get(t, newSite(t).Docs(), "/docs").Header().Get("Content-Security-Policy"))
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<p id="a">before</p><img src="http://pictures.test/x.png"><script>document.getElementById("a").textContent = "after"</script>`))
	}))
	dom, log := o.browse(t, "/")
	if !strings.Contains(dom, "before") || strings.Contains(dom, ">after<") {
		t.Error("an inline script ran")
	}
	if strings.Count(log, refusal) < 2 {
		t.Errorf("the browser did not log that it refused the picture and the script:\n%s", log)
	}
	if len(o.pageRequests()) != 0 {
		t.Errorf("the picture was asked for: %v", o.pageRequests())
	}
}

const refusal = "Content Security Policy"

func assertQuiet(t *testing.T, o *origin, log string) {
	t.Helper()
	if asked := o.pageRequests(); len(asked) != 0 {
		t.Errorf("the page asked other hosts: %v", asked)
	}
	if strings.Contains(log, refusal) || strings.Contains(log, "CONSOLE") {
		t.Errorf("the browser complained:\n%s", log)
	}
}

// pageRequests are the requests to other hosts, without those that Chromium makes on its own account at every start (updates,
// accounts); they end at the proxy as well. A page that asked the same hosts would be seen in the browser's log, since its policy forbids it.
func (o *origin) pageRequests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var asked []string
	for _, f := range o.foreign {
		host, _, _ := strings.Cut(f[strings.IndexByte(f, ' ')+1:], ":")
		if !strings.HasSuffix(host, ".google.com") && !strings.HasSuffix(host, ".googleapis.com") && !strings.HasSuffix(host, ".gvt1.com") {
			asked = append(asked, f)
		}
	}
	return asked
}
