package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/simulate"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// simulateFlags are the flags of "simulate".
type simulateFlags struct {
	files, machines    []string
	cluster            bool
	pods               []string // of the cluster, as namespace/name
	kubeconfig, output string
	features           draslices.Features
}

func simulateCommand(on machine, to console) *cobra.Command {
	flags := &simulateFlags{}
	cmd := &cobra.Command{
		Use:   "simulate -f FILE...",
		Short: "Say whether claims would be given their devices, where, and if not, what is in the way",
		Long: `simulate runs the scheduler's own allocator. It changes nothing.

Files may hold
  ResourceClaim, ResourceClaimTemplate, Pod         what is tried, in this order of files and documents; what fits takes its devices,
                                                    so that it counts for what comes after it. Claims and templates that pods name are
                                                    tried with them. A ResourceClaim with an allocation in its status holds that from
                                                    the beginning.
  DeviceExposurePolicy, NetworkTopology             what machines publish, and the DeviceClasses that the controller would make
  CNIPluginSchema, Namespace                        what topologies are judged by, and the labels that their allowedNamespaces want
  DeviceClass, ResourceSlice                        those of other drivers, for example
Other kinds are left out.

The machines are those that "netdra facts" has recorded in the directories of --machines, each a node of the directory's name, or this
machine; with --cluster the nodes, ResourceSlices, DeviceClasses and claims are those of a cluster, which is only read.

A refusal names claims that are in the way: without them the new ones fit, and with any one of them they don't. There may be others
in their place.

Of nodes nothing counts but their devices: whether the pod fits there otherwise, the scheduler decides.

Exit status: 0 everything fits, 1 something does not, 2 it can't be said.`,
		Example: `  # before anything is applied, for recorded machines
  netdra simulate -f policies.yaml -f topologies.yaml -f pods.yaml --machines worker-1,worker-2

  # would this pod fit into the cluster?
  netdra simulate -f pod.yaml --cluster

  # why is this one pending?
  netdra simulate --pod default/my-pod`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd.Context(), on, to) },
	}
	set := cmd.Flags()
	set.StringArrayVarP(&flags.files, "filename", "f", nil, `YAML file of what is tried and of what it needs, or "-" for stdin`)
	set.StringSliceVar(&flags.machines, "machines", nil, `directories with recordings of "netdra facts", separated by commas, in place of this machine`)
	set.BoolVar(&flags.cluster, "cluster", false, "take nodes, slices, classes and claims of the cluster")
	set.StringArrayVar(&flags.pods, "pod", nil, "try a pod of the cluster, NAMESPACE/NAME, with those of its claims that have no devices yet")
	set.StringVar(&flags.kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster (default: $KUBECONFIG, ~/.kube/config)")
	set.BoolVar(&flags.features.ListAttributes, "list-attributes", false, "for a cluster with the feature DRAListTypeAttributes")
	set.BoolVar(&flags.features.CompatibilityGroups, "compatibility-groups", false, "for a cluster with the feature DRADeviceCompatibilityGroups")
	formFlag(cmd, &flags.output)
	cmd.MarkFlagsMutuallyExclusive("cluster", "machines")
	cmd.MarkFlagsMutuallyExclusive("pod", "machines")
	return cmd
}

func (f *simulateFlags) run(ctx context.Context, on machine, to console) error {
	if err := checkForm(f.output); err != nil {
		return err
	}
	wanted, err := readWanted(f.files, to.in)
	if err != nil {
		return err
	}
	cluster, err := f.clusterOf(ctx, on, newPrinter(to.err), wanted)
	if err != nil {
		return err
	}
	if len(wanted.trials) == 0 {
		return usage("there is nothing to try: give a file with a ResourceClaim, a ResourceClaimTemplate or a Pod with -f, or a pod of the cluster with --pod")
	}
	simulator := simulate.New(*cluster)
	tried := []triedClaims{}
	fits := true
	for _, trial := range wanted.trials {
		verdict, err := simulator.Try(ctx, trial.claims...)
		if err != nil {
			return fmt.Errorf("%s: %w", trial.title, err)
		}
		result := triedOf(&trial, &verdict)
		result.addDriverChecks(wanted, &trial, verdict.Results, cluster.Classes)
		if result.Fits {
			simulator.Take(trial.claims, verdict.Results)
		}
		fits = fits && result.Fits
		tried = append(tried, result)
	}
	if f.output != formText {
		err = printResult(to.out, f.output, tried)
	} else {
		out := newPrinter(to.out)
		for i := range tried {
			tried[i].print(out)
		}
	}
	if err == nil && !fits {
		err = &exitError{code: exitFailed, err: errShown}
	}
	return err
}

// clusterOf is what the allocator sees.
func (f *simulateFlags) clusterOf(ctx context.Context, on machine, warn *printer, wanted *wanted) (*simulate.Cluster, error) {
	cluster := &simulate.Cluster{Classes: wanted.classes(f.features.ListAttributes), Slices: wanted.slices, Claims: wanted.holding,
		ListAttributes: f.features.ListAttributes, CompatibilityGroups: f.features.CompatibilityGroups}
	if f.cluster || len(f.pods) > 0 {
		live, err := connect(f.kubeconfig)
		if err != nil {
			return nil, err
		}
		return cluster, errors.Join(live.add(ctx, cluster), live.addPods(ctx, wanted, f.pods))
	}
	machines := f.machines
	if len(machines) == 0 && len(wanted.policies) > 0 {
		machines = []string{""}
	}
	for _, problem := range mismatches(wanted.policies) {
		warn.warn("%s", problem)
	}
	var idle []string
	for _, dir := range machines {
		of := preview{from: dir, features: f.features}
		facts, err := of.facts(ctx)
		if err != nil {
			return nil, fmt.Errorf("machine %s: %w", filepath.Base(dir), err)
		}
		if err := of.complete(on, wanted.policies); err != nil {
			return nil, err
		}
		of.labels = map[string]string{"kubernetes.io/hostname": of.node}
		decision := policy.Resolve(facts, wanted.policies, policy.Node{Name: of.node, Labels: of.labels})
		result, err := draslices.Build(of.node, decision, of.features)
		if err != nil {
			return nil, err
		}
		for _, problem := range append(decision.Problems, result.Problems...) {
			warn.warn("%s: %s", of.node, problem)
		}
		cluster.Slices = append(cluster.Slices, resourceSlices(of.node, &result)...)
		if len(result.Entries) == 0 {
			idle = append(idle, exposesNothing(&of, wanted.policies))
		}
	}
	cluster.Nodes = simulate.NodesOf(cluster.Slices)
	if len(cluster.Nodes) == 0 && len(wanted.policies) > 0 {
		return nil, fmt.Errorf("no node publishes a device:\n  %s", strings.Join(idle, "\n  "))
	}
	if len(cluster.Nodes) == 0 {
		return nil, errors.New("no node publishes a device: give policies with -f, and recordings with --machines, or use --cluster")
	}
	return cluster, nil
}

// exposesNothing says of a machine that policies expose none of its devices, and how to find out why.
func exposesNothing(of *preview, policies []policyapi.DeviceExposurePolicy) string {
	var names []string
	for i := range policies {
		if policies[i].Spec.Action != policyapi.ActionExclude {
			names = append(names, policies[i].Name)
		}
	}
	command := "netdra slices -f FILE"
	if of.from != "" {
		command += " --from " + of.from
	}
	if len(names) == 0 {
		return fmt.Sprintf("no policy exposes devices of %s, they only exclude", of.node)
	}
	return fmt.Sprintf("of the devices of %s none is exposed by policy %s: %s says why", of.node, strings.Join(names, ", "), command)
}

// triedClaims is what became of a pod or a claim.
type triedClaims struct {
	What string `json:"what"`
	Fits bool   `json:"fits"`
	// Nodes are those on which it fits.
	Nodes    []string        `json:"nodes,omitempty"`
	Devices  []givenDevice   `json:"devices,omitempty"`
	Refusals []triedAndNoUse `json:"refusals,omitempty"`
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

type triedAndNoUse struct {
	Node    string   `json:"node"`
	Reason  string   `json:"reason"`
	Release []string `json:"release,omitempty"`
	Short   []string `json:"short,omitempty"`
}

func triedOf(trial *trial, verdict *simulate.Verdict) triedClaims {
	tried := triedClaims{What: trial.title, Fits: len(verdict.Nodes) > 0, Nodes: verdict.Nodes}
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
		tried.Refusals = append(tried.Refusals, triedAndNoUse{Node: r.Node, Reason: r.Reason, Release: r.Release, Short: r.Short})
	}
	return tried
}

func (t *triedClaims) print(out *printer) {
	if t.Fits {
		out.good("%s fits on %s", t.What, strings.Join(t.Nodes, ", "))
		rows := [][]string{{"  CLAIM", "REQUEST", "DEVICE", "POOL", "CONSUMES"}}
		for _, d := range t.Devices {
			rows = append(rows, []string{"  " + d.Claim, d.Request, d.Device, d.Pool, orDefault(d.Consumes, "-")})
		}
		out.table(rows)
		t.printRemarks(out)
		return
	}
	if len(t.Refused) > 0 {
		out.bad("%s gets devices on %s, and the driver refuses to attach them", t.What, strings.Join(t.Nodes, ", "))
		for _, reason := range t.Refused {
			out.say("  %s", reason)
		}
		t.printRemarks(out)
		return
	}
	out.bad("%s does not fit", t.What)
	t.printRemarks(out)
	for _, r := range t.Refusals {
		out.say("  %s: %s", r.Node, r.Reason)
		for _, short := range r.Short {
			out.say("    %s", short)
		}
		if len(r.Release) > 0 {
			out.say("    It fits when %s released: %s", isOrAre(len(r.Release)), strings.Join(r.Release, ", "))
		}
	}
}

// addRemarks adds those that no other claim of the pod has brought.
func (t *triedClaims) addRemarks(remarks []string) {
	for _, remark := range remarks {
		if !slices.Contains(t.Remarks, remark) {
			t.Remarks = append(t.Remarks, remark)
		}
	}
}

func (t *triedClaims) printRemarks(out *printer) {
	for _, remark := range t.Remarks {
		out.warn("%s", remark)
	}
}

func isOrAre(n int) string {
	if n == 1 {
		return "this claim is"
	}
	return "these claims are"
}
