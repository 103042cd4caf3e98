package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// reloadTimeout is for a large apps file on a slow disk.
const reloadTimeout = 30 * time.Second

// reloadCommand asks the running gateway by its admin listener.
type reloadCommand struct {
	env   env
	flags *configFlags
	out   output
	cert  string
	key   string
	ca    string
}

func newConfigReloadCommand(e env, flags *configFlags) *cobra.Command {
	c := &reloadCommand{env: e, flags: flags}
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have the running gateway read its configuration again; exits 3 if it refuses",
		Long: `Reload finds the gateway by admin_listen, asks it to read again the configuration it was started with (its own flags,
variables and files), and tells what has changed and what needs a restart. A configuration with a fault changes nothing. The gateway takes this
from its own machine, or with a client certificate where admin_tls.client_ca_file asks for one. SIGHUP does the same, without an answer.`,
		Example: "  slotgate config reload --config slotgate.yaml\n  slotgate config reload --config slotgate.yaml --cert-file ops.pem --key-file ops.key",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.out.register(cmd)
	cmd.Flags().StringVar(&c.cert, "cert-file", "", "client certificate for the admin listener, a PEM `file`")
	cmd.Flags().StringVar(&c.key, "key-file", "", "its private key, a PEM `file`")
	cmd.Flags().StringVar(&c.ca, "ca-file", "", "authorities of the admin listener's certificate, a PEM `file`; without it what is in admin_tls.cert_file")
	return cmd
}

func (c *reloadCommand) run(ctx context.Context) error {
	if (c.cert == "") != (c.key == "") {
		return usageError{errors.New("--cert-file and --key-file go together: give both or none")}
	}
	l, err := c.flags.load(c.env) // its faults are what the gateway is asked about
	if err != nil {
		return err
	}
	addr, scheme := l.Config.AdminListen, "http"
	if !isHostPort(addr) || strings.HasSuffix(addr, ":0") {
		return usageError{fmt.Errorf("admin_listen is %q: give the port that the gateway took, --admin-listen 127.0.0.1:PORT, or send it SIGHUP", addr)}
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if a := l.Config.AdminTLS; a.CertFile != "" {
		scheme = "https"
		if transport.TLSClientConfig, err = c.tls(a); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, scheme+"://"+loopbackOf(addr)+"/reload", nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("asking the gateway: %w", err)
	}
	defer resp.Body.Close()
	return c.report(resp)
}

// loopbackOf is how this machine reaches a listener of its own.
func loopbackOf(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// tls verifies the gateway by the certificates in admin_tls.cert_file, its own and those behind it, or by the authorities of --ca-file.
// Names are not compared: an address of loopback is in no certificate, and what is trusted is this gateway's alone.
func (c *reloadCommand) tls(a AdminTLS) (*tls.Config, error) {
	file := c.ca
	if file == "" {
		file = a.CertFile
	}
	data, err := readFile(file, maxTLSFile)
	if err != nil {
		return nil, fmt.Errorf("reading what the gateway's certificate is verified by: %w", err)
	}
	trusted, err := parseCertificates(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	roots := x509.NewCertPool()
	for _, cert := range trusted {
		roots.AddCert(cert)
	}
	cfg := &tls.Config{
		InsecureSkipVerify: true, // VerifyConnection does it, by other roots and without the name
		VerifyConnection: func(state tls.ConnectionState) error {
			between := x509.NewCertPool()
			for _, cert := range state.PeerCertificates[1:] {
				between.AddCert(cert)
			}
			if _, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between}); err != nil {
				return fmt.Errorf("%w; it is verified by %s: name its authority with --ca-file, or send SIGHUP", err, file)
			}
			return nil
		},
	}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, usageError{fmt.Errorf("reading the client certificate: %w", err)}
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// maxReloadAnswer is far more than all settings and as many faults, in bytes.
const maxReloadAnswer = 1 << 20

func (c *reloadCommand) report(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReloadAnswer))
	if err != nil {
		return fmt.Errorf("reading the gateway's answer: %w", err)
	}
	var r reload
	switch {
	case resp.StatusCode == http.StatusForbidden:
		return deniedError{errors.New(strings.TrimSpace(string(body)))}
	case !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") || json.Unmarshal(body, &r) != nil:
		return fmt.Errorf("the gateway answered %s: is %s its admin listener?", resp.Status, resp.Request.URL.Host)
	}
	if c.out == outputJSON {
		if err := writeJSON(c.env.Stdout, r); err != nil {
			return err
		}
	}
	switch {
	case len(r.Faults) > 0:
		return checkError{fmt.Errorf("the gateway refused and goes on as before: %w", r.Faults)}
	case !r.OK:
		return fmt.Errorf("the gateway refused and goes on as before: %s", r.Error)
	case c.out == outputTable:
		r.print(c.env.Stdout)
	}
	return nil
}

func (r reload) print(w io.Writer) {
	fmt.Fprintln(w, "The configuration was reloaded.")
	for _, path := range r.Changed {
		fmt.Fprintln(w, "  changed: "+path)
	}
	for _, path := range r.NeedsRestart {
		fmt.Fprintln(w, "  needs a restart: "+path)
	}
}
