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

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// Options are the flags of "simulate".
type Options struct {
	Files, Machines    []string
	Cluster            bool
	Pods               []string // of the cluster, as namespace/name
	Kubeconfig, Output string
	Features           draslices.Features
}

// Run tries every claim and prints what became of it.
func (f *Options) Run(ctx context.Context, deps osdeps.Deps, streams printer.Streams) error {
	if err := printer.CheckForm(f.Output); err != nil {
		return err
	}
	input, err := ReadInput(f.Files, streams.In)
	if err != nil {
		return err
	}
	cluster, err := f.clusterOf(ctx, deps, printer.New(streams.Err), input)
	if err != nil {
		return err
	}
	if len(input.trials) == 0 {
		return exit.Refusef("there is nothing to try: give a file with a ResourceClaim, a ResourceClaimTemplate or a Pod with -f, or a pod of the cluster with --pod")
	}
	simulator := New(*cluster)
	tried := []Answer{}
	fits := true
	for _, trial := range input.trials {
		verdict, err := simulator.Try(ctx, trial.claims...)
		if err != nil {
			return fmt.Errorf("%s: %w", trial.title, err)
		}
		result := answerOf(&trial, &verdict)
		result.addDriverChecks(input, &trial, verdict.Results, cluster.Classes)
		if result.Fits {
			simulator.Take(trial.claims, verdict.Results)
		}
		fits = fits && result.Fits
		tried = append(tried, result)
	}
	if f.Output != printer.FormText {
		err = printer.Encode(streams.Out, f.Output, tried)
	} else {
		out := printer.New(streams.Out)
		for i := range tried {
			tried[i].print(out)
		}
	}
	if err == nil && !fits {
		err = exit.Reported()
	}
	return err
}

// clusterOf is what the allocator sees.
func (f *Options) clusterOf(ctx context.Context, deps osdeps.Deps, warn *printer.Printer, input *Input) (*Cluster, error) {
	cluster := &Cluster{Classes: input.classes(f.Features.ListAttributes), Slices: input.slices, Claims: input.allocated,
		ListAttributes: f.Features.ListAttributes, CompatibilityGroups: f.Features.CompatibilityGroups}
	if f.Cluster || len(f.Pods) > 0 {
		live, err := connect(f.Kubeconfig)
		if err != nil {
			return nil, err
		}
		return cluster, errors.Join(live.addTo(ctx, cluster), live.addPods(ctx, input, f.Pods))
	}
	machines := f.Machines
	if len(machines) == 0 && len(input.policies) > 0 {
		machines = []string{""}
	}
	for _, problem := range manifest.TypeMismatches(input.policies) {
		warn.Warn("%s", problem)
	}
	var idle []string
	for _, dir := range machines {
		inputs := offers.Inputs{Recording: dir, Features: f.Features}
		facts, err := inputs.Facts(ctx)
		if err != nil {
			return nil, fmt.Errorf("machine %s: %w", filepath.Base(dir), err)
		}
		if err := inputs.Complete(deps, input.policies); err != nil {
			return nil, err
		}
		inputs.Labels = map[string]string{"kubernetes.io/hostname": inputs.Node}
		decision := policy.Resolve(facts, input.policies, policy.Node{Name: inputs.Node, Labels: inputs.Labels})
		result, err := draslices.Build(inputs.Node, decision, inputs.Features)
		if err != nil {
			return nil, err
		}
		for _, problem := range append(decision.Problems, result.Problems...) {
			warn.Warn("%s: %s", inputs.Node, problem)
		}
		cluster.Slices = append(cluster.Slices, resourceSlices(inputs.Node, &result)...)
		if len(result.Entries) == 0 {
			idle = append(idle, exposesNothing(&inputs, input.policies))
		}
	}
	cluster.Nodes = NodesOf(cluster.Slices)
	if len(cluster.Nodes) == 0 && len(input.policies) > 0 {
		return nil, fmt.Errorf("no node publishes a device:\n  %s", strings.Join(idle, "\n  "))
	}
	if len(cluster.Nodes) == 0 {
		return nil, errors.New("no node publishes a device: give policies with -f, and recordings with --machines, or use --cluster")
	}
	return cluster, nil
}

// exposesNothing says of a machine that policies expose none of its devices, and how to find out why.
func exposesNothing(inputs *offers.Inputs, policies []policyapi.DeviceExposurePolicy) string {
	var names []string
	for i := range policies {
		if policies[i].Spec.Action != policyapi.ActionExclude {
			names = append(names, policies[i].Name)
		}
	}
	command := "netdra slices -f FILE"
	if inputs.Recording != "" {
		command += " --from " + inputs.Recording
	}
	if len(names) == 0 {
		return fmt.Sprintf("no policy exposes devices of %s, they only exclude", inputs.Node)
	}
	return fmt.Sprintf("of the devices of %s none is exposed by policy %s: %s says why", inputs.Node, strings.Join(names, ", "), command)
}

// Answer is what became of a pod or a claim.
type Answer struct {
	What string `json:"what"`
	Fits bool   `json:"fits"`
	// Nodes are those on which it fits.
	Nodes    []string      `json:"nodes,omitempty"`
	Devices  []givenDevice `json:"devices,omitempty"`
	Refusals []nodeRefusal `json:"refusals,omitempty"`
	// Refused is why the driver would refuse the claims with these devices.
	Refused []string `json:"refused,omitempty"`
	Remarks []string `json:"remarks,omitempty"`
}

type givenDevice struct {
	Claim    string `json:"claim"`
	Request  string `json:"request"`
	Driver   string `json:"driver"`
	Pool     string `json:"pool"`
	Device   string `json:"device"`
	Consumes string `json:"consumes,omitempty"`
}

type nodeRefusal struct {
	Node    string   `json:"node"`
	Reason  string   `json:"reason"`
	Release []string `json:"release,omitempty"`
	Short   []string `json:"short,omitempty"`
}

func answerOf(trial *trial, verdict *Verdict) Answer {
	tried := Answer{What: trial.title, Fits: len(verdict.Nodes) > 0, Nodes: verdict.Nodes}
	for i := range verdict.Results {
		for _, result := range verdict.Results[i].Devices.Results {
			var amounts []string
			for _, name := range slices.Sorted(maps.Keys(result.ConsumedCapacity)) {
				_, short, _ := strings.Cut(string(name), "/")
				amount := result.ConsumedCapacity[name]
				amounts = append(amounts, short+"="+amount.String())
			}
			tried.Devices = append(tried.Devices, givenDevice{
				Claim: trial.claims[i].Name, Request: result.Request, Driver: result.Driver, Pool: result.Pool, Device: result.Device,
				Consumes: strings.Join(amounts, " "),
			})
		}
	}
	for _, r := range verdict.Refusals {
		tried.Refusals = append(tried.Refusals, nodeRefusal(r))
	}
	return tried
}

func (t *Answer) print(out *printer.Printer) {
	if t.Fits {
		out.Good("%s fits on %s", t.What, strings.Join(t.Nodes, ", "))
		rows := [][]string{{"  CLAIM", "REQUEST", "DEVICE", "POOL", "CONSUMES"}}
		for _, d := range t.Devices {
			rows = append(rows, []string{"  " + d.Claim, d.Request, d.Device, d.Pool, cmp.Or(d.Consumes, "-")})
		}
		out.Table(rows)
		t.printRemarks(out)
		return
	}
	if len(t.Refused) > 0 {
		out.Bad("%s gets devices on %s, and the driver refuses to attach them", t.What, strings.Join(t.Nodes, ", "))
		for _, reason := range t.Refused {
			out.Printf("  %s", reason)
		}
		t.printRemarks(out)
		return
	}
	out.Bad("%s does not fit", t.What)
	t.printRemarks(out)
	for _, r := range t.Refusals {
		out.Printf("  %s: %s", r.Node, r.Reason)
		for _, short := range r.Short {
			out.Printf("    %s", short)
		}
		if len(r.Release) > 0 {
			out.Printf("    It fits when %s released: %s", isOrAre(len(r.Release)), strings.Join(r.Release, ", "))
		}
	}
}

// addRemarks adds those that no other claim of the pod has brought.
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

func isOrAre(n int) string {
	if n == 1 {
		return "this claim is"
	}
	return "these claims are"
}
