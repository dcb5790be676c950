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

// Results are all that one run has measured, sample by sample. Samples are kept and no statistics, so that other tables
// can be made of an old run. Its form is that of the file: fields that are added must be optional.
type Results struct {
	// Time is when the run began.
	Time time.Time `json:"time"`
	// Machine and Versions are what it ran on: name to text.
	Machine  map[string]string `json:"machine"`
	Versions map[string]string `json:"versions"`
	// Samples is how many pods each series has in each round, moreSamples times as many side by side; Rounds is how often
	// each contestant was measured.
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
	// Interfaces is how many each pod has beside that of the cluster's network.
	Interfaces int `json:"interfaces"`
	// Load is "single" (the next pod, one of each kind in turn, is made when the last one has gone), "churn" and
	// "churn, forced" (as soon as the last one is Ready and being deleted, gracefully or with a grace period of 0),
	// "burst" (all at once), "killed" (its daemon was killed just before) or "side by side" (as "single", with the
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

// overhead is what the contestant took in RunPodSandbox beside its plugins, in milliseconds for each pod; nothing where
// it does not tell.
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
	// Attachments is how many interfaces pods got, and Pods how many pods that was. What the daemon used for those
	// without interfaces that came in between is counted, they are not.
	Attachments int `json:"attachments"`
	Pods        int `json:"pods"`
	// CPUSeconds are those of its daemon and of what that has started, and PeakMiB the most memory the daemon had. Zero
	// for those without a daemon.
	CPUSeconds float64 `json:"cpuSeconds"`
	PeakMiB    float64 `json:"peakMiB"`
	// SliceWrites are the changes of its ResourceSlices while pods came and went.
	SliceWrites int `json:"sliceWrites"`
	// LinksLost are the node's links that are not there any more at the end, of LinksGiven.
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
