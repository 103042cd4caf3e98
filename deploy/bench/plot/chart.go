package main

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// axis is one of the lists a run can have: a chart has it on its x axis and a line for each door.
type axis struct {
	name, label string
	of          func(*row) *int
}

var axes = []axis{
	{"conns", "connections", func(r *row) *int { return &r.Conns }},
	{"batch", "keys in a batch", func(r *row) *int { return &r.Batch }},
	{"value", "bytes per value", func(r *row) *int { return &r.Value }},
}

// figures are what is drawn, with least and greatest round where there are rounds.
var figures = []struct {
	name, label string
	of          func(row) spread
}{
	{"ratio", "CPU per request, webdis = 1", func(r row) spread { return r.CPURatio }},
	{"cpu", "CPU us per request", func(r row) spread { return r.CPU }},
	{"rps", "requests/s", func(r row) spread { return r.RPS }},
	{"p99", "p99 ms", func(r row) spread { return spread{r.P99, r.P99, r.P99} }},
}

// charts draws a line chart for each list with several values, and bars of the ratios for everything; of the overload suite one file.
func charts(path, name string) error {
	res, err := load(path)
	if err != nil {
		return err
	}
	if res.Overload != nil {
		return overloadCharts(name+".svg", *res.Overload)
	}
	for _, a := range axes {
		for title, rows := range groups(res.Rows, a) {
			for _, f := range figures {
				file := fmt.Sprintf("%s-%s-by-%s-%s.svg", name, f.name, a.name, title)
				if err := lines(file, title, a, f.label, rows, f.of); err != nil {
					return err
				}
			}
		}
	}
	return bars(name+"-ratios.svg", res.Rows)
}

// groups are rows that differ in nothing but the axis and the door, where the axis has several values.
func groups(rows []row, a axis) map[string][]row {
	all := map[string][]row{}
	for _, r := range rows {
		other := r
		*a.of(&other) = 0
		title := fmt.Sprintf("%s-%s", r.Op, r.Data)
		for i, n := range []int{other.Batch, other.Conns, other.Value} {
			if n > 0 && (i > 0 || n > 1) {
				title += fmt.Sprintf("-%d%s", n, []string{"keys", "conns", "B"}[i])
			}
		}
		all[title] = append(all[title], r)
	}
	for title, group := range all {
		if first := *a.of(&group[0]); !slices.ContainsFunc(group, func(r row) bool { return *a.of(&r) != first }) {
			delete(all, title)
		}
	}
	return all
}

// points are the medians of one door, with error bars from the least to the greatest round.
type points struct {
	plotter.XYs
	plotter.YErrors
}

func lines(file, title string, a axis, label string, rows []row, of func(row) spread) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, a.label, label
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min = 0
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for i, name := range names(rows) {
		var line points
		for _, r := range rows {
			if s := of(r); r.Name == name && s.Median > 0 {
				line.XYs = append(line.XYs, plotter.XY{X: float64(*a.of(&r)), Y: s.Median})
				line.YErrors = append(line.YErrors, struct{ Low, High float64 }{s.Median - s.Min, s.Max - s.Median})
			}
		}
		if len(line.XYs) == 0 {
			continue
		}
		l, marks, err := plotter.NewLinePoints(line.XYs)
		if err != nil {
			return err
		}
		spans, err := plotter.NewYErrorBars(line)
		if err != nil {
			return err
		}
		l.Color, marks.Color, spans.Color = plotutil.Color(i), plotutil.Color(i), plotutil.Color(i)
		p.Add(l, marks, spans)
		p.Legend.Add(name, l, marks)
	}
	p.Y.Max *= 1.3 // room for the legend
	return p.Save(18*vg.Centimeter, 11*vg.Centimeter, file)
}

func bars(file string, rows []row) error {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = "CPU per request", "webdis = 1"
	p.Legend.Top = true
	var labels []string
	index := map[string]int{}
	for _, r := range rows {
		if label := r.label(); !slices.Contains(labels, label) {
			index[label] = len(labels)
			labels = append(labels, label)
		}
	}
	all := names(rows)
	width := vg.Centimeter * vg.Length(2.4/float64(max(len(all), 1)))
	for i, name := range all {
		values := make(plotter.Values, len(labels))
		for _, r := range rows {
			if r.Name == name {
				values[index[r.label()]] = r.CPURatio.Median
			}
		}
		chart, err := plotter.NewBarChart(values, width)
		if err != nil {
			return err
		}
		chart.Color, chart.LineStyle.Width = plotutil.Color(i), 0
		chart.Offset = width * vg.Length(float64(i)-float64(len(all)-1)/2)
		p.Add(chart)
		p.Legend.Add(name, chart)
	}
	p.NominalX(labels...)
	p.Y.Max *= 1.3
	return p.Save(vg.Length(4+3.2*float64(len(labels)))*vg.Centimeter, 12*vg.Centimeter, file)
}

func (r row) label() string {
	if r.Batch > 1 {
		return fmt.Sprintf("%s %d ×%d", r.Op, r.Batch, r.Conns)
	}
	return fmt.Sprintf("%s ×%d %d B", r.Op, r.Conns, r.Value)
}

func names(rows []row) []string {
	var all []string
	for _, r := range rows {
		if !slices.Contains(all, r.Name) {
			all = append(all, r.Name)
		}
	}
	return all
}
