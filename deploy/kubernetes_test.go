package deploy_test

import (
	"maps"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestKubernetes(t *testing.T) {
	for _, folder := range []string{"base", "example"} {
		t.Run(folder, func(t *testing.T) {
			all := render(t, "kubernetes/"+folder)
			d := spec[deployment](t, all, "Deployment")
			if len(d.Template.Spec.Containers) != 1 {
				t.Fatal("there is not one container")
			}
			for says, check := range map[string]func(*testing.T, objects, deployment, container){
				"selectors find the pods":                      selectorsFindThePods,
				"ports are the gateway's":                      portsAreTheGateways,
				"probes ask what exists":                       probesAskWhatExists,
				"a pod ends in order":                          podEndsInOrder,
				"a pod may do nothing but serve":               podMayOnlyServe,
				"memory fits":                                  memoryFits,
				"the configuration is good":                    configurationIsGood,
				"secrets are named and never there":            secretsAreOnlyNamed,
				"the network lets in callers and out to Redis": networkIsAsNarrowAsItWorks,
				"the autoscaler alone counts":                  autoscalerCounts,
			} {
				t.Run(says, func(t *testing.T) { check(t, all, d, d.Template.Spec.Containers[0]) })
			}
		})
	}
	t.Run("the example is in its namespace, which admits only restricted pods", func(t *testing.T) {
		all := render(t, "kubernetes/example")
		ns := all.one(t, "Namespace").Metadata
		if ns.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
			t.Error("the namespace does not enforce restricted pods")
		}
		for _, o := range all {
			if o.Kind != "Namespace" && o.Metadata.Namespace != ns.Name {
				t.Errorf("%s %s is in namespace %q", o.Kind, o.Metadata.Name, o.Metadata.Namespace)
			}
		}
	})
}

func selectorsFindThePods(t *testing.T, all objects, d deployment, _ container) {
	pods := d.Template.Metadata.Labels
	if !d.Selector.finds(pods) {
		t.Error("the Deployment does not find its pods")
	}
	if s := (selector{spec[struct{ Selector labels }](t, all, "Service").Selector}); !s.finds(pods) {
		t.Error("the Service finds no pods")
	}
	type selecting struct{ Selector selector }
	if !spec[selecting](t, all, "PodDisruptionBudget").Selector.finds(pods) {
		t.Error("the PodDisruptionBudget finds no pods")
	}
	if !spec[networkPolicy](t, all, "NetworkPolicy").PodSelector.finds(pods) {
		t.Error("the NetworkPolicy finds no pods")
	}
	if len(d.Template.Spec.TopologySpreadConstraints) != 2 {
		t.Error("pods are not spread over zones and nodes")
	}
	for _, c := range d.Template.Spec.TopologySpreadConstraints {
		if !c.LabelSelector.finds(pods) {
			t.Error("the spread counts other pods")
		}
	}
	for _, o := range all {
		var monitor selecting
		if o.Kind == "PodMonitor" && (o.Spec.Decode(&monitor) != nil || !monitor.Selector.finds(pods)) {
			t.Error("the PodMonitor finds no pods")
		}
	}
}

func portsAreTheGateways(t *testing.T, all objects, _ deployment, c container) {
	_, config := all.config(t)
	ports := map[string]int{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	want := map[string]string{"api": portOf(config.Listen), "admin": portOf(config.AdminListen)}
	for name, port := range want {
		if strconv.Itoa(ports[name]) != port {
			t.Errorf("port %s is %d, the configuration has %s", name, ports[name], port)
		}
	}
	service := spec[struct {
		Ports []struct {
			TargetPort string `yaml:"targetPort"`
		}
	}](t, all, "Service")
	if len(service.Ports) != 1 || service.Ports[0].TargetPort != "api" {
		t.Errorf("the Service leads to %v, want api alone: admin asks for no key", service.Ports)
	}
	for _, p := range []probe{c.Liveness, c.Readiness} {
		if p.HTTPGet.Port != "admin" {
			t.Errorf("a probe asks port %q", p.HTTPGet.Port)
		}
	}
}

func probesAskWhatExists(t *testing.T, all objects, _ deployment, c container) {
	// A gateway whose Redis is away: alive, not ready, with metrics.
	dir, admin := t.TempDir(), freeAddr(t)
	cmd := exec.Command(built(t), "serve", "--set", "control.file="+write(t, filepath.Join(dir, "apps.yaml"), "apps: []\n"), "--listen", freeAddr(t),
		"--admin-listen", admin, "--secret-file", write(t, filepath.Join(dir, "secret"), strings.Repeat("secret", 8)), "--addrs", "127.0.0.1:1",
		"--set", "http.drain_delay_ms=0")
	begin(t, cmd)
	eventually(t, "the gateway lives", func() bool { return status("http://"+admin+"/livez") == 200 })
	if got := status("http://" + admin + c.Liveness.HTTPGet.Path); got != 200 {
		t.Errorf("liveness: %d while Redis is away, so pods would be restarted for it", got)
	}
	if got := status("http://" + admin + c.Readiness.HTTPGet.Path); got != 503 {
		t.Errorf("readiness: %d while Redis is away", got)
	}
	for _, o := range all {
		if o.Kind != "PodMonitor" {
			continue
		}
		var monitor struct {
			JobLabel            string                        `yaml:"jobLabel"`
			PodMetricsEndpoints []struct{ Port, Path string } `yaml:"podMetricsEndpoints"`
		}
		if err := o.Spec.Decode(&monitor); err != nil || monitor.PodMetricsEndpoints[0].Port != "admin" || monitor.JobLabel != "app.kubernetes.io/name" {
			t.Fatalf("the PodMonitor scrapes %v (%v)", monitor, err)
		}
		if got := status("http://" + admin + monitor.PodMetricsEndpoints[0].Path); got != 200 {
			t.Errorf("metrics: %d", got)
		}
	}
}

func podEndsInOrder(t *testing.T, _ objects, d deployment, c container) {
	stop := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	grace := time.Duration(d.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if grace <= stop+drain(t) {
		t.Errorf("killed after %v, within preStop's %v and the drain's %v", grace, stop, drain(t))
	}
	notices := time.Duration(c.Readiness.PeriodSeconds*c.Readiness.FailureThreshold) * time.Second
	if delay := setting(t, "http.drain_delay_ms"); stop == 0 || notices >= delay {
		t.Errorf("a pod that drains for %v is noticed after %v", delay, notices)
	}
	// probeTimeout of the gateway is 700 ms: what it says must arrive.
	if c.Readiness.TimeoutSeconds < 1 {
		t.Error("the readiness probe gives up before the gateway has asked Redis")
	}
	if c.Liveness.PeriodSeconds*c.Liveness.FailureThreshold < 20 {
		t.Error("a short stall restarts the pod")
	}
}

func podMayOnlyServe(t *testing.T, _ objects, d deployment, c container) {
	p, no := d.Template.Spec, func(b *bool) bool { return b != nil && !*b }
	for says, ok := range map[string]bool{
		"it runs as a user":            p.SecurityContext.RunAsNonRoot,
		"seccomp is on":                p.SecurityContext.SeccompProfile.Type == "RuntimeDefault",
		"no token of Kubernetes":       no(p.AutomountServiceAccountToken),
		"no variables of Services":     no(p.EnableServiceLinks),
		"no more privileges":           no(c.SecurityContext.AllowPrivilegeEscalation),
		"no writable root":             c.SecurityContext.ReadOnlyRootFilesystem,
		"no capabilities":              slices.Equal(c.SecurityContext.Capabilities.Drop, []string{"ALL"}),
		"what is mounted is read-only": !slices.ContainsFunc(c.VolumeMounts, func(m mount) bool { return !m.ReadOnly }),
	} {
		if !ok {
			t.Errorf("not so: %s", says)
		}
	}
}

// bytesOf reads 768MiB and 1Gi.
func bytesOf(t *testing.T, text string) int {
	t.Helper()
	for unit, size := range map[string]int{"Mi": 1 << 20, "Gi": 1 << 30} {
		if number, ok := strings.CutSuffix(strings.TrimSuffix(text, "B"), unit); ok {
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			return n * size
		}
	}
	t.Fatalf("%q has no known unit", text)
	return 0
}

func memoryFits(t *testing.T, _ objects, _ deployment, c container) {
	inFlight, err := strconv.Atoi(defaults(t)["limits.bytes_in_flight"])
	if err != nil || len(c.Env) != 1 || c.Env[0].Name != "GOMEMLIMIT" {
		t.Fatalf("environment %v (%v)", c.Env, err)
	}
	goes, limit := bytesOf(t, c.Env[0].Value), bytesOf(t, c.Resources.Limits["memory"])
	if goes < 3*inFlight || goes > limit*9/10 {
		t.Errorf("GOMEMLIMIT is %d: want three times limits.bytes_in_flight (%d) and a tenth below the limit (%d)", goes, inFlight, limit)
	}
	if !maps.Equal(c.Resources.Limits, c.Resources.Requests) || c.Resources.Limits["cpu"] == "" {
		t.Errorf("requests %v are not the limits %v: the pod is not Guaranteed", c.Resources.Requests, c.Resources.Limits)
	}
}

func configurationIsGood(t *testing.T, all objects, d deployment, c container) {
	text, config := all.config(t)
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	for _, v := range d.Template.Spec.Volumes {
		if v.ConfigMap.Name != "" && v.ConfigMap.Name != all.one(t, "ConfigMap").Metadata.Name {
			t.Errorf("volume %s is of another ConfigMap: %s", v.Name, v.ConfigMap.Name)
		}
	}
	if path := mounts["config"] + "/slotgate.yaml"; !slices.Equal(c.Args, []string{"serve", "--config", path}) {
		t.Errorf("it runs %v, the configuration is %s", c.Args, path)
	}
	dir := t.TempDir()
	for _, file := range []string{config.SecretFile, config.Clusters["default"].PasswordFile} {
		if file != "" && filepath.Dir(file) != mounts["secrets"] {
			t.Errorf("%s is not where secrets are mounted, %s", file, mounts["secrets"])
		}
	}
	write(t, filepath.Join(dir, "secret"), strings.Repeat("secret", 8))
	write(t, filepath.Join(dir, "redis-password"), "password")
	path := write(t, filepath.Join(dir, "slotgate.yaml"), replaced(t, text, mounts["secrets"], dir))
	check := exec.Command(built(t), "config", "check", "--config", path)
	check.Env = []string{}
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func secretsAreOnlyNamed(t *testing.T, all objects, d deployment, _ container) {
	_, config := all.config(t)
	for _, o := range all {
		if o.Kind == "Secret" {
			t.Error("a Secret is part of what is shipped")
		}
	}
	for name, c := range config.Clusters {
		if c.Password != "" {
			t.Errorf("the password of cluster %s is in the ConfigMap", name)
		}
	}
	if !slices.ContainsFunc(d.Template.Spec.Volumes, func(v volume) bool { return v.Secret.SecretName == "slotgate" }) {
		t.Error("no volume has the secret")
	}
}

func networkIsAsNarrowAsItWorks(t *testing.T, all objects, _ deployment, _ container) {
	p := spec[networkPolicy](t, all, "NetworkPolicy")
	if !slices.Equal(p.PolicyTypes, []string{"Ingress", "Egress"}) {
		t.Errorf("policyTypes %v leave something open", p.PolicyTypes)
	}
	for _, rule := range p.Ingress {
		if len(rule.From) == 0 || len(rule.Ports) != 1 || len(rule.From[0].NamespaceSelector.MatchLabels) == 0 {
			t.Errorf("a rule lets in anybody: %+v", rule)
			continue
		}
		monitoring := rule.From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] == "monitoring"
		if admin := rule.Ports[0].Port == "admin"; admin != monitoring {
			t.Errorf("port %s is open to %v", rule.Ports[0].Port, rule.From)
		}
	}
	// The DNS server's pods carry none of our labels.
	if dns := p.Egress[0]; !maps.Equal(dns.To[0].PodSelector.MatchLabels, labels{"k8s-app": "kube-dns"}) || len(dns.Ports) != 2 || dns.Ports[0].Port != "53" {
		t.Errorf("DNS is not reached: %+v", dns)
	}
	_, config := all.config(t)
	nodes := p.Egress[1]
	block, err := netip.ParsePrefix(nodes.To[0].IPBlock.CIDR)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range config.Clusters["default"].Addrs {
		at, err := netip.ParseAddrPort(addr)
		if err != nil || !block.Contains(at.Addr()) || strconv.Itoa(int(at.Port())) != nodes.Ports[0].Port {
			t.Errorf("the node %s is not reached through %+v (%v)", addr, nodes, err)
		}
	}
}

func autoscalerCounts(t *testing.T, all objects, d deployment, _ container) {
	if d.Replicas != nil {
		t.Error("the Deployment has replicas, which undo the autoscaler's at each apply")
	}
	hpa := spec[struct {
		ScaleTargetRef struct{ Kind, Name string } `yaml:"scaleTargetRef"`
		MinReplicas    int                         `yaml:"minReplicas"`
		MaxReplicas    int                         `yaml:"maxReplicas"`
	}](t, all, "HorizontalPodAutoscaler")
	if ref := hpa.ScaleTargetRef; ref.Kind != "Deployment" || ref.Name != all.one(t, "Deployment").Metadata.Name {
		t.Errorf("it scales %+v", ref)
	}
	budget := spec[struct {
		MaxUnavailable int `yaml:"maxUnavailable"`
	}](t, all, "PodDisruptionBudget")
	if hpa.MinReplicas <= budget.MaxUnavailable+1 || hpa.MaxReplicas < hpa.MinReplicas {
		t.Errorf("%d to %d gateways with %d that may be away: a failure meanwhile leaves one", hpa.MinReplicas, hpa.MaxReplicas, budget.MaxUnavailable)
	}
	single, _ := strconv.Atoi(defaults(t)["redis.pool_size"])
	batches, _ := strconv.Atoi(defaults(t)["redis.pipeline_pool_size"])
	if n := hpa.MaxReplicas * (single + batches); n == 0 || n > 5000 {
		t.Errorf("%d connections to a node: more than half of Redis' maxclients (10,000)", n)
	}
}

func TestKubernetesIsRenderedByOneTool(t *testing.T) {
	if !strings.Contains(read(t, "kubernetes/validate"), kustomize) {
		t.Errorf("kubernetes/validate runs another version than %s", kustomize)
	}
}
