package tokens

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
)

// localFile is a set in a file.
type localFile string

func (f localFile) read(context.Context) ([]byte, error) {
	file, err := os.Open(string(f))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return atMost(file)
}

// remote is a set that is fetched.
type remote struct {
	url    string
	client *http.Client
}

// newRemote makes the source for a URL. Connections are not kept: there is one in ten minutes, and nothing to close afterwards.
func newRemote(address string) *remote {
	return &remote{address, &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment},
		// Wherever a redirect leads was not what the operator has trusted.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (r *remote) read(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return nil, fmt.Errorf("%s redirects, which is not followed; write the address it leads to", r.url)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s", r.url, resp.Status)
	}
	return atMost(resp.Body)
}

func atMost(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxJWKSBytes+1))
	if err == nil && len(text) > MaxJWKSBytes {
		return nil, fmt.Errorf("the key set is longer than %d bytes", MaxJWKSBytes)
	}
	return text, err
}

// CheckJWKSURL says what is wrong with the address of a key set: without TLS whoever is on the way could put in a key of his own.
func CheckJWKSURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "":
		return errors.New("it is not a URL; write for example https://login.example.com/.well-known/jwks.json")
	case u.User != nil:
		return errors.New("it holds a user or password, which would get into logs; key sets are public")
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	}
	return fmt.Errorf("%s: a key set is fetched over https only (http on loopback)", u.Redacted())
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// CheckJWKS says what is wrong with the key set in a file.
func CheckJWKS(path string, algorithms []string) error {
	text, err := localFile(path).read(context.Background())
	if err == nil {
		_, _, err = parseJWKS(text, algorithms)
	}
	return err
}
