package deploy_test

import (
	"bytes"
	"io"
	"os/exec"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
)

// kustomize renders where neither kustomize nor kubectl is installed. A pinned tool, not a dependency of the module.
const kustomize = "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1"

// What of the objects the tests look at. Everything else is for "make kubernetes", which validates against Kubernetes' own schemas.
type (
	labels   map[string]string
	selector struct {
		MatchLabels labels `yaml:"matchLabels"`
	}
	object struct {
		Kind     string
		Metadata struct {
			Name, Namespace string
			Labels          labels
		}
		Data map[string]string
		Spec yaml.Node
	}
	objects    []object
	deployment struct {
		Replicas *int
		Selector selector
		Template struct {
			Metadata struct{ Labels labels }
			Spec     pod
		}
	}
	pod struct {
		AutomountServiceAccountToken  *bool `yaml:"automountServiceAccountToken"`
		EnableServiceLinks            *bool `yaml:"enableServiceLinks"`
		TerminationGracePeriodSeconds int   `yaml:"terminationGracePeriodSeconds"`
		SecurityContext               struct {
			RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
			SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
		} `yaml:"securityContext"`
		TopologySpreadConstraints []struct {
			LabelSelector selector `yaml:"labelSelector"`
		} `yaml:"topologySpreadConstraints"`
		Containers []container
		Volumes    []volume
	}
	volume struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
		Secret    struct {
			SecretName string `yaml:"secretName"`
		}
	}
	mount struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	}
	container struct {
		Args  []string
		Ports []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
		}
		Env       []struct{ Name, Value string }
		Resources struct{ Requests, Limits map[string]string }
		Liveness  probe `yaml:"livenessProbe"`
		Readiness probe `yaml:"readinessProbe"`
		Lifecycle struct {
			PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
		}
		SecurityContext struct {
			AllowPrivilegeEscalation *bool                   `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool                    `yaml:"readOnlyRootFilesystem"`
			Capabilities             struct{ Drop []string } `yaml:"capabilities"`
		} `yaml:"securityContext"`
		VolumeMounts []mount `yaml:"volumeMounts"`
	}
	probe struct {
		HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
		PeriodSeconds    int                         `yaml:"periodSeconds"`
		TimeoutSeconds   int                         `yaml:"timeoutSeconds"`
		FailureThreshold int                         `yaml:"failureThreshold"`
	}
	policyPeer struct {
		NamespaceSelector selector              `yaml:"namespaceSelector"`
		PodSelector       selector              `yaml:"podSelector"`
		IPBlock           struct{ CIDR string } `yaml:"ipBlock"`
	}
	policyRule struct {
		From, To []policyPeer
		Ports    []struct{ Protocol, Port string }
	}
	networkPolicy struct {
		PodSelector     selector `yaml:"podSelector"`
		PolicyTypes     []string `yaml:"policyTypes"`
		Ingress, Egress []policyRule
	}
)

// render is what "kubectl kustomize" makes of a folder.
func render(t *testing.T, folder string) objects {
	t.Helper()
	command := []string{"go", "run", kustomize, "build"}
	for _, tool := range [][]string{{"kustomize", "build"}, {"kubectl", "kustomize"}} {
		if _, err := exec.LookPath(tool[0]); err == nil {
			command = tool
			break
		}
	}
	cmd := exec.Command(command[0], append(command[1:], folder)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, &stderr)
	}
	var all objects
	for d := yaml.NewDecoder(bytes.NewReader(out)); ; {
		var o object
		if err := d.Decode(&o); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
}

func (all objects) one(t *testing.T, kind string) object {
	t.Helper()
	i := slices.IndexFunc(all, func(o object) bool { return o.Kind == kind })
	if i < 0 {
		t.Fatalf("there is no %s", kind)
	}
	return all[i]
}

func spec[T any](t *testing.T, all objects, kind string) T {
	t.Helper()
	var v T
	o := all.one(t, kind)
	if err := o.Spec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return v
}

func (s selector) finds(l labels) bool {
	for name, value := range s.MatchLabels {
		if l[name] != value {
			return false
		}
	}
	return len(s.MatchLabels) > 0
}

// config is the gateway's configuration in the ConfigMap, and its settings with the defaults behind them.
func (all objects) config(t *testing.T) (text string, parsed struct {
	Listen      string
	AdminListen string `yaml:"admin_listen"`
	SecretFile  string `yaml:"secret_file"`
	Clusters    map[string]struct {
		Addrs        []string
		Password     string
		PasswordFile string `yaml:"password_file"`
	}
}) {
	t.Helper()
	text = all.one(t, "ConfigMap").Data["slotgate.yaml"]
	if err := yaml.Unmarshal([]byte(text), &parsed); err != nil {
		t.Fatal(err)
	}
	return text, parsed
}
