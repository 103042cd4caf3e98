//go:build linux

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// variant is one way to run the gateway. Several are compared with the first of them, round by round.
type variant struct {
	Name     string   `json:"name"`
	Binary   string   `json:"binary"`
	Apps     int      `json:"apps"`
	Gateways int      `json:"gateways"` // processes that share the connections
	Env      []string `json:"env,omitempty"`
	Set      []string `json:"set,omitempty"`
}

// parseVariant reads NAME:KEY=VALUE,…. Names in capitals are environment variables; bin, apps and gateways are ours; the rest are settings.
func parseVariant(text string) (variant, error) {
	name, rest, _ := strings.Cut(text, ":")
	v := variant{Name: name, Gateways: 1}
	if name == "" || strings.ContainsAny(name, " ,=/") {
		return v, fmt.Errorf("a variant is NAME:KEY=VALUE,…, and %q has no such name", text)
	}
	for _, word := range list(rest) {
		key, value, ok := strings.Cut(word, "=")
		var err error
		switch {
		case !ok || key == "":
			err = fmt.Errorf("%q is not KEY=VALUE", word)
		case key == "bin":
			v.Binary = value
		case key == "apps":
			v.Apps, err = between(value, maxApps)
		case key == "gateways":
			v.Gateways, err = between(value, 8)
		case key == strings.ToUpper(key):
			v.Env = append(v.Env, word)
		default:
			v.Set = append(v.Set, word)
		}
		if err != nil {
			return v, fmt.Errorf("variant %s: %w", name, err)
		}
	}
	return v, nil
}

func between(text string, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%q is not a number from 1 to %d", text, most)
	}
	return n, nil
}

// completeVariants makes the variants of the other flags when none are given, fills in what is left out, and names them all.
func (o *options) completeVariants() error {
	if len(o.Gateways) == 0 {
		o.Variants = nil
		return nil
	}
	if len(o.Variants) == 0 {
		o.Variants = o.product()
	} else if len(o.Gateways) > 1 || len(o.Apps) > 1 {
		return fmt.Errorf("with -variant give one -gateway-bin and one number of -apps; more go into the variants: bin=FILE, apps=N")
	}
	if o.Again {
		again := o.Variants[0]
		again.Name = "again"
		o.Variants = append(o.Variants, again)
	}
	seen := map[string]bool{}
	for i := range o.Variants {
		v := &o.Variants[i]
		if v.Binary == "" {
			v.Binary = o.Gateways[0]
		}
		if v.Apps == 0 {
			v.Apps = o.Apps[0]
		}
		v.Env = slices.Concat(o.Env, v.Env)
		v.Set = slices.Concat(o.Set, v.Set)
		v.Name = strings.TrimSuffix("slotgate-"+v.Name, "-")
		if seen[v.Name] {
			return fmt.Errorf("two variants are called %s", v.Name)
		}
		seen[v.Name] = true
	}
	return nil
}

// product has a variant for each binary and number of apps: slotgate-A, slotgate-B… in the order of the flags, slotgate-10000apps.
func (o *options) product() []variant {
	var all []variant
	for i, binary := range o.Gateways {
		for _, apps := range o.Apps {
			var names []string
			if len(o.Gateways) > 1 {
				names = append(names, string(rune('A'+i)))
			}
			if len(o.Apps) > 1 {
				names = append(names, strconv.Itoa(apps)+"apps")
			}
			all = append(all, variant{Name: strings.Join(names, "-"), Binary: binary, Apps: apps, Gateways: 1})
		}
	}
	return all
}

// coreNotes says which variants the machine is too small for, when it is their cores that differ. Redis and the load generator need a
// core each beside the gateway's, at least.
func coreNotes(variants []variant, cpus int) []string {
	used := func(v variant) int { return v.cores() * v.Gateways }
	if !slices.ContainsFunc(variants, func(v variant) bool { return used(v) != used(variants[0]) }) {
		return nil
	}
	var small []string
	for _, v := range variants {
		if used(v)+2 > cpus {
			small = append(small, v.Name)
		}
	}
	if len(small) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("Redis and the load generator share the machine's %d cores with the gateway: that limits the throughput of %s",
		cpus, strings.Join(small, ", "))}
}
