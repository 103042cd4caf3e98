//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// profileSeconds is enough for some hundred samples in every function that matters.
const profileSeconds = 5

var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// profile saves a CPU profile of a gateway under the load of its row, after the rounds, so that it costs none of them. Beside it goes the
// list of the most expensive functions, when the go command is there.
func (c *comparison) profile(ctx context.Context, s scenario, d *door) error {
	name := fmt.Sprintf("%s-%s.pprof", c.Profile, strings.Trim(notInNames.ReplaceAllString(d.name+" "+s.String(), "-"), "-"))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	fmt.Fprintf(c.stderr, "%s: profiling %s for %d s\n", s, d.name, profileSeconds)
	saved := make(chan error, 1)
	go func() {
		saved <- save(ctx, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", d.gateways[0].admin, profileSeconds), name)
	}()
	_, err := c.load.do(ctx, order{Do: "run", Row: d.name, Duration: (profileSeconds + 1) * time.Second})
	if err2 := <-saved; err == nil {
		err = err2
	}
	if err != nil {
		return fmt.Errorf("profiling %s: %w", d.name, err)
	}
	if top, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-cum", "-nodecount=80", name).Output(); err == nil {
		return os.WriteFile(strings.TrimSuffix(name, ".pprof")+".txt", top, 0o644)
	}
	return nil
}

func save(ctx context.Context, url, path string) error {
	resp, err := get(ctx, url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		return fmt.Errorf("%s: status %d", url, resp.StatusCode)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, resp.Body)
	if err2 := file.Close(); err == nil {
		err = err2
	}
	return err
}
