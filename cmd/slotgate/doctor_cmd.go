package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/slotgate/slotgate/acl"
	"github.com/slotgate/slotgate/cmd/slotgate/doctor"
	"github.com/slotgate/slotgate/store"
)

const (
	// doctorTime bounds the whole examination: nodes that do not answer are asked at the same time.
	doctorTime = 5 * time.Second
	// quickTime is below what container engines give a health check.
	quickTime = 2 * time.Second
	// certificateWarning is what is left of most certificates when their renewal is overdue.
	certificateWarning = 14 * 24 * time.Hour
)

func newDoctorCommand(e env) *cobra.Command {
	var (
		flags configFlags
		out   output
		quick bool
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at every cluster, at the control store and at this machine, and say what to do",
		Long: `Doctor looks at each node of every configured and stored cluster, at the control store, at the certificates and at this
machine. It changes nothing and ends within 5 seconds. It exits 0 if nothing fails (warnings are no failure), 3 if
something does, and 4 if a cluster cannot be reached at all. With --quick it only asks the gateway on this machine
whether it lives, for the health checks of containers.`,
		Example: "  slotgate doctor --config slotgate.yaml\n  slotgate doctor -o json | jq '.[] | select(.status != \"ok\")'\n  slotgate doctor --quick",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := flags.config(e)
			if err != nil {
				return err
			}
			if quick {
				return askLivez(cmd.Context(), cfg)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), doctorTime)
			defer cancel()
			found := hostOf(cfg).Check()
			found = append(found, certificateFindings(cfg, time.Now())...)
			err = withControl(cmd.Context(), e, &flags, func(_ context.Context, c *control) error {
				found = append(found, c.examine(ctx)...)
				return nil
			})
			if err != nil {
				return err
			}
			return reportFindings(e, out, found)
		},
	}
	flags.register(cmd, true)
	out.register(cmd)
	cmd.Flags().BoolVar(&quick, "quick", false, "only ask the gateway here whether it lives")
	return cmd
}

func newClusterCheckCommand(e env, flags *configFlags) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "check NAME",
		Short:   "Look at each node of a cluster, as doctor does",
		Example: "  slotgate cluster check eu-2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withControl(cmd.Context(), e, flags, func(ctx context.Context, c *control) error {
				ctx, cancel := context.WithTimeout(ctx, doctorTime)
				defer cancel()
				cluster, err := c.cluster(ctx, args[0])
				if err != nil {
					return err
				}
				return reportFindings(e, out, c.examineCluster(ctx, args[0], cluster))
			})
		},
	}
	out.register(cmd)
	return cmd
}

// hostOf is this machine as the gateway with this configuration would use it.
func hostOf(cfg Config) doctor.Host {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		limit = 0
	}
	return doctor.Host{
		Root: os.DirFS("/"), MemLimit: limit, Procs: runtime.GOMAXPROCS(0),
		Listen: map[string]string{"listen": cfg.Listen, "admin_listen": cfg.AdminListen},
	}
}

// certificateFindings look at our own certificates. What is wrong with the files, the configuration's check has said.
func certificateFindings(cfg Config, now time.Time) (found []doctor.Finding) {
	states, _ := readTLS(cfg, now)
	for _, place := range tlsPlaces(cfg) {
		found = append(found, certificateFinding(place, states[place].expires, now)...)
	}
	return found
}

// certificateFinding is nothing where we show no certificate.
func certificateFinding(place string, expires, now time.Time) []doctor.Finding {
	if expires.IsZero() {
		return nil
	}
	f := doctor.Finding{Where: place, Check: "certificate", Status: doctor.OK, Detail: "expires " + expires.UTC().Format(time.RFC3339)}
	if expires.Sub(now) < certificateWarning {
		f.Status, f.Do = doctor.Warn, "renew it; the gateway takes the new file within a minute"
	}
	return []doctor.Finding{f}
}

// examine looks at the control store and at all clusters, at the same time.
func (c *control) examine(ctx context.Context) []doctor.Finding {
	set, err := c.List(ctx)
	kept := doctor.Finding{Where: "control store", Check: "apps and keys", Status: doctor.OK}
	if err != nil {
		kept.Status, kept.Detail, kept.Do = doctor.Fail, err.Error(), "gateways go on with what they have loaded; mend it before any of them restarts"
		set = &acl.Set{}
	} else {
		kept.Detail = fmt.Sprintf("%d apps, %d keys, %d stored clusters", len(set.Apps), len(set.Keys), len(set.Clusters))
	}
	known := slices.DeleteFunc(c.cfg.knownClusters(set), func(k knownCluster) bool { return k.Origin == shadowed })
	perCluster := make([][]doctor.Finding, len(known))
	var wg sync.WaitGroup
	for i, k := range known {
		wg.Go(func() {
			if k.Origin == fromStore && k.TLS.Enabled {
				state, _ := readStoredTLS(c.cfg, k.Name, k.TLS, time.Now()) // what is wrong, fromStored says
				perCluster[i] = certificateFinding(clusterPlace(k.Name), state.expires, time.Now())
			}
			perCluster[i] = append(perCluster[i], c.examineKnown(ctx, k)...)
		})
	}
	wg.Wait()
	return append([]doctor.Finding{kept}, slices.Concat(perCluster...)...)
}

func (c *control) examineKnown(ctx context.Context, k knownCluster) []doctor.Finding {
	var cluster store.ClusterConfig
	var err error
	if k.Origin == fromConfig {
		cluster, err = c.cfg.currentCluster(k.Name)
	} else {
		cluster, err = c.cfg.fromStored(&k.Cluster)
	}
	if err != nil {
		return []doctor.Finding{{
			Where: k.Name, Check: "files", Status: doctor.Fail, Detail: err.Error(), Do: "put the file there, readable to the gateway",
		}}
	}
	return c.examineCluster(ctx, k.Name, cluster)
}

func (c *control) examineCluster(ctx context.Context, name string, cluster store.ClusterConfig) []doctor.Finding {
	client := newClusterClient(c.cfg, cluster)
	defer client.Close()
	return doctor.Cluster{Name: name, Client: client, Control: name == c.cfg.controlCluster(), Now: time.Now}.Check(ctx)
}

// reportFindings writes all, the worst last where people look, and turns failures into the exit code.
func reportFindings(e env, out output, found []doctor.Finding) error {
	var err error
	if out == outputJSON {
		err = writeJSON(e.Stdout, found)
	} else {
		err = writeTable(e.Stdout, findingRows(found))
	}
	if err != nil {
		return err
	}
	failed, unreachable := 0, false
	for _, f := range found {
		if f.Status == doctor.Fail {
			failed++
		}
		unreachable = unreachable || f.Unreachable
	}
	switch {
	case unreachable:
		return unreachableError{fmt.Errorf("%d checks failed, and a cluster cannot be reached", failed)}
	case failed > 0:
		return checkError{fmt.Errorf("%d checks failed", failed)}
	}
	return nil
}

func findingRows(found []doctor.Finding) [][]string {
	found = slices.Clone(found)
	order := []doctor.Status{doctor.OK, doctor.Warn, doctor.Fail}
	slices.SortStableFunc(found, func(a, b doctor.Finding) int {
		return slices.Index(order, a.Status) - slices.Index(order, b.Status)
	})
	rows := [][]string{{"STATUS", "WHERE", "CHECK", "FOUND"}}
	for _, f := range found {
		rows = append(rows, []string{string(f.Status), f.Where, f.Check, f.Detail})
		if f.Do != "" {
			rows = append(rows, []string{"", "", "", "→ " + f.Do})
		}
	}
	return rows
}

// adminClient speaks to the admin listener here. Over TLS its certificate is not looked at: this asks a process on this machine whether
// it lives, and its certificate is for the name that others use.
func adminClient(cfg Config) (client *http.Client, url string) {
	url = baseURL(cfg.AdminListen)
	if cfg.AdminTLS.CertFile == "" {
		return &http.Client{Transport: &http.Transport{}}, url
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}, "https" + strings.TrimPrefix(url, "http")
}

// askLivez asks the gateway on this machine. It does not ask for readiness: a container must not be restarted because Redis is away.
func askLivez(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeout(ctx, quickTime)
	defer cancel()
	client, url := adminClient(cfg)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/livez", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return unreachableError{fmt.Errorf("the gateway does not answer: %w", err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return checkError{errors.New("the gateway answers " + resp.Status)}
	}
	return nil
}
