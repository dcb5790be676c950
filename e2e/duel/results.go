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

// Results contains all measurements of one run, sample by sample. It keeps samples instead of statistics, so that other
// tables can be generated from an old run. It is also the file format: fields that are added must be optional.
type Results struct {
	// Time is when the run began.
	Time time.Time `json:"time"`
	// Machine and Versions describe the environment of the run: name to text.
	Machine  map[string]string `json:"machine"`
	Versions map[string]string `json:"versions"`
	// Samples is how many pods each series has in each round, moreSamples times as many side by side; Rounds is how
	// often each contestant was measured.
	Samples int `json:"samples"`
	Rounds  int `json:"rounds"`
	// Skipped are the contestants that were not measured, or not to the end, with the reason.
	Skipped map[string]string `json:"skipped,omitempty"`
	// Series are the times from create to Ready.
	Series []Series `json:"series"`
	// Costs are what contestants used and lost meanwhile.
	Costs []Cost `json:"costs"`
}

// Series is pods of one kind, one after the other unless its Load says otherwise.
type Series struct {
	Contestant string `json:"contestant"`
	// Kind is how interfaces come into the pod: "none", "claim only", "moved link", "macvlan".
	Kind string `json:"kind"`
	// Interfaces is the number of interfaces of each pod, in addition to the interface of the cluster's network.
	Interfaces int `json:"interfaces"`
	// Load is "single" (the next pod, one of each kind in turn, is created when the last one is gone), "churn" and
	// "churn, forced" (as soon as the last one is Ready and being deleted, gracefully or with a grace period of 0),
	// "burst" (all concurrently), "killed" (its daemon was killed just before) or "side by side" (as "single", with the
	// clusters of all contestants at the same time).
	Load string `json:"load"`
	// Milliseconds from create to Ready, in the order of the pods.
	Milliseconds []float64 `json:"milliseconds"`
	// NotReady is how many pods of a burst were not Ready two minutes after the one before.
	NotReady int `json:"notReady,omitempty"`
	// HookMilliseconds is how long RunPodSandbox waited for the contestant, for each pod in the same order, and
	// PluginMilliseconds the part of it that CNI plugins took. Empty where the contestant does not tell.
	HookMilliseconds   []float64 `json:"hookMilliseconds,omitempty"`
	PluginMilliseconds []float64 `json:"pluginMilliseconds,omitempty"`
}

// overhead returns the time of the contestant in RunPodSandbox without its plugins, in milliseconds for each pod; nil
// if the contestant does not report it.
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

// Cost is what one contestant used for its series, in one round.
type Cost struct {
	Contestant string `json:"contestant"`
	// Attachments is the number of interfaces that pods got, and Pods the number of these pods. Pods without interfaces
	// in between are not counted, but the usage of the daemon includes them.
	Attachments int `json:"attachments"`
	Pods        int `json:"pods"`
	// CPUSeconds is the CPU time of its daemon and its child processes, and PeakMiB the peak memory of the daemon. Both
	// are zero for contestants without a daemon.
	CPUSeconds float64 `json:"cpuSeconds"`
	PeakMiB    float64 `json:"peakMiB"`
	// SliceWrites are the changes of its ResourceSlices while pods came and went.
	SliceWrites int `json:"sliceWrites"`
	// LinksLost are the links of the node that are missing at the end, out of LinksGiven.
	LinksGiven int      `json:"linksGiven"`
	LinksLost  []string `json:"linksLost,omitempty"`
}

// Quantile is the smallest sample that is not exceeded by the share q of all samples (nearest rank), in milliseconds.
// NaN without samples. With 20 samples P99 is the largest one. Samples need not be sorted.
func Quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// spread is by how much the difference of the medians of two series moves by chance, in milliseconds: half of the
// interval in which 95% of the differences are when samples are drawn at random, with repetition, from the two series
// (the percentile bootstrap). The same samples give the same answer. NaN without samples.
func spread(samples, plain []float64) float64 {
	if len(samples) == 0 || len(plain) == 0 {
		return math.NaN()
	}
	random := rand.New(rand.NewPCG(1, 1)) // a seed of no meaning
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

// add appends samples to the series of its kind, so that rounds are one series.
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

// find returns a series, one without samples if it was not measured.
func (r *Results) find(contestant, kind, load string, interfaces int) Series {
	for _, s := range r.Series {
		if s.Contestant == contestant && s.Kind == kind && s.Load == load && s.Interfaces == interfaces {
			return s
		}
	}
	return Series{}
}

// Read reads results from a file that Write has written.
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

// Write writes results into a file, complete or not at all.
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
