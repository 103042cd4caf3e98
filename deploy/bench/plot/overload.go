package main

import (
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// overload is the part of its suite's results that is drawn.
type overload struct {
	Peak  float64   `json:"peak_per_s"`
	Loads []offered `json:"loads"`
}

type offered struct {
	Protection string  `json:"protection"`
	Load       float64 `json:"load"`
	Goodput    float64 `json:"goodput_per_s"`
	Critical   float64 `json:"critical"`
	Normal     float64 `json:"normal"`
	Bulk       float64 `json:"bulk"`
	P99        float64 `json:"p99_ms"`
}

// panel is one of the drawings beside each other.
type panel struct {
	title, label string
	logarithmic  bool
	of           func(offered) float64
}

// overloadCharts draws, by the load that was offered: what was done, how long it took, and the share of each class.
func overloadCharts(file string, res overload) error {
	all := []*plot.Plot{
		res.byProtection(panel{"what is done", "requests/s", false, func(l offered) float64 { return l.Goodput }}),
		res.byProtection(panel{"p99 of what is done", "ms", true, func(l offered) float64 { return l.P99 }}),
		res.byClass(),
	}
	canvas := vgsvg.New(30*vg.Centimeter, 9*vg.Centimeter)
	tiles := draw.Tiles{Rows: 1, Cols: len(all), PadX: 8 * vg.Millimeter}
	for i, c := range plot.Align([][]*plot.Plot{all}, tiles, draw.New(canvas))[0] {
		all[i].Draw(c)
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := canvas.WriteTo(out); err != nil {
		return err
	}
	return out.Close()
}

func newPanel(p panel) *plot.Plot {
	chart := plot.New()
	chart.Title.Text, chart.X.Label.Text, chart.Y.Label.Text = p.title, "offered, times the shards' peak", p.label
	chart.X.Scale, chart.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks{{Value: 1, Label: "1"}, {Value: 2, Label: "2"}, {Value: 5, Label: "5"}, {Value: 10, Label: "10"}}
	chart.Legend.Top = true
	chart.Add(plotter.NewGrid())
	if p.logarithmic {
		chart.Y.Scale, chart.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	} else {
		chart.Y.Min = 0
	}
	return chart
}

func (o overload) byProtection(p panel) *plot.Plot {
	chart := newPanel(p)
	for i, name := range []string{"on", "off"} {
		addLine(chart, "protection "+name, plotutil.Color(i), o.points(name, p.of))
	}
	if !p.logarithmic {
		chart.Y.Max *= 1.3 // room for the legend
	} else {
		chart.Y.Max *= 4
	}
	return chart
}

func (o overload) byClass() *plot.Plot {
	chart := newPanel(panel{"share that is done, protection on", "%", false, nil})
	for i, class := range []struct {
		name string
		of   func(offered) float64
	}{
		{"critical", func(l offered) float64 { return l.Critical * 100 }},
		{"normal", func(l offered) float64 { return l.Normal * 100 }},
		{"bulk", func(l offered) float64 { return l.Bulk * 100 }},
	} {
		addLine(chart, class.name, plotutil.Color(i), o.points("on", class.of))
	}
	chart.Y.Max = 130
	return chart
}

// points leaves out what a logarithmic axis cannot show.
func (o overload) points(protection string, of func(offered) float64) (all plotter.XYs) {
	for _, l := range o.Loads {
		if v := of(l); l.Protection == protection && v > 0 {
			all = append(all, plotter.XY{X: l.Load, Y: v})
		}
	}
	return all
}

func addLine(chart *plot.Plot, name string, c color.Color, points plotter.XYs) {
	if len(points) == 0 {
		return
	}
	l, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		fmt.Fprintln(os.Stderr, "plot:", name, err)
		return
	}
	l.Color, marks.Color = c, c
	chart.Add(l, marks)
	chart.Legend.Add(name, l, marks)
}
