package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain/deviceclasses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// Options are the flags of "netdra simulate".
type Options struct {
	Files    []string
	Machines []string // directories that contain recordings
	Cluster  bool
	Pods     []string // pods in the cluster, as namespace/name
	// Kubeconfig and Context select the cluster. If they are empty, the defaults are the same as for kubectl.
	Kubeconfig, Context string
	// Namespace is the namespace of objects that do not specify one. If it is empty, the default is the context's
	// namespace, or "default" without a cluster.
	Namespace string
	Output    string
	Features  draslices.Features
	// DerivedAttributes allows claims to use attributes that are computed from devices. It does not affect published
	// slices.
	DerivedAttributes bool
}

// Run reads and validates all input, builds the cluster model, runs the simulation, and prints the answers. The
// simulation starts only after all input has been validated, so an error in the last file is reported immediately.
func (f *Options) Run(ctx context.Context, deps osdeps.Deps, streams printer.Streams) error {
	live, err := f.connect()
	if err != nil {
		return err
	}
	namespace := cmp.Or(f.Namespace, metav1.NamespaceDefault)
	if live != nil { // the namespace of the context, as in kubectl
		namespace = live.Namespace
	}
	m, err := parse(f.Files, streams.In, namespace)
	if err != nil {
		return err
	}
	if live != nil {
		if err := live.addPods(ctx, m, f.Pods); err != nil {
			return err
		}
	}
	if err := m.arrangeTrials(); err != nil {
		return err
	}
	for _, remark := range m.remarks {
		printer.New(streams.Err).Warn("%s", remark)
	}
	cluster, err := f.buildCluster(ctx, deps, printer.New(streams.Err), live, m)
	if err != nil {
		return err
	}
	if err := m.addExtendedClaims(cluster.Classes, cluster.Nodes); err != nil {
		return err
	}
	if len(m.trials) == 0 {
		return exit.Refusef("cannot simulate: %s; pass a file with one of them with -f, or a pod of the cluster with "+
			"--pod", missingTrials(f.Files))
	}
	answers, err := m.answer(ctx, cluster)
	if err != nil {
		return err
	}
	err = printer.Show(streams.Out, f.Output, answers, func(out *printer.Printer) {
		for i := range answers {
			answers[i].print(out)
		}
		if summary := podSummary(answers); summary != "" {
			out.Printf("%s", summary)
		}
	})
	return exit.Check(err, slices.ContainsFunc(answers, func(a Answer) bool { return !a.Fits }))
}

// missingTrials returns a message that names the files, which may contain only policies and topologies.
func missingTrials(files []string) string {
	const kinds = "ResourceClaim, ResourceClaimTemplate or pod with claims"
	if len(files) == 0 {
		return "no file with a " + kinds + " was given"
	}
	return fmt.Sprintf("%s has no %s", strings.Join(files, ", "), kinds)
}

// answer simulates the trials in order. Claims that fit keep their devices, so later trials cannot use these devices.
func (m *model) answer(ctx context.Context, cluster *Cluster) ([]Answer, error) {
	simulator := New(*cluster)
	answers := []Answer{}
	for i, trial := range m.trials {
		if i > 0 && trial.follows(&m.trials[i-1]) && !answers[i-1].Fits {
			answers = append(answers, sameRefusal(&trial, &answers[i-1]))
			continue
		}
		missing := trial.missing
		if !trial.isAllocated() { // allocated claims no longer need their classes
			missing = slices.Concat(missing, simulator.missing(trial.claims))
		}
		if len(missing) > 0 {
			answers = append(answers, Answer{What: trial.title, Missing: missing})
			continue
		}
		verdict, err := simulator.Try(ctx, trial.claims...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", trial.title, err)
		}
		answer := answerOf(&trial, &verdict)
		answer.addRemarks(trial.remarks)
		if trial.isAllocated() {
			answer.Allocated = true
			if node := trial.pod.Spec.NodeName; answer.Fits && node != "" { // the allocator returns every possible node
				answer.Nodes = []string{node}
			}
		}
		answer.addDriverChecks(m, &trial, verdict.Results, cluster.Classes)
		if answer.Allocated && answer.Fits {
			answer.Note = allocatedNote(trial.pod)
		}
		if answer.Fits {
			m.use(&trial)
			simulator.Reserve(trial.title, trial.claims, verdict.Results)
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

// buildCluster returns the allocator's view: the objects from the files, plus those from a live cluster or recorded
// machines. With a live cluster, policies in files have no effect, because the slices come from the drivers in the
// cluster.
func (f *Options) buildCluster(ctx context.Context, deps osdeps.Deps, out *printer.Printer, live *liveCluster,
	m *model) (*Cluster, error) {
	cluster := &Cluster{
		Slices: m.slices, Claims: m.allocated,
		ListAttributes: f.Features.ListAttributes, CompatibilityGroups: f.Features.CompatibilityGroups,
		DerivedAttributes: f.DerivedAttributes, TaintRules: m.taintRules, Live: live != nil,
	}
	if live != nil {
		if err := cluster.Read(ctx, live.Cluster); err != nil {
			return nil, err
		}
		// In a cluster, the controller has the same feature flags as the nodes.
		published := slices.DeleteFunc(slices.Clone(cluster.Slices),
			func(slice *resourceapi.ResourceSlice) bool { return slice.Spec.Driver != v1alpha1.DriverName })
		listed := f.Features.ListAttributes || anyDevice(published, hasListAttribute)
		cluster.Classes = slices.Concat(m.classes, m.topologyClasses(listed), cluster.Classes)
		rules, err := TaintRules(ctx, live.Raw)
		if err != nil {
			out.Warn("%v", err)
		}
		cluster.TaintRules = append(cluster.TaintRules, rules...)
		for _, remark := range live.addDriverObjects(ctx, m) {
			out.Warn("%s", remark)
		}
		return cluster, nil
	}
	cluster.Classes = slices.Concat(m.classes, m.topologyClasses(f.Features.ListAttributes))
	idle, err := f.addMachines(ctx, deps, out, m, cluster)
	if err != nil {
		return nil, err
	}
	cluster.Nodes = NodesOf(cluster.Slices)
	if len(cluster.Nodes) == 0 && len(m.policies) > 0 {
		return nil, fmt.Errorf("no node publishes a device:\n  %s", strings.Join(idle, "\n  "))
	}
	if len(cluster.Nodes) == 0 {
		return nil, errors.New("no node publishes a device; pass policies with -f, and recordings with --machines, " +
			"or use --cluster")
	}
	return cluster, nil
}

// addMachines adds the slices that each machine would publish under the policies. For each machine without devices,
// idle contains a message with the reason.
func (f *Options) addMachines(ctx context.Context, deps osdeps.Deps, out *printer.Printer, m *model,
	cluster *Cluster) (idle []string, err error) {
	machines := f.Machines
	if len(machines) == 0 && len(m.policies) > 0 {
		machines = []string{""} // the local machine
	}
	for _, problem := range manifest.TypeMismatches(m.policies) {
		out.Warn("%s", problem)
	}
	for _, dir := range machines {
		inputs := offers.Inputs{Recording: dir, RecordingFlag: "--machines", Features: f.Features,
			Socket: nodeclient.DefaultSocket()}
		if inputs.Node, err = inputs.NodeName(deps); err != nil {
			return nil, err
		}
		inputs.Labels = map[string]string{corev1.LabelHostname: inputs.Node}
		machine, err := inputs.Build(ctx, deps, m.policies, out)
		if err != nil {
			return nil, fmt.Errorf("machine %s: %w", filepath.Base(dir), err)
		}
		for _, problem := range slices.Concat(machine.Decision.Problems, machine.Result.Problems) {
			out.Warn("%s: %s", machine.Node.Name, problem)
		}
		cluster.Slices = append(cluster.Slices, resourceSlices(machine.Node.Name, &machine.Result)...)
		if len(machine.Result.Entries) == 0 {
			idle = append(idle, "no policy exposes a device of "+inputs.Node+": netdra slices shows the reasons")
		}
	}
	return idle, nil
}

// resourceSlices returns the slices that a node would publish. All slices in a pool must have the same generation.
func resourceSlices(node string, published *draslices.Result) []*resourceapi.ResourceSlice {
	var all []*resourceapi.ResourceSlice
	pools := published.Resources.Pools
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		for i, slice := range pools[pool].Slices {
			all = append(all, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", pool, i)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: policyapi.AttributeDomain, NodeName: &node, Devices: slice.Devices,
					SharedCounters: slice.SharedCounters,
					Pool: resourceapi.ResourcePool{Name: pool, Generation: 1,
						ResourceSliceCount: int64(len(pools[pool].Slices))},
				},
			})
		}
	}
	return all
}

func (m *model) topologyClasses(listAttributes bool) []*resourceapi.DeviceClass {
	var all []*resourceapi.DeviceClass
	for _, topology := range m.topologies {
		for _, class := range deviceclasses.Of(topology, m.schemas.AttachesInterface, listAttributes) {
			all = append(all, &class)
		}
	}
	return all
}

// Answer is the result for a pod or a claim. Fits is true if the allocator finds devices and the driver would attach
// them.
type Answer struct {
	What string `json:"what"`
	Fits bool   `json:"fits"`
	// Allocated is true for a pod in the cluster if all of its claims are allocated.
	Allocated bool `json:"allocated,omitempty"`
	// started is true if an allocated pod has started. In that case, any problems occurred after the start.
	started bool
	// Note replaces the list of nodes in text output.
	Note string `json:"note,omitempty"`
	// As is the title of an earlier pod from the same template that does not fit for the same reason. That pod's answer
	// contains the details.
	As string `json:"as,omitempty"`
	// Nodes lists the nodes where the pod or claim fits.
	Nodes    []string      `json:"nodes,omitempty"`
	Devices  []givenDevice `json:"devices,omitempty"`
	Refusals []Refusal     `json:"refusals,omitempty"`
	// Refused lists the reasons why the driver would refuse the claims with the allocated devices.
	Refused []string `json:"refused,omitempty"`
	Remarks []string `json:"remarks,omitempty"`
	// Missing describes claims, templates and DeviceClasses that are referenced but do not exist.
	Missing []string `json:"missing,omitempty"`
}

type givenDevice struct {
	Claim    string `json:"claim"`
	Request  string `json:"request"`
	Driver   string `json:"driver"`
	Pool     string `json:"pool"`
	Device   string `json:"device"`
	Consumes string `json:"consumes,omitempty"`
}

// answerOf converts a verdict to an Answer, with the devices on the first node.
func answerOf(trial *trial, verdict *Verdict) Answer {
	tried := Answer{What: trial.title, Fits: len(verdict.Nodes) > 0, Nodes: verdict.Nodes,
		Refusals: verdict.Refusals}
	for i := range verdict.Results {
		for _, result := range verdict.Results[i].Devices.Results {
			var amounts []string
			for _, name := range slices.Sorted(maps.Keys(result.ConsumedCapacity)) {
				_, short, _ := strings.Cut(string(name), "/")
				amount := result.ConsumedCapacity[name]
				amounts = append(amounts, short+"="+amount.String())
			}
			tried.Devices = append(tried.Devices, givenDevice{
				Claim: trial.claims[i].Name, Request: result.Request, Driver: result.Driver, Pool: result.Pool,
				Device:   result.Device,
				Consumes: strings.Join(amounts, " "),
			})
		}
	}
	return tried
}

func (t *Answer) print(out *printer.Printer) {
	if t.Fits {
		out.Good("%s", cmp.Or(t.Note, fmt.Sprintf("%s fits on %s", t.What, strings.Join(t.Nodes, ", "))))
		rows := [][]string{{"  CLAIM", "REQUEST", "DEVICE", "POOL", "CONSUMES"}}
		for _, d := range t.Devices {
			rows = append(rows, []string{"  " + d.Claim, d.Request, d.Device, d.Pool, cmp.Or(d.Consumes, "-")})
		}
		out.Table(rows)
		t.printRemarks(out)
		return
	}
	if t.As != "" {
		out.Bad("%s does not fit, as %s", t.What, t.As)
		return
	}
	if len(t.Refused) > 0 {
		out.Bad(t.refusalFormat(), t.What, strings.Join(t.Nodes, ", "))
		for _, reason := range t.Refused {
			out.Printf("  %s", reason)
		}
		t.printRemarks(out)
		return
	}
	out.Bad("%s does not fit", t.What)
	for _, missing := range t.Missing {
		out.Printf("  %s", missing)
	}
	t.printRemarks(out)
	for i := range t.Refusals {
		t.Refusals[i].print(out)
	}
}

// mostNamed is the maximum number of claims named on one line, because a workload may have hundreds of pods.
const mostNamed = 5

func (r *Refusal) print(out *printer.Printer) {
	out.Printf("  %s: %s", r.Node, r.Reason)
	for _, holder := range r.Holders[:min(len(r.Holders), mostNamed)] {
		out.Printf("    %s", holder)
	}
	named := func(names []string) string {
		if len(names) > mostNamed {
			names = append(names[:mostNamed:mostNamed], fmt.Sprintf("and %d more", len(names)-mostNamed))
		}
		return strings.Join(names, ", ")
	}
	fits := "It fits when"
	if len(r.Taken) > 0 {
		out.Printf("    Taken in this simulation by %s", named(r.Taken))
		fits = "It fits without them when"
	}
	if len(r.Release) > 0 {
		out.Printf("    %s %s released: %s", fits, isOrAre(len(r.Release)), named(r.Release))
	}
}

// podSummary returns a sentence with the number of pods that fit, or "" for fewer than two pods.
func podSummary(answers []Answer) string {
	pods, fit := 0, 0
	for i := range answers {
		if strings.HasPrefix(answers[i].What, podTitle) {
			pods++
			if answers[i].Fits {
				fit++
			}
		}
	}
	if pods < 2 {
		return ""
	}
	return fmt.Sprintf("%d of %d pods fit", fit, pods)
}

// addRemarks adds remarks, skipping duplicates, because claims of a pod often share a topology.
func (t *Answer) addRemarks(remarks []string) {
	for _, remark := range remarks {
		if !slices.Contains(t.Remarks, remark) {
			t.Remarks = append(t.Remarks, remark)
		}
	}
}

func (t *Answer) printRemarks(out *printer.Printer) {
	for _, remark := range t.Remarks {
		out.Warn("%s", remark)
	}
}

// refusalFormat returns the format of a refusal. It does not name the component that refuses the claim: the webhook
// refuses it at creation or, if there is no webhook, the driver refuses it in Prepare.
func (t *Answer) refusalFormat() string {
	switch {
	case t.started:
		return "%s has started with devices on %s, but some of them have problems:"
	case t.Allocated:
		return "%s has devices on %s, but they cannot be attached:"
	}
	return "%s would get devices on %s, but is refused:"
}

func isOrAre(n int) string {
	if n == 1 {
		return "this claim is"
	}
	return "these claims are"
}
