package main

import (
	"strings"
	"testing"
	"time"
)

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		contains(t, shell, mustRun(t, nil, "completion", shell).stdout, "slotgate", "__complete")
	}
	for _, args := range []string{"completion", "completion csh", "completion bash zsh"} {
		if got := slotgate(t, nil, strings.Fields(args)...); got.code != exitUsage {
			t.Errorf("%s: %+v", args, got)
		}
	}
	vars := clusterVars(t)
	mustRun(t, vars, "app", "create", "shop", "--permission", "*")
	mustRun(t, vars, "app", "create", "gone")
	mustRun(t, vars, "app", "delete", "gone", "--confirm=gone")
	id := keyID(tokenForm.FindString(mustRun(t, vars, "key", "create", "shop").stdout))
	mustRun(t, vars, "cluster", "add", "eu", "--addr", "127.0.0.1:1")
	for args, want := range map[string]string{
		"app show": "shop\t", "key create": "shop\t", "key rotate": id + "\tshop", "cluster remove": "eu\n", "cluster check": "default\n",
		"app create a1 --cluster": "eu\n",
	} {
		got := mustRun(t, vars, append(append([]string{"__complete"}, strings.Fields(args)...), "")...)
		contains(t, args, got.stdout, want)
		lacks(t, args, got.stdout, "gone")
	}
	start := time.Now()
	got := mustRun(t, []string{"SLOTGATE_CLUSTERS_DEFAULT_ADDRS=127.0.0.1:1", "SLOTGATE_SECRET_FILE=testdata/secret"}, "__complete", "app", "show", "")
	lacks(t, "away", got.stdout, "shop")
	t.Logf("without a control store it took %v (aim 1 s)", time.Since(start))
}
