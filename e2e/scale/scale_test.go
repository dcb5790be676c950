package scale

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
)

var (
	clusterName = flag.String("cluster", "scale", "name of the local cluster")
	nodes       = flag.Int("nodes", 100, "number of nodes")
	devices     = flag.Int("devices", 64, "devices of each node")
	shapeName   = flag.String("shape", "functions",
		"kind of the devices: functions, mixed-functions, links or mixed-links")
	pods        = flag.Int("pods", 200, "pods to schedule in each layout")
	drivers     = flag.Int("drivers", 20, "how many nodes have drivers of their own; others have what those publish")
	layoutNames = flag.String("layouts", fmt.Sprintf("%s,%s,%s", onePool, samePools, ours),
		"ways to publish the devices")
	output   = flag.String("output", "", "file to which the figures are appended, as one line of JSON")
	profiles = flag.String("profiles", "", "folder for profiles of kube-scheduler, one for each layout")
	least    = flag.Float64("least", 0, "fail if pods are scheduled slower than this times as fast as plain slices")
)

// figures are the measurements of one run.
type figures struct {
	Date       string `json:"date"`
	Processors int    `json:"processors"`
	Nodes      int    `json:"nodes"`
	Devices    int    `json:"devicesPerNode"`
	Shape      string `json:"shape"`
	// Entries is the number of published devices per node: one for each way of using a device.
	Entries int                 `json:"entriesPerNode"`
	Layouts map[layout]*figured `json:"layouts"`
	Restart restart             `json:"restart"`
}

// figured contains the costs of the slices in a layout.
type figured struct {
	SlicesPerNode int `json:"slicesPerNode"`
	// Stored is how much more data is in etcd than without slices, in bytes.
	Stored       int64 `json:"storedBytes"`
	LargestSlice int   `json:"largestSliceBytes"`
	// WritesPerSecond is the rate at which the API server accepts slices from all nodes together.
	WritesPerSecond float64 `json:"writesPerSecond"`
	List            reading `json:"list"`
	ListOfNode      reading `json:"listOfNode"`
	Scheduled       rate    `json:"scheduled"`
}

// restart is the load on the control plane when the drivers on many nodes start together without any change, and when a
// policy then changes the devices on all of these nodes.
type restart struct {
	Drivers int `json:"drivers"`
	// FirstWrites is the number of writes during the first start, when no slices exist.
	FirstWrites int `json:"firstWrites"`
	// Seconds is the time from the start of the drivers until the last driver has established its watch on slices.
	Seconds float64 `json:"seconds"`
	// Lists is the number of list requests for slices, not including watches, which begin with the existing objects.
	// DryRuns is the number of requests for determining which fields the API server keeps.
	Lists   int `json:"lists"`
	DryRuns int `json:"dryRuns"`
	// Writes is the number of writes even though no slice has changed.
	Writes int `json:"writes"`
	// PolicyWrites is the number of writes after a policy change that affects every device. No rate is reported: each
	// driver throttles itself based on how long it takes to scan its node. Since all drivers share the processors here,
	// a rate would be meaningless.
	PolicyWrites int `json:"policyWrites"`
}

// The parts of TestScale run in order, because each depends on the state that the previous part leaves behind.
func TestScale(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: starts a Kubernetes control plane in private namespaces")
	}
	s, err := shapeOf(*shapeName, *devices)
	if err != nil {
		t.Fatal(err)
	}
	all := &figures{Date: time.Now().UTC().Format(time.DateOnly), Processors: runtime.NumCPU(), Nodes: *nodes,
		Devices: *devices, Shape: *shapeName, Entries: s.entries(), Layouts: map[layout]*figured{}}
	f := newFleet(t, newPlane(t), s, *nodes)
	sample := f.drivers(t, all)
	f.clear(t, min(*drivers, f.nodes))
	empty := f.stored(t)
	for i, layout := range layouts() {
		if i > 0 {
			f.clear(t, f.nodes)
			f.forgetMemory(t)
		}
		all.Layouts[layout] = f.measure(t, empty, layout, sample)
	}
	all.print(t)
	all.check(t)
}

// drivers runs the drivers for some nodes: they publish, restart, and publish again after a policy change. It returns
// the slices for one node, because the other nodes have the same slices.
func (f *fleet) drivers(t *testing.T, all *figures) []resourceapi.ResourceSlice {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	f.watch(ctx, t)
	f.publish(t, all)
	f.restart(t, all)
	return f.slicesOf(t, nodeName(0))
}

// publish runs the drivers until they have published their devices for the first time.
func (f *fleet) publish(t *testing.T, all *figures) {
	t.Helper()
	before := f.requests(t)
	f.publishAll(t, min(*drivers, f.nodes))
	made := f.requests(t).since(before)
	all.Restart.FirstWrites = made.writes()
	if want := f.slices(); made.writes() != want {
		t.Errorf("want one write for each of %d slices, got %d writes: %v", want, made.writes(), made)
	}
}

// restart starts the drivers on many nodes together, and changes policies once the drivers have read the existing
// objects.
func (f *fleet) restart(t *testing.T, all *figures) {
	t.Helper()
	count := min(*drivers, f.nodes)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, count)
	before, begin := f.requests(t), time.Now()
	for i := range count {
		go func() { ended <- f.drive(ctx, i) }()
	}
	defer func() {
		cancel()
		for range count {
			<-ended //nolint:errcheck // the error is that ctx has ended
		}
	}()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	var read requests
	for read[watching] < count {
		<-ticker.C
		read = f.requests(t).since(before)
	}
	all.Restart.Drivers, all.Restart.Seconds = count, time.Since(begin).Seconds()
	all.Restart.Lists, all.Restart.DryRuns = read["LIST"], read[dryRun]

	f.apply(t, f.shape.objects(2))
	if err := f.until(ctx, "each node publishes what the policies have changed", func() bool {
		for i := range count {
			if !f.complete(i, 2) {
				return false
			}
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	all.Restart.PolicyWrites = f.writesOfChange(count)
	all.Restart.Writes = f.requests(t).since(before).writes() - all.Restart.PolicyWrites
	if all.Restart.Writes != 0 {
		t.Errorf("restarted drivers wrote %d unchanged slices, want none", all.Restart.Writes)
	}
}

// layouts returns the layouts to measure.
func layouts() []layout {
	var all []layout
	for name := range strings.SplitSeq(*layoutNames, ",") {
		all = append(all, layout(name))
	}
	return all
}

// measure publishes the sample for every node in the given layout, and measures the costs.
func (f *fleet) measure(
	t *testing.T, empty int64, layout layout, sample []resourceapi.ResourceSlice,
) *figured {
	t.Helper()
	begin, writes := time.Now(), f.put(t, layout, sample)
	perSecond := float64(writes) / time.Since(begin).Seconds()
	sizes := f.sliceSizes(t)
	m := &figured{SlicesPerNode: len(sizes), Stored: f.stored(t) - empty, LargestSlice: sizes[len(sizes)-1],
		WritesPerSecond: perSecond,
		List:            f.list(t, ""),
		ListOfNode:      f.list(t, resourceapi.ResourceSliceSelectorNodeName+"="+nodeName(0))}
	m.Scheduled = f.schedule(t, *pods, layout)
	t.Logf("%s: %+v", layout, *m)
	return m
}

// print prints a table, and appends the figures to the machine-readable file.
func (all *figures) print(t *testing.T) {
	t.Helper()
	table := fmt.Sprintf("%d nodes with %d devices each (%s, %d entries)\n", all.Nodes, all.Devices, all.Shape,
		all.Entries) +
		"| layout | slices of a node | MB in etcd | writes/s | list of all, MB | list of all, ms | largest slice, KB " +
		"| pods/s | " +
		"scheduler, ms of CPU per pod | scheduler, MB | API server, MB " +
		"|\n|---|---|---|---|---|---|---|---|---|---|---|\n"
	for _, layout := range layouts() {
		m := all.Layouts[layout]
		table += fmt.Sprintf("| %s | %d | %.1f | %.0f | %.1f | %.0f | %.1f | %.1f | %.1f | %.0f | %.0f |\n", layout,
			m.SlicesPerNode, float64(m.Stored)/1e6, m.WritesPerSecond, float64(m.List.Bytes)/1e6, m.List.Milliseconds,
			float64(m.LargestSlice)/1e3, m.Scheduled.PodsPerSecond, m.Scheduled.SchedulerMillisecondsPerPod,
			float64(m.Scheduled.SchedulerBytes)/1e6, float64(m.Scheduled.APIServerBytes)/1e6)
	}
	r := all.Restart
	t.Logf("%s%d drivers published with %d writes, and restarted in %.1f s with %d lists, %d dry runs and %d writes; "+
		"a change of the policies cost them %d writes", table, r.Drivers, r.FirstWrites, r.Seconds, r.Lists, r.DryRuns,
		r.Writes, r.PolicyWrites)
	if *output == "" {
		return
	}
	line, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(*output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(append(line, '\n')); err != nil {
		t.Error(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}

// check checks the requirements that must be met on any machine.
func (all *figures) check(t *testing.T) {
	t.Helper()
	plain := all.Layouts[onePool]
	if plain == nil || all.Layouts[ours] == nil {
		return // the layouts were not measured
	}
	ratio := all.Layouts[ours].Scheduled.PodsPerSecond / plain.Scheduled.PodsPerSecond
	t.Logf("pods were scheduled %.2f times as fast as with plain slices", ratio)
	if math.IsNaN(ratio) || ratio < *least { // NaN if no pod was scheduled
		t.Errorf("pods were scheduled %.2f times as fast as with plain slices, but %.2f is required", ratio, *least)
	}
}
