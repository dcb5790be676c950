package duel

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

func TestQuantile(t *testing.T) {
	samples := []float64{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, .2: 1, .5: 3, .9: 5, .99: 5, 1: 5} {
		if have := Quantile(samples, q); have != want {
			t.Errorf("quantile %v = %v, want %v", q, have, want)
		}
	}
	if !math.IsNaN(Quantile(nil, .5)) {
		t.Error("Quantile returned a number for no samples")
	}
	if samples[0] != 5 {
		t.Error("the samples were sorted in place, although their order is part of the results")
	}
}

func TestSpread(t *testing.T) {
	same := []float64{7, 7, 7}
	if have := spread(same, same); have != 0 {
		t.Errorf("spread of equal samples = %v, want 0", have)
	}
	wide, narrow := []float64{100, 200, 300, 400, 500}, []float64{100, 101, 102, 103, 104}
	if have := spread(wide, same); have < 100 || have > 200 || have != spread(wide, same) {
		t.Errorf("spread of samples from 100 to 500 = %v, then %v; want equal values", have, spread(wide, same))
	}
	if have := spread(narrow, same); have > 2 {
		t.Errorf("spread of samples from 100 to 104 = %v, want at most 2", have)
	}
	if !math.IsNaN(spread(nil, same)) {
		t.Error("spread returned a number for no samples")
	}
}

// some returns results that include one contestant of each kind.
func some() *Results {
	r := &Results{Samples: 2, Rounds: 2, Skipped: map[string]string{"Multus": "multus is not in the given folder"},
		Machine: map[string]string{"processors": "2"}}
	for range 2 {
		r.add(Series{Contestant: "no claim", Kind: none, Load: "single", Milliseconds: []float64{100, 101}})
		r.add(Series{Contestant: "no claim", Kind: none, Load: "burst", Milliseconds: []float64{500, 900}, NotReady: 1})
		r.add(Series{Contestant: Ours, Kind: none, Load: "single", Milliseconds: []float64{110, 111}})
		for _, n := range interfaces() {
			r.add(Series{Contestant: Ours, Kind: moved, Load: "single", Interfaces: n,
				Milliseconds:     []float64{150 + 10*float64(n), 400},
				HookMilliseconds: []float64{20, 40}, PluginMilliseconds: []float64{17, 30}})
		}
		r.add(Series{Contestant: Ours, Kind: none, Load: sideBySideLoad, Milliseconds: []float64{200, 210}})
		r.add(Series{Contestant: Ours, Kind: moved, Load: sideBySideLoad, Interfaces: 4,
			Milliseconds: []float64{260, 300}, HookMilliseconds: []float64{70, 71}, PluginMilliseconds: []float64{64, 65}})
		r.Costs = append(r.Costs, Cost{Contestant: Ours, Attachments: 30, Pods: 8, CPUSeconds: .6, PeakMiB: 70,
			SliceWrites: 4, LinksGiven: 10, LinksLost: []string{"du3"}})
	}
	return r
}

func TestTables(t *testing.T) {
	text := Tables(some())
	for _, part := range []string{
		"Not measured: Multus (multus is not in the given folder).",
		"| no claim | 100 / 101 |",
		"| no claim |  |  | 500 / 900; 2 not Ready |  |",
		"| " + Ours + ": moved link | 110 / 111 | 160 / 400 (+50) | 170 / 400 (+60) | 190 / 400 (+80) | 230 / 400 " +
			"(+120) |",
		"4 of each kind.",
		"| " + Ours + ": moved link | 200 / 210 |  | 260 / 300 (+60 ± 25) |  | 70.0 (6.0) |\n\n",
		"| " + Ours + " | 20.0 | 70 | 0.50 | 2 of 20 |",
		"| " + Ours + ": moved link | 20.0 (3.0) | 20.0 (3.0) | 20.0 (3.0) | 20.0 (3.0) |",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing from\n%s", part, text)
		}
	}
}

func TestChartsAreXML(t *testing.T) {
	for name, chart := range Charts(some()) {
		decoder := xml.NewDecoder(strings.NewReader(chart))
		circles := 0
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, chart)
			}
			if element, ok := token.(xml.StartElement); ok && element.Name.Local == "circle" {
				circles++
			}
		}
		want := len(interfaces()) + 1 // and one in the legend
		if name == chartOfMacvlans {
			want = 0
		}
		if circles != want {
			t.Errorf("%s has %d dots, want %d", name, circles, want)
		}
	}
}

func TestReplace(t *testing.T) {
	page := "a\n" + partBegins + "\nold\n" + partEnds + "\nb\n"
	have, err := Replace(page, "new\n")
	if want := "a\n" + partBegins + "\nnew\n" + partEnds + "\nb\n"; err != nil || have != want {
		t.Errorf("the text with the new part is %q, %v; want %q", have, err, want)
	}
	for _, broken := range []string{"", partBegins + "\n", partEnds} {
		if _, err := Replace(broken, "new\n"); err == nil {
			t.Errorf("%q was replaced although it has no place for the generated part", broken)
		}
	}
}

// The results on the published pages are exactly those generated from the published samples.
func TestPublishedPage(t *testing.T) {
	published, err := Read("../../docs/performance.json")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no run has been published")
	}
	if err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(t.TempDir(), "performance.md")
	text, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Render(published, page); err != nil {
		t.Fatal(err)
	}
	made, err := filepath.Glob(filepath.Join(filepath.Dir(page), "*"))
	if err != nil || len(made) < 2 {
		t.Fatalf("rendering created %q (%v), want at least two files", made, err)
	}
	for _, path := range made {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		if shown, err := os.ReadFile("../../docs/" + name); err != nil || !bytes.Equal(shown, want) {
			t.Errorf("docs/%s does not match the samples (%v); render it again", name, err)
		}
	}
}

// choose reports missing peers. It reports that the other version of this driver is missing only if the user asked for
// that version.
func TestChoose(t *testing.T) {
	const other = "another version of this driver"
	peers := t.TempDir()
	if err := os.WriteFile(filepath.Join(peers, "dranet"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		options         Options
		chosen, skipped []string
	}{
		"all":                   {Options{}, []string{"no claim", "a DRA driver that does nothing", Ours}, []string{"Multus", "dranet"}},
		"those with peers":      {Options{Peers: peers, Only: []string{Ours, "dranet"}}, []string{Ours, "dranet"}, nil},
		"one that is not there": {Options{Peers: peers, Only: []string{other}}, nil, []string{other}},
	} {
		chosen, skipped := choose(test.options)
		if diff := cmp.Diff(test.chosen, names(chosen)); diff != "" {
			t.Errorf("%s: chosen (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(test.skipped, slices.Sorted(maps.Keys(skipped))); diff != "" {
			t.Errorf("%s: skipped (-want +got):\n%s", name, diff)
		}
	}
	if _, err := Run(t.Context(), Options{Only: []string{other}, Progress: io.Discard}); err == nil {
		t.Error("a run without contestants succeeded and would replace earlier results")
	}
	if _, err := Run(t.Context(), Options{Only: []string{"no claim"}, Stages: []string{StageSideBySide},
		Progress: io.Discard,
		Keep:     func(*Results) error { t.Error("results without measurements were kept"); return nil },
	}); err == nil {
		t.Error("a side-by-side run of contestants without interfaces succeeded")
	}
	if !includes(nil, StageAlone) || includes([]string{StageAlone}, StageSideBySide) {
		t.Error("want all stages if none is named, otherwise only the named ones")
	}
	if err := os.Mkdir(filepath.Join(peers, "before"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(peers, "before", stack.Driver), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if chosen, _ := choose(Options{Peers: peers}); !slices.Contains(names(chosen), other) {
		t.Errorf("contestants = %q, want them to include the other version", names(chosen))
	}
}

func TestResultsAreReadAsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	if err := some().Write(path); err != nil {
		t.Fatal(err)
	}
	have, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if Tables(have) != Tables(some()) {
		t.Errorf("tables are\n%s\nwant\n%s", Tables(have), Tables(some()))
	}
}

func TestParseUsage(t *testing.T) {
	stat := "12 (a driver) S 1 1 1 0 -1 4194560 1 2 3 4 100 50 30 20 20 0 9 0 1 1 1\n"
	have, err := parseUsage("/d", "pid 12\n"+stat+"VmHWM:\t  2048 kB\n")
	if want := (usage{pid: 12, cpu: 2, peak: 2}); err != nil || have != want {
		t.Errorf("usage = %+v, %v; want %+v", have, err, want)
	}
	for _, text := range []string{"", "pid 12\npid 13\n", "pid 12\n12 (d) S 1\n"} {
		if _, err := parseUsage("/d", text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestSumOf(t *testing.T) {
	page := `# HELP x
x_sum{event="A",result="ok"} 1.5
x_sum{event="A",result="bad"} 0.5
x_sum{event="B"} 7
`
	if have := sumOf(page, `x_sum{event="A"`); have != 2 {
		t.Errorf("sum = %v, want 2", have)
	}
}

// The contestants' objects are valid YAML, and each object has a name.
func TestManifests(t *testing.T) {
	texts := []string{ourPolicies, dranetManifest}
	for _, c := range contestants() {
		for _, kind := range c.kinds {
			for _, n := range interfaces() {
				texts = append(texts, c.objects(kind, n))
			}
		}
	}
	for _, text := range texts {
		for document := range strings.SplitSeq(text, "\n---") {
			var object struct {
				Kind     string
				Metadata struct{ Name string }
			}
			err := yaml.Unmarshal([]byte(document), &object)
			if err != nil || object.Kind == "" || object.Metadata.Name == "" {
				t.Errorf("object without a kind or name: %+v, %v in\n%s", object, err, document)
			}
		}
	}
}
