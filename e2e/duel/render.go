package duel

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Render replaces the part of a page between these marker lines.
const (
	partBegins = "<!-- made by duel: begin -->"
	partEnds   = "<!-- made by duel: end -->"
)

// Render writes the result tables to a page, and the charts to files next to it. It writes the charts first, so that
// the tables are never newer than the charts.
func Render(r *Results, page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	replaced, err := Replace(string(text), Tables(r))
	if err != nil {
		return fmt.Errorf("cannot write tables into %s: %w", page, err)
	}
	for name, chart := range Charts(r) {
		if err := os.WriteFile(filepath.Join(filepath.Dir(page), name), []byte(chart), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(page, []byte(replaced), 0o644)
}

// Replace replaces the generated part of a page. It discards the old text between the marker lines and preserves
// everything else byte for byte.
func Replace(page, part string) (string, error) {
	before, rest, found := strings.Cut(page, partBegins+"\n")
	if !found {
		return "", fmt.Errorf("it has no line %q; add it", partBegins)
	}
	_, after, found := strings.Cut(rest, partEnds)
	if !found {
		return "", fmt.Errorf("it has no line %q after the first; add it", partEnds)
	}
	return before + partBegins + "\n" + part + partEnds + after, nil
}

// Tables returns the results as Markdown tables.
func Tables(r *Results) string {
	var b strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	rounds := "one round"
	if r.Rounds != 1 {
		rounds = fmt.Sprintf("each of %d rounds", r.Rounds)
	}
	put("\nMeasured on %s: %s. Versions: %s. %d pods per series in %s.\n", r.Time.Format("2006-01-02"),
		pairs(r.Machine), pairs(r.Versions), r.Samples, rounds)
	for _, name := range slices.Sorted(maps.Keys(r.Skipped)) {
		put("Not measured: %s (%s).\n", name, r.Skipped[name])
	}
	names := r.names()
	put("\n### From create to Ready\n\nMilliseconds, P50 / P99. In brackets: the difference between their P50 " +
		"and that of pods without interfaces on the same cluster.\n\n")
	put("| | no interfaces | 1 | 2 | 4 | 8 |\n|---|---|---|---|---|---|\n")
	for _, name := range names {
		plain := r.find(name, none, "single", 0)
		for _, kind := range r.kinds(name) {
			put("| %s | %s |", row(name, kind), quantiles(plain, Series{}))
			for _, n := range interfaces() {
				put(" %s |", quantiles(r.find(name, kind, "single", n), plain))
			}
			put("\n")
		}
	}
	r.putSideBySide(put)
	put("\n![Moved links](%s)\n\n![macvlan](%s)\n", chartOfLinks, chartOfMacvlans)
	put("\n### Tight loop, concurrent pods, and after a kill\n\nLoop: each pod takes one of ten links, and the next "+
		"pod is created as soon as the previous one is being deleted. Concurrent: %d pods\nwith one interface "+
		"each. After SIGKILL: one pod immediately after the driver was killed. Milliseconds, P50 / P99.\n\n", crowd)
	put("| | loop | loop, grace period 0 | %d concurrent | after SIGKILL |\n|---|---|---|---|---|\n", crowd)
	for _, name := range names {
		for _, kind := range r.kinds(name) {
			n := 1
			if kind == none {
				n = 0
			}
			put("| %s |", row(name, kind))
			for _, load := range []string{"churn", "churn, forced", "burst", "killed"} {
				put(" %s |", quantiles(r.find(name, kind, load, n), Series{}))
			}
			put("\n")
		}
	}
	r.putHooks(put)
	r.putCosts(put)
	put("\n")
	return b.String()
}

// putSideBySide writes the table for the side-by-side stage if that stage was measured.
func (r *Results) putSideBySide(put func(string, ...any)) {
	measured := slices.DeleteFunc(r.names(), func(name string) bool {
		return len(r.find(name, none, sideBySideLoad, 0).Milliseconds) == 0
	})
	if len(measured) == 0 {
		return
	}
	put("\nSide by side: all clusters run at the same time, and pods are created on each in turn, %d of each kind. In "+
		"brackets: the difference\nto pods without interfaces, with the range of 95%% of 1,000 random resamples. The "+
		"last two columns are P50 in `RunPodSandbox`,\nwith the time outside of the CNI plugins in brackets.\n\n",
		len(r.find(measured[0], none, sideBySideLoad, 0).Milliseconds))
	put("| | no interfaces | 1 | 4 | 1, in `RunPodSandbox` | 4, in `RunPodSandbox` |\n|---|---|---|---|---|---|\n")
	for _, name := range measured {
		plain := r.find(name, none, sideBySideLoad, 0)
		for _, kind := range r.kinds(name) {
			put("| %s | %s |", row(name, kind), quantiles(plain, Series{}))
			hooks := ""
			for _, n := range interfacesSideBySide() {
				s := r.find(name, kind, sideBySideLoad, n)
				put(" %s |", strings.Replace(quantiles(s, plain), ")", " ± "+fmt.Sprintf("%.0f)", spread(s.Milliseconds,
					plain.Milliseconds)), 1))
				hooks += " " + s.hooks() + " |"
			}
			put("%s\n", hooks)
		}
	}
}

// putHooks writes the table that shows how long containerd waits. It lists each contestant's own overhead separately,
// because how long a plugin takes does not depend on its caller.
func (r *Results) putHooks(put func(string, ...any)) {
	put("\n### In RunPodSandbox\n\nTime that containerd waits before it starts the first container, for the pods of the " +
		"first table: milliseconds, P50. In brackets: P50\nof the time outside of the CNI plugins, if the " +
		"driver reports it. A step is one call of one plugin; each interface here has one.\n\n")
	put("| | 1 | 2 | 4 | 8 |\n|---|---|---|---|---|\n")
	for _, name := range r.names() {
		for _, kind := range r.kinds(name) {
			line, told := "", false
			for _, n := range interfaces() {
				s := r.find(name, kind, "single", n)
				line, told = line+" "+s.hooks()+" |", told || len(s.HookMilliseconds) > 0
			}
			if told {
				put("| %s |%s\n", row(name, kind), line)
			}
		}
	}
}

// hooks returns the cell for the series in the table that putHooks writes.
func (s *Series) hooks() string {
	if len(s.HookMilliseconds) == 0 {
		return ""
	}
	text := fmt.Sprintf("%.1f", Quantile(s.HookMilliseconds, .5))
	if overhead := s.overhead(); overhead != nil {
		text += fmt.Sprintf(" (%.1f)", Quantile(overhead, .5))
	}
	return text
}

// putCosts writes the table of the contestants' resource usage, per interface rather than per pod, because attaching
// four interfaces to a pod is four times the work of attaching one.
func (r *Results) putCosts(put func(string, ...any)) {
	put("\n### Resource usage\n\nOf the daemon and its child processes, during the first table; memory " +
		"also during the concurrent pods.\n\n")
	put("| | CPU, s per 1,000 interfaces | peak memory, MiB | slice writes per pod | links lost |\n" +
		"|---|---|---|---|---|\n")
	for _, name := range r.names() {
		var sum Cost
		for _, c := range r.Costs {
			if c.Contestant != name {
				continue
			}
			sum.Attachments, sum.Pods = sum.Attachments+c.Attachments, sum.Pods+c.Pods
			sum.CPUSeconds += c.CPUSeconds
			sum.PeakMiB, sum.SliceWrites = max(sum.PeakMiB, c.PeakMiB), sum.SliceWrites+c.SliceWrites
			sum.LinksGiven, sum.LinksLost = sum.LinksGiven+c.LinksGiven, append(sum.LinksLost, c.LinksLost...)
		}
		if sum.Attachments == 0 {
			continue
		}
		put("| %s | %s | %s | %.2f | %d of %d |\n", name,
			unless(sum.CPUSeconds/float64(sum.Attachments)*1000, "%.1f"), unless(sum.PeakMiB, "%.0f"),
			float64(sum.SliceWrites)/float64(sum.Pods), len(sum.LinksLost), sum.LinksGiven)
	}
}

// unless formats a measured value. Zero means that it was not measured.
func unless(value float64, format string) string {
	if value == 0 {
		return ""
	}
	return fmt.Sprintf(format, value)
}

// names returns the contestants in the order of their runs.
func (r *Results) names() (names []string) {
	for _, s := range r.Series {
		if !slices.Contains(names, s.Contestant) {
			names = append(names, s.Contestant)
		}
	}
	return names
}

// kinds returns the kinds of interfaces measured for a contestant. If there are none, it returns only the kind for pods
// without interfaces.
func (r *Results) kinds(name string) (kinds []string) {
	for _, s := range r.Series {
		if s.Contestant == name && s.Kind != none && !slices.Contains(kinds, s.Kind) {
			kinds = append(kinds, s.Kind)
		}
	}
	if len(kinds) == 0 {
		return []string{none}
	}
	return kinds
}

func row(name, kind string) string {
	if kind == none {
		return name
	}
	return name + ": " + kind
}

// quantiles formats the P50 and P99 of a series, and the difference from the P50 of the plain series if that series has
// samples.
func quantiles(s, plain Series) string {
	text := ""
	switch {
	case len(s.Milliseconds) == 1:
		text = fmt.Sprintf("%.0f", s.Milliseconds[0])
	case len(s.Milliseconds) > 1:
		text = fmt.Sprintf("%.0f / %.0f", Quantile(s.Milliseconds, .5), Quantile(s.Milliseconds, .99))
	}
	if len(s.Milliseconds) > 0 && len(plain.Milliseconds) > 0 {
		text += fmt.Sprintf(" (%+.0f)", Quantile(s.Milliseconds, .5)-Quantile(plain.Milliseconds, .5))
	}
	if s.NotReady > 0 {
		text += fmt.Sprintf("; %d not Ready", s.NotReady)
	}
	return text
}

func pairs(m map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, key+" "+m[key])
	}
	return strings.Join(list, ", ")
}

// File names of the charts.
const (
	chartOfLinks    = "performance-links.svg"
	chartOfMacvlans = "performance-macvlan.svg"
)

// Charts returns charts of how much longer pods take to start than pods without interfaces, keyed by file name.
func Charts(r *Results) map[string]string {
	return map[string]string{
		chartOfLinks:    r.chart("Links moved into a pod", moved, claimOnly),
		chartOfMacvlans: r.chart("macvlan interfaces", macvlan, claimOnly),
	}
}

// curve contains one contestant's P50 and P99 minus its P50 without interfaces, for each number in interfaces.
type curve struct {
	name     string
	p50, p99 []float64
}

// Chart dimensions in pixels.
const (
	chartWidth, chartHeight     = 760, 380
	plotLeft, plotRight         = 70, 520
	plotTop, plotBottom         = 50, 330
	legendLeft, legendLine      = 535, 22
	mostTicks, smallestTickStep = 6, 10.0
)

// colours returns colors that people with red-green color blindness can distinguish (the Okabe-Ito palette).
func colours() []string { return []string{"#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"} }

// curves returns the curves for all contestants that have measurements for every number of interfaces, and the highest
// value. A contestant without measurements for one of these numbers has no curve, because the line across the gap would
// look like a measurement.
func (r *Results) curves(kinds []string) (curves []curve, highest float64) {
	highest = smallestTickStep
	for _, name := range r.names() {
		plain := Quantile(r.find(name, none, "single", 0).Milliseconds, .5)
		for _, kind := range kinds {
			c := curve{name: name}
			for _, n := range interfaces() {
				samples := r.find(name, kind, "single", n).Milliseconds
				if len(samples) == 0 {
					break
				}
				c.p50, c.p99 = append(c.p50, Quantile(samples, .5)-plain), append(c.p99, Quantile(samples, .99)-plain)
				highest = max(highest, c.p99[len(c.p99)-1])
			}
			if len(c.p50) == len(interfaces()) {
				curves = append(curves, c)
			}
		}
	}
	return curves, highest
}

// chart returns a chart as SVG. It does not use a library, since a library would determine the size, the fonts and the
// order of attributes, and every chart in the repository would change with each new version of the library.
func (r *Results) chart(title string, kinds ...string) string {
	curves, highest := r.curves(kinds)
	step := smallestTickStep
	for factors := []float64{2, 2.5, 2}; highest/step > mostTicks; factors = append(factors[1:], factors[0]) {
		step *= factors[0]
	}
	highest = math.Ceil(highest/step) * step
	y := func(value float64) float64 {
		return plotBottom - max(0, value)/highest*(plotBottom-plotTop)
	}
	x := func(i int) float64 {
		return plotLeft + (float64(i)+.5)*(plotRight-plotLeft)/float64(len(interfaces()))
	}
	var b strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	put(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d"`, chartWidth, chartHeight,
		chartWidth, chartHeight)
	put(` font-family="sans-serif" font-size="13" role="img">`)
	title += ": create to Ready, over a pod without interfaces"
	put(`<title>%s</title><rect width="100%%" height="100%%" fill="white"/>`, title)
	put(`<text x="%d" y="28" font-size="15" font-weight="bold">%s</text>`, 20, title)
	for tick := 0.0; tick <= highest; tick += step {
		put(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>`, plotLeft, plotRight, y(tick), y(tick))
		put(`<text x="%d" y="%.1f" text-anchor="end">%.0f ms</text>`, plotLeft-8, y(tick)+4, tick)
	}
	for i, n := range interfaces() {
		put(`<text x="%.1f" y="%d" text-anchor="middle">%d</text>`, x(i), plotBottom+20, n)
	}
	put(`<text x="%d" y="%d" text-anchor="middle">interfaces; dot: P50, end of the line: P99</text>`,
		(plotLeft+plotRight)/2, plotBottom+42)
	for k, c := range curves {
		colour, shift := colours()[k%len(colours())], (float64(k)-float64(len(curves)-1)/2)*9
		var points []string
		for i := range interfaces() {
			middle := x(i) + shift
			put(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="2"/>`, middle, middle,
				y(c.p50[i]),
				y(c.p99[i]), colour)
			put(`<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`, middle, y(c.p50[i]), colour)
			points = append(points, fmt.Sprintf("%.1f,%.1f", middle, y(c.p50[i])))
		}
		put(`<polyline points="%s" fill="none" stroke="%s" stroke-dasharray="3 3"/>`, strings.Join(points, " "), colour)
		put(`<circle cx="%d" cy="%d" r="5" fill="%s"/>`, legendLeft, plotTop+k*legendLine, colour)
		put(`<text x="%d" y="%d">%s</text>`, legendLeft+12, plotTop+k*legendLine+4, c.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
