package duel

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

// Results contains all measurements from one run. It contains individual samples instead of statistics, so that new
// tables can be generated from an old run. It also defines the file format, so new fields must be optional.
type Results struct {
	// Time is the start time of the run.
	Time time.Time `json:"time"`
	// Machine and Versions describe the environment of the run, as maps from names to values.
	Machine  map[string]string `json:"machine"`
	Versions map[string]string `json:"versions"`
	// Samples is the number of pods per series and round; in the side-by-side stage, it is multiplied by moreSamples.
	// Rounds is the number of times that each contestant is measured.
	Samples int `json:"samples"`
	Rounds  int `json:"rounds"`
	// Skipped lists the contestants that were not measured, or were measured only partly, with the reasons.
	Skipped map[string]string `json:"skipped,omitempty"`
	// Series contains the times from creation to Ready.
	Series []Series `json:"series"`
	// Costs contains the contestants' resource usage and lost links.
	Costs []Cost `json:"costs"`
}

// Series is a series of pods of one kind, created sequentially unless Load says otherwise.
type Series struct {
	Contestant string `json:"contestant"`
	// Kind is the kind of interface: "none", "claim only", "moved link" or "macvlan".
	Kind string `json:"kind"`
	// Interfaces is the number of interfaces in each pod, in addition to the interface on the cluster network.
	Interfaces int `json:"interfaces"`
	// Load is "single" (the next pod, one of each kind in turn, is created once the previous pod no longer exists),
	// "churn" or "churn, forced" (the next pod is created as soon as the previous pod is Ready and being deleted,
	// gracefully or with a grace period of 0), "burst" (all concurrently), "killed" (the daemon was killed just before)
	// or "side by side" (like "single", but with all contestants' clusters running at the same time).
	Load string `json:"load"`
	// Milliseconds contains the times from creation to Ready, in pod order.
	Milliseconds []float64 `json:"milliseconds"`
	// NotReady is the number of pods in a burst that did not become Ready within two minutes after the previous pod
	// did.
	NotReady int `json:"notReady,omitempty"`
	// HookMilliseconds contains, for each pod in the same order, how long RunPodSandbox waited for the contestant.
	// PluginMilliseconds contains the part of this time that was spent in CNI plugins. Both are empty if the contestant
	// does not report these times.
	HookMilliseconds   []float64 `json:"hookMilliseconds,omitempty"`
	PluginMilliseconds []float64 `json:"pluginMilliseconds,omitempty"`
}

// overhead returns the time that RunPodSandbox waited for the contestant, excluding its plugins, in milliseconds per
// pod. It returns nil if the contestant does not report this time.
func (s *Series) overhead() []float64 {
	if len(s.PluginMilliseconds) != len(s.HookMilliseconds) {
		return nil
	}
	rest := make([]float64, len(s.HookMilliseconds))
	for i, hook := range s.HookMilliseconds {
		rest[i] = hook - s.PluginMilliseconds[i]
	}
	return rest
}

// Cost is one contestant's resource usage for its series in one round.
type Cost struct {
	Contestant string `json:"contestant"`
	// Attachments is the number of interfaces attached to pods, and Pods is the number of these pods. Pods without
	// interfaces in between are not counted, but the daemon's usage includes them.
	Attachments int `json:"attachments"`
	Pods        int `json:"pods"`
	// CPUSeconds is the CPU time used by the contestant's daemon and its child processes, and PeakMiB is the daemon's
	// peak memory usage. Both are zero for contestants without a daemon.
	CPUSeconds float64 `json:"cpuSeconds"`
	PeakMiB    float64 `json:"peakMiB"`
	// SliceWrites is the number of changes to the contestant's ResourceSlices while pods were created and deleted.
	SliceWrites int `json:"sliceWrites"`
	// LinksGiven is the number of links that were available to the contestant. LinksLost lists the links that were
	// missing from the node at the end.
	LinksGiven int      `json:"linksGiven"`
	LinksLost  []string `json:"linksLost,omitempty"`
}

// Quantile returns the smallest sample that is not less than the fraction q of all samples (nearest rank), in
// milliseconds. It returns NaN if samples is empty. With 20 samples, P99 is the largest sample. The samples do not have
// to be sorted.
func Quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// spread returns the random variation in the difference between the medians of two series, in milliseconds: half the
// width of the interval that contains 95% of the differences if samples are drawn from the two series at random with
// replacement (percentile bootstrap). The same samples always produce the same result. It returns NaN if there are no
// samples.
func spread(samples, plain []float64) float64 {
	if len(samples) == 0 || len(plain) == 0 {
		return math.NaN()
	}
	random := rand.New(rand.NewPCG(1, 1)) // an arbitrary seed
	median := func(series []float64) float64 {
		drawn := make([]float64, len(series))
		for i := range drawn {
			drawn[i] = series[random.IntN(len(series))]
		}
		return Quantile(drawn, .5)
	}
	differences := make([]float64, 1000)
	for i := range differences {
		differences[i] = median(samples) - median(plain)
	}
	return (Quantile(differences, .975) - Quantile(differences, .025)) / 2
}

// add appends samples to the existing series of the same kind, so that all rounds form one series.
func (r *Results) add(s Series) {
	for i := range r.Series {
		have := &r.Series[i]
		if have.Contestant == s.Contestant && have.Kind == s.Kind && have.Interfaces == s.Interfaces &&
			have.Load == s.Load {
			have.Milliseconds = append(have.Milliseconds, s.Milliseconds...)
			have.NotReady += s.NotReady
			have.HookMilliseconds = append(have.HookMilliseconds, s.HookMilliseconds...)
			have.PluginMilliseconds = append(have.PluginMilliseconds, s.PluginMilliseconds...)
			return
		}
	}
	r.Series = append(r.Series, s)
}

// find returns a series, which has no samples if it was not measured.
func (r *Results) find(contestant, kind, load string, interfaces int) Series {
	for _, s := range r.Series {
		if s.Contestant == contestant && s.Kind == kind && s.Load == load && s.Interfaces == interfaces {
			return s
		}
	}
	return Series{}
}

// Read reads the results in a file written by Write.
func Read(path string) (*Results, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Results
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("cannot read the results %s: %w; measure again", path, err)
	}
	return &r, nil
}

// Write writes the results to a file atomically.
func (r *Results) Write(path string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
