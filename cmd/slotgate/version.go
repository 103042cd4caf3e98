package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker: -ldflags "-X main.version=1.2.3".
var version string

// buildInfo says what this program was made from.
type buildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Modified bool   `json:"modified"` // the work tree had changes
	Time     string `json:"time"`     // of the revision, RFC 3339
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// readBuildInfo asks the linker's version first, then what the go command recorded.
func readBuildInfo() buildInfo {
	b := buildInfo{
		Version: version, Revision: "unknown",
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if ok && b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "vcs.time":
			b.Time = s.Value
		}
	}
	return b
}

func newVersionCommand(e env) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print what this program was built from",
		Example: "  slotgate version -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := readBuildInfo()
			if out == outputJSON {
				return writeJSON(e.Stdout, b)
			}
			revision := b.Revision
			if b.Modified {
				revision += " (modified)"
			}
			_, err := fmt.Fprintf(e.Stdout, "slotgate %s, revision %s, %s, %s\n", b.Version, revision, b.Go, b.Platform)
			return err
		},
	}
	out.register(cmd)
	return cmd
}
