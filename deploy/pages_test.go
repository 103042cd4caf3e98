package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slotgate/slotgate/store/pool"
	"github.com/slotgate/slotgate/store/pools"
)

var (
	pageLink = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// anchors of a page, as GitHub makes them from its headings.
func anchors(t *testing.T, path string) []string {
	t.Helper()
	var all []string
	for _, m := range heading.FindAllStringSubmatch(read(t, path), -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

func TestLinksOfPagesLeadSomewhere(t *testing.T) {
	pages := []string{"../README.md", "../CHANGELOG.md", "../CONTRIBUTING.md"}
	for _, pattern := range []string{"*.md", "*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	links := 0
	for _, page := range pages {
		for _, m := range pageLink.FindAllStringSubmatch(read(t, page), -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			links++
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(t, target), anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", page, m[1], target)
			}
		}
	}
	if links < 30 {
		t.Errorf("only %d links found", links)
	}
}

// What can be said of a pool is in the document; users are told in pools.md what it means.
func TestPageOfPoolsKnowsTheWordsOfTheDocument(t *testing.T) {
	page := read(t, "pools.md")
	schemas := parse[struct {
		Components struct {
			Schemas map[string]struct{ Enum []string }
		}
	}](t, "../openapi/openapi.yaml").Components.Schemas
	for _, name := range []string{"PoolPolicy", "PoolVariant", "PoolRestore", "PoolReason"} {
		words := schemas[name].Enum
		if len(words) < 2 {
			t.Errorf("the document has no words in %s", name)
		}
		for _, word := range words {
			if !strings.Contains(page, "`"+word+"`") && !strings.Contains(page, `"`+word+`"`) {
				t.Errorf("pools.md says nothing of %s, a %s", word, name)
			}
		}
	}
}

func TestPageOfPoolsNamesTheBoundsThatHold(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "pools.md"), "\n## Limits\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for what, most := range map[string][]int64{
		"pools of an app":        {pools.MaxPools},
		"members of a pool":      {2 * pool.MaxMembers, pool.MaxMembers},
		"name of a member":       {pool.MaxMember},
		"`meta`":                 {pool.MaxMeta},
		"`weight`":               {pool.MaxWeight},
		"`count`, `exclude`":     {pool.MaxCount, pool.MaxExclude},
		"lease":                  {pool.MaxLeaseMS / 3_600_000, pool.DefaultLeaseMS / 1000},
		"`max_per_member`":       {pool.MaxPerMember},
		"`sticky`":               {pool.MaxMember, pool.MaxStickyMS / (24 * 3_600_000)},
		"reports in one request": {pool.MaxReports},
		"leases in a list":       {pool.MaxLeases},
		"counts kept of members that were removed": {pool.MaxHistory},
	} {
		_, row, found := strings.Cut(table, "\n| "+what+" | ")
		row, _, _ = strings.Cut(row, "\n")
		numbers := regexp.MustCompile(`[0-9]+(,[0-9]{3})*`).FindAllString(row, -1)
		for _, n := range most {
			if !found || !slices.Contains(numbers, thousands(n)) {
				t.Errorf("pools.md says of %s %q, want %s", what, row, thousands(n))
			}
		}
	}
}

// thousands writes a number as pages do: 1,000.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
