package main

import (
	"cmp"
	"fmt"
	"html"
	"os"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// frame is a function below the ones that call it, with the time spent in it and in what it calls.
type frame struct {
	name     string
	value    int64
	children map[string]*frame
}

func (f *frame) child(name string) *frame {
	c := f.children[name]
	if c == nil {
		c = &frame{name: name, children: map[string]*frame{}}
		f.children[name] = c
	}
	return c
}

// Sizes of the picture, in pixels. A frame narrower than minWidth is left out: it could not be read.
const (
	flameWidth  = 1600.0
	frameHeight = 17
	minWidth    = 1.0
	charWidth   = 6.6
)

// flame draws a CPU profile: callers below, callees on top, width is time, the exact figure shows under the mouse.
func flame(path, file string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	p, err := profile.Parse(in)
	if err != nil {
		return err
	}
	root := &frame{name: "all", children: map[string]*frame{}}
	last := len(p.SampleType) - 1 // of a CPU profile: nanoseconds
	for _, s := range p.Sample {
		at := root
		at.value += s.Value[last]
		for _, l := range slices.Backward(s.Location) {
			for _, line := range slices.Backward(l.Line) {
				if line.Function != nil {
					at = at.child(line.Function.Name)
					at.value += s.Value[last]
				}
			}
		}
	}
	if root.value == 0 {
		return fmt.Errorf("the profile is empty")
	}
	height := (root.depth(root.value) + 1) * frameHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" font-family="monospace" font-size="11">`+"\n", flameWidth, height)
	root.draw(&b, root.value, 0, height-frameHeight)
	b.WriteString("</svg>\n")
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

func width(value, all int64) float64 { return float64(value) / float64(all) * flameWidth }

func (f *frame) depth(all int64) int {
	deepest := 0
	for _, c := range f.children {
		if width(c.value, all) >= minWidth {
			deepest = max(deepest, c.depth(all))
		}
	}
	return deepest + 1
}

func (f *frame) draw(b *strings.Builder, all int64, x float64, y int) {
	w := width(f.value, all)
	if w < minWidth {
		return
	}
	short := f.name[strings.LastIndexByte(f.name, '/')+1:]
	if room := int(w/charWidth) - 1; len(short) > room {
		short = short[:max(room, 0)]
	}
	fmt.Fprintf(b, `<g><title>%s: %.2f %%</title><rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" stroke="white"/><text x="%.1f" y="%d">%s</text></g>`+"\n",
		html.EscapeString(f.name), float64(f.value)/float64(all)*100, x, y, w, frameHeight, colour(f.name), x+2, y+12, html.EscapeString(short))
	children := make([]*frame, 0, len(f.children))
	for _, c := range f.children {
		children = append(children, c)
	}
	slices.SortFunc(children, func(a, b *frame) int { return cmp.Compare(a.name, b.name) })
	for _, c := range children {
		c.draw(b, all, x, y-frameHeight)
		x += width(c.value, all)
	}
}

// colour tells at a glance what a frame is: ours, the Redis client, HTTP, the runtime, system calls, others.
func colour(name string) string {
	for _, c := range []struct{ part, colour string }{
		{"slotgate", "#8fd19e"}, {"redis", "#f4a6a0"}, {"gin-gonic", "#b5d3f5"}, {"net/http", "#b5d3f5"}, {"syscall", "#f7c873"},
		{"internal/poll", "#f7c873"}, {"runtime", "#d5c4ec"},
	} {
		if strings.Contains(name, c.part) {
			return c.colour
		}
	}
	return "#e4e4e4"
}
