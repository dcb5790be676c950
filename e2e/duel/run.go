package duel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Options specifies which measurements to take.
type Options struct {
	// Clone is the path of the project's clone, and Bin is the directory that contains its binaries.
	Clone, Bin string
	// Peers is a directory with the other drivers' binaries, named dranet and multus. Contestants whose binaries are
	// missing are skipped.
	Peers string
	// Cluster is the name of the local cluster.
	Cluster string
	// Samples is the number of pods per series, and Rounds is the number of rounds.
	Samples, Rounds int
	// Only lists the contestants to measure; empty means all.
	Only []string
	// Stages lists the stages to measure, from AllStages; empty means all.
	Stages []string
	// Progress receives progress messages, one per line.
	Progress io.Writer
	// Keep is called after each contestant with the results so far, so that they are not lost if the run is
	// interrupted. It may be nil.
	Keep func(*Results) error
}

// Stages of a run.
const (
	// StageAlone measures one contestant at a time, with no other clusters on the machine.
	StageAlone = "alone"
	// StageSideBySide runs the clusters for all contestants at the same time.
	StageSideBySide = "side-by-side"
)

// AllStages returns the stages of a published run.
func AllStages() []string { return []string{StageAlone, StageSideBySide} }

// interfaces returns the numbers of interfaces per pod to measure.
func interfaces() []int { return []int{1, 2, 4, 8} }

// Run measures all contestants, each on its own cluster. If a contestant fails, its name and the reason are added to
// Skipped, its earlier measurements remain in the results, and the run continues.
func Run(ctx context.Context, options Options) (*Results, error) {
	chosen, skipped := choose(options)
	if len(chosen) == 0 {
		return nil, fmt.Errorf("cannot measure: no contestant is left (%v); choose from %q", skipped, names(contestants()))
	}
	r := &Results{Time: time.Now().UTC(), Machine: machine(), Versions: versions(ctx, options),
		Samples: options.Samples, Rounds: options.Rounds, Skipped: skipped}
	if includes(options.Stages, StageAlone) {
		if err := alone(ctx, options, chosen, r); err != nil {
			return nil, err
		}
	}
	if includes(options.Stages, StageSideBySide) {
		if err := sideBySide(ctx, options, chosen, r); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Skipped)) {
		_, _ = fmt.Fprintf(options.Progress, "skipped: %s: %s\n", name, r.Skipped[name])
	}
	if len(r.Series) == 0 {
		return nil, fmt.Errorf("cannot measure: no pod of stages %q was counted (%v)", options.Stages, r.Skipped)
	}
	return r, nil
}

// includes reports whether a list selects a value. An empty list selects every value.
func includes(wanted []string, value string) bool {
	return len(wanted) == 0 || slices.Contains(wanted, value)
}

// choose returns the contestants to measure, and the names of skipped contestants with the reasons. An optional
// contestant whose programs are missing is listed as skipped only if the user asked for it.
func choose(options Options) (chosen []contestant, skipped map[string]string) {
	skipped = map[string]string{}
	for _, c := range contestants() {
		if !includes(options.Only, c.name) {
			continue
		}
		switch reason := c.missing(options); {
		case reason == "":
			chosen = append(chosen, c)
		case !c.optional || len(options.Only) > 0:
			skipped[c.name] = reason
		}
	}
	return chosen, skipped
}

// names returns the names of contestants.
func names(list []contestant) []string {
	var names []string
	for _, c := range list {
		names = append(names, c.name)
	}
	return names
}

// alone measures the contestants one at a time in each round.
func alone(ctx context.Context, options Options, chosen []contestant, r *Results) error {
	for round := range options.Rounds {
		for _, c := range chosen {
			_, _ = fmt.Fprintf(options.Progress, "round %d of %d: %s\n", round+1, options.Rounds, c.name)
			err := measure(ctx, options, c, r)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil: // keep earlier results, which took a long time to measure
				r.Skipped[c.name] = fmt.Sprintf("not whole: %v", err)
			}
			if options.Keep == nil {
				continue
			}
			if err := options.Keep(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// missing returns the reason why a contestant cannot be measured, or "" if it can be.
func (c contestant) missing(options Options) string {
	switch {
	case c.binary == "":
		return ""
	case options.Peers == "":
		return "no folder with the binaries of others was given"
	}
	if _, err := os.Stat(filepath.Join(options.Peers, c.binary)); err != nil {
		return fmt.Sprintf("%s is not in the given folder", c.binary)
	}
	return ""
}

// measure measures one contestant in one round, on its own cluster. It adds costs only at the end, so a contestant that
// fails has no costs.
func measure(ctx context.Context, options Options, c contestant, r *Results) (err error) {
	a, err := enter(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.leave(ctx)) }()
	if err := c.start(ctx, a); err != nil {
		return err
	}
	m := measurement{arena: a, contestant: c, results: r, cost: Cost{Contestant: c.name, LinksGiven: devices}}
	for _, load := range []func(context.Context) error{m.single, m.churn, m.burst, m.killed} {
		if err := load(ctx); err != nil {
			return err
		}
	}
	if m.cost.LinksLost, err = a.lost(ctx, m.cost.LinksGiven); err != nil {
		return err
	}
	r.Costs = append(r.Costs, m.cost)
	return nil
}

// measurement is one contestant in one round.
type measurement struct {
	*arena
	contestant
	results *Results
	cost    Cost
	made    int // number of pod name prefixes used so far
	// courses, the name prefix for their pods and the watch are set once sequential pods have been prepared.
	courses []*course
	podName string
	pods    *follower
	pid     int // the daemon's PID after its start; 0 to skip the check
}

// note adds a series to the results. In a burst, missing pods are counted as not Ready.
func (m *measurement) note(kind, load string, n int, milliseconds []float64) {
	missing := 0
	if load == "burst" {
		missing = crowd - len(milliseconds)
	}
	m.keep(Series{Kind: kind, Interfaces: n, Load: load, Milliseconds: milliseconds, NotReady: missing})
}

// keep adds a series to the results and prints it.
func (m *measurement) keep(s Series) {
	s.Contestant = m.name
	m.results.add(s)
	_, _ = fmt.Fprintf(m.options.Progress, "  %-10s %-15s %d: P50 %6.0f ms  P99 %6.0f ms\n", s.Kind, s.Load,
		s.Interfaces, Quantile(s.Milliseconds, .5), Quantile(s.Milliseconds, .99))
}

func (m *measurement) prefix() string {
	m.made++
	return fmt.Sprintf("p%d", m.made)
}

// errRestarted means that the daemon was restarted, so the samples come from two processes.
var errRestarted = errors.New("its daemon was restarted while it was measured")

// counting calls do, which creates pods, and adds the resources that the daemon uses in the meantime to the cost. It
// returns an error if the daemon is a different process afterwards, since the counters have then been lost.
func (m *measurement) counting(ctx context.Context, do func() error) error {
	before, err := m.use(ctx, m.daemon)
	if err != nil {
		return err
	}
	writes, err := m.countSliceWrites(ctx)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	m.cost.SliceWrites += writes()
	after, err := m.use(ctx, m.daemon)
	if err != nil {
		return err
	}
	if after.pid != before.pid {
		return errRestarted
	}
	m.cost.CPUSeconds += after.cpu - before.cpu
	m.cost.PeakMiB = max(m.cost.PeakMiB, after.peak)
	return nil
}

// countSliceWrites counts the changes to the contestant's ResourceSlices until end is called. It counts watch events,
// so writes that do not change anything are not counted. The watch starts at the resource version of the list, so no
// event is counted twice.
func (m *measurement) countSliceWrites(ctx context.Context) (end func() int, err error) {
	if m.driver == "" {
		return func() int { return 0 }, nil
	}
	options := metav1.ListOptions{FieldSelector: "spec.driver=" + m.driver}
	list, err := m.client.ResourceV1().ResourceSlices().List(ctx, options)
	if err != nil {
		return nil, err
	}
	options.ResourceVersion = list.ResourceVersion
	watch, err := m.client.ResourceV1().ResourceSlices().Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	var count atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range watch.ResultChan() {
			count.Add(1)
		}
	}()
	return func() int {
		watch.Stop()
		<-done
		return int(count.Load())
	}, nil
}

// churn creates pods in a tight loop over ten links, with graceful and forced deletion.
func (m *measurement) churn(ctx context.Context) error {
	kind := claimOnly
	if slices.Contains(m.kinds, moved) {
		kind = moved
	}
	if !m.churns {
		return nil
	}
	zero := int64(0)
	for _, how := range []struct {
		load    string
		options metav1.DeleteOptions
	}{{"churn", metav1.DeleteOptions{}}, {"churn, forced", metav1.DeleteOptions{GracePeriodSeconds: &zero}}} {
		times, err := m.series(ctx, m.prefix(), 2*m.options.Samples, m.makeRequest(kind, 1), how.options)
		if err != nil {
			return err
		}
		m.note(kind, how.load, 1, times)
	}
	return nil
}

// burst creates many concurrent pods with one macvlan each and, if the contestant can use any free link, with one moved
// link each. There must be as many links to move as pods, so that the result does not include time spent waiting for a
// free link.
func (m *measurement) burst(ctx context.Context) error {
	burst := func(kind string, n int, r request) error {
		times, err := m.arena.burst(ctx, crowd, r)
		if err != nil {
			return err
		}
		m.note(kind, "burst", n, times)
		used, err := m.use(ctx, m.daemon)
		m.cost.PeakMiB = max(m.cost.PeakMiB, used.peak)
		return err
	}
	if len(m.kinds) == 0 {
		return burst(none, 0, request{})
	}
	if slices.Contains(m.kinds, macvlan) {
		if err := burst(macvlan, 1, m.makeRequest(macvlan, 1)); err != nil {
			return err
		}
	}
	if slices.Contains(m.kinds, moved) && m.churns {
		if err := m.addLinks(linkPrefix, devices, crowd); err != nil {
			return err
		}
		m.cost.LinksGiven = crowd
		return burst(moved, 1, m.makeRequest(moved, 1))
	}
	return nil
}

// killed creates one pod right after killing the daemon. At that point, no process can prepare the pod's claim, so most
// of the time is spent waiting for the kubelet to restart the daemon.
func (m *measurement) killed(ctx context.Context) error {
	if m.daemon == "" || !slices.Contains(m.kinds, moved) {
		return nil
	}
	used, err := m.use(ctx, m.daemon)
	if err != nil {
		return err
	}
	if _, err := m.cluster.Exec(ctx, "kill", "-KILL", fmt.Sprint(used.pid)); err != nil {
		return err
	}
	f, err := m.follow(ctx)
	if err != nil {
		return err
	}
	defer f.stop()
	start := time.Now()
	pods := m.client.CoreV1().Pods("default")
	if _, err := pods.Create(ctx, pod("killed", m.makeRequest(moved, 1)), metav1.CreateOptions{}); err != nil {
		return err
	}
	end, err := f.wait(ctx, "the pod after the kill is Ready", ready("killed"))
	if err != nil {
		return err
	}
	m.note(moved, "killed", 1, []float64{end.Sub(start).Seconds() * 1000})
	return errors.Join(pods.Delete(ctx, "killed", metav1.DeleteOptions{}), m.allGone(ctx))
}

// machine describes the machine that the run takes place on.
func machine() map[string]string {
	m := map[string]string{"processors": fmt.Sprint(runtime.NumCPU()), "architecture": runtime.GOARCH}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m["kernel"] = unix.ByteSliceToString(name.Release[:])
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if _, model, found := strings.Cut(line, "model name"); found {
				m["model"] = strings.Trim(model, "\t :\n")
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kilobytes int
		if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kilobytes); err == nil {
			m["memory"] = fmt.Sprintf("%d GiB", (kilobytes+1<<19)>>20)
		}
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m["load before"] = strings.Fields(string(text))[0]
	}
	return m
}

// versions returns the versions of the measured programs. It reads a peer's version from its binary. If the binary was
// built from a tools module with go build, the main module has no version, so versions looks for the peer among the
// dependencies.
func versions(ctx context.Context, options Options) map[string]string {
	v := map[string]string{"go": runtime.Version()}
	output, err := exec.CommandContext(ctx, "git", "-C", options.Clone, "rev-parse", "--short", "HEAD").Output()
	if err == nil {
		v["this driver"] = strings.TrimSpace(string(output))
	}
	for _, c := range contestants() {
		if c.binary == "" || c.missing(options) != "" {
			continue
		}
		output, err := exec.CommandContext(ctx, "go", "version", "-m", filepath.Join(options.Peers, c.binary)).Output()
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(output)) {
			fields := strings.Fields(line)
			if len(fields) < 3 {
				continue
			}
			itself := fields[0] == "mod" && fields[2] != "(devel)"
			if itself || fields[0] == "dep" && strings.Contains(fields[1], c.binary) && v[c.name] == "" {
				v[c.name] = fields[2]
			}
		}
	}
	return v
}
