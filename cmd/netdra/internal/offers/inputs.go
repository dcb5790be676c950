package offers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// Inputs selects the machine and the policies: the flags that all commands about offers share.
//
// Nil and empty differ: nil Addresses, Labels and Plugins mean that the flag was not given, so that the driver, or the
// cluster, is asked, or every plugin is taken to be there. An empty Recording is this machine, and an empty Node the
// name that the machine, the recording or the driver has.
type Inputs struct {
	Files, Plugins  []string
	Recording, Node string
	// RecordingFlag names the Recording in messages; --from if it is empty.
	RecordingFlag string
	Labels        map[string]string
	Features      draslices.Features
	Addresses     []netip.Addr
	// Socket is where the driver of this node answers; Kubeconfig is for nodes where it does not run.
	Socket, Kubeconfig string
}

// Snapshot is a machine, and what some policies make of it.
type Snapshot struct {
	Node     policy.Node
	Facts    discovery.Facts
	Features draslices.Features
	Policies []policyapi.DeviceExposurePolicy
	Decision policy.Decision
	Result   draslices.Result
	// Answers are the driver's; nil if it was not asked, so that holders are unknown.
	Answers *nodestate.Answers
}

// Read takes the policies from files; without any it takes everything that it can from the driver of this node. More
// are further paths of its socket. The two sources are never mixed: with files the answer is what would be, without
// them what is.
func (f *Inputs) Read(ctx context.Context, deps osdeps.Deps, streams printer.Streams, more ...string) (*Snapshot,
	error) {
	switch {
	case len(f.Files) > 0:
		return f.readFiles(ctx, deps, streams)
	case f.Recording != "":
		return nil, errors.New("a recording needs policies; give a file of them with -f")
	}
	return f.readDriver(ctx, deps, more...)
}

func (f *Inputs) readFiles(ctx context.Context, deps osdeps.Deps, streams printer.Streams) (*Snapshot, error) {
	policies, err := manifest.ReadPolicies(f.Files, streams.In)
	if err != nil {
		return nil, err
	}
	s, err := f.Build(ctx, deps, policies, printer.New(streams.Err))
	if err == nil {
		s.Decision.Problems = append(manifest.TypeMismatches(policies), s.Decision.Problems...)
	}
	return s, err
}

// Build resolves policies for the machine. What it could not learn about the node is printed as a warning. Answers
// stays nil, also if the driver was asked about the node: what it publishes is of other policies.
func (f *Inputs) Build(ctx context.Context, deps osdeps.Deps, policies []policyapi.DeviceExposurePolicy,
	out *printer.Printer) (*Snapshot, error) {
	facts, err := f.readFacts(ctx, deps, out)
	if err != nil {
		return nil, err
	}
	return f.resolve(deps, facts, policies, nil)
}

// readDriver asks the driver of this node, and reads the devices that are on the node itself. Devices in pods are as
// they were when their claims were prepared. The facts are read anew, and not the driver's: netdra must run in the
// node's network namespace, with the rights to read what the driver reads.
func (f *Inputs) readDriver(ctx context.Context, deps osdeps.Deps, more ...string) (*Snapshot, error) {
	paths := append(more, nodeapi.PathState, nodeapi.PathPolicies, nodeapi.PathPublished, nodeapi.PathClaims,
		nodeapi.PathSandboxes)
	answers, err := nodeclient.Read(ctx, nodeclient.New(f.Socket).Get, paths...)
	if err != nil {
		return nil, err
	}
	if f.Addresses != nil { // what the user says wins
		answers.State.Addresses = f.Addresses
	}
	facts, err := deps.Facts(ctx, answers.State.Addresses)
	if err != nil {
		return nil, err
	}
	asked := *f // a page that is served is made again, from new answers
	asked.Node, asked.Labels = answers.Inputs.Node, answers.Inputs.Labels
	if asked.Plugins == nil {
		asked.Plugins = answers.State.CNIPlugins
	}
	return asked.resolve(deps, addPublished(facts, answers.Published), answers.Inputs.Policies, answers)
}

// addPublished adds devices that the driver publishes and that are not on the node itself now. Devices in pods are not
// in the node's namespace, so discovery cannot see them.
func addPublished(facts discovery.Facts, published []draslices.Entry) discovery.Facts {
	known := map[discovery.IfName]bool{}
	for i := range facts.Devices {
		known[facts.Devices[i].Name] = true
	}
	for i := range published {
		if device := published[i].Device; !known[device.Name] {
			facts = facts.With(device)
		}
	}
	return facts
}

// resolve computes what the policies make of the facts, as the driver does.
func (f *Inputs) resolve(
	deps osdeps.Deps, facts discovery.Facts, policies []policyapi.DeviceExposurePolicy, answers *nodestate.Answers,
) (*Snapshot, error) {
	name, err := f.NodeName(deps)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{
		Node: policy.Node{Name: name,
			Labels: f.Labels}, Facts: facts, Features: f.features(policies), Policies: policies, Answers: answers,
	}
	if answers != nil {
		s.Features.UnusableCNIs = answers.State.UnusableCNIs
	}
	s.Decision = policy.Resolve(facts, policies, s.Node)
	s.Features.UnusableCNIs = f.findUnusable(deps, s)
	if s.Result, err = draslices.Build(name, s.Decision, s.Features); err != nil {
		return nil, fmt.Errorf("--node: %w", err)
	}
	return s, nil
}

// findUnusable returns why CNI plugins of policies can't work on this machine. The driver has looked at those of the
// policies that it knows; for others the kernel is asked as the driver would, but no module that can be seen is loaded.
// Nothing is known of the kernel of a recorded machine, nor without root.
func (f *Inputs) findUnusable(deps osdeps.Deps, s *Snapshot) map[string]string {
	unusable := maps.Clone(s.Features.UnusableCNIs)
	if f.Recording != "" {
		return unusable
	}
	named := sets.New[string]()
	for i := range s.Decision.Devices {
		for j := range s.Decision.Devices[i].Personas {
			named.Insert(s.Decision.Devices[i].Personas[j].Plugins...)
		}
	}
	if s.Answers != nil {
		named = named.Difference(pluginsOf(s.Answers.Inputs.Policies))
	}
	unjudged := sets.List(named.Intersection(s.Features.CNIBinaries))
	missing, err := cnichain.DefaultSchemas().KernelLacks(unjudged, deps.UnavailableLinkTypes)
	if err != nil || len(missing) == 0 {
		return unusable
	}
	maps.Copy(missing, unusable) // the driver knows more: modules that are there and cannot be loaded
	return missing
}

// pluginsOf returns the CNI plugins that policies name.
func pluginsOf(policies []policyapi.DeviceExposurePolicy) sets.Set[string] {
	plugins := sets.New[string]()
	for i := range policies {
		if e := policies[i].Spec.Exposure; e != nil {
			for _, plugin := range e.SupportedCNIPlugins {
				plugins.Insert(plugin.Name)
			}
		}
	}
	return plugins
}

// readFacts discovers this machine's devices, or those of the recording.
func (f *Inputs) readFacts(ctx context.Context, deps osdeps.Deps, out *printer.Printer) (discovery.Facts, error) {
	if f.Recording == "" {
		if err := f.findNode(ctx, deps, out); err != nil {
			return discovery.Facts{}, err
		}
		return deps.Facts(ctx, f.Addresses)
	}
	recording, err := openRecording(cmp.Or(f.RecordingFlag, "--from"), f.Recording)
	if err != nil {
		return discovery.Facts{}, err
	}
	sources, err := recording.Sources()
	if err != nil {
		return discovery.Facts{}, fmt.Errorf("cannot use the recording: %w", err)
	}
	return discovery.Read(ctx, sources)
}

// driverLimit is how long the driver may take to answer: without it the command still works.
const driverLimit = 2 * time.Second

// findNode finds out what the driver knows of this node and flags do not say: links that carry the node's addresses are
// its infrastructure, which policies never offer. The driver is asked first, then the cluster if a kubeconfig is given.
//
// Flags win, then the driver, then the Node object; without any of them the command works and says what may be wrong.
// It changes f: what was found is used for all that follows.
func (f *Inputs) findNode(ctx context.Context, deps osdeps.Deps, out *printer.Printer) error {
	if f.Addresses != nil {
		return nil
	}
	source := "the driver"
	limited, cancel := context.WithTimeout(ctx, driverLimit)
	defer cancel()
	answers, err := nodeclient.Read(limited, nodeclient.New(f.Socket).Get, nodeapi.PathState, nodeapi.PathPolicies)
	if err != nil {
		if f.Kubeconfig == "" {
			out.Warn("the node's addresses are not known, so links that carry them may look as if they were offered: " +
				"run this on the node as root, or give --node-address or --kubeconfig")
			return nil
		}
		source = "the cluster"
		if answers, err = f.askCluster(ctx, deps); err != nil {
			return err
		}
	}
	f.Addresses = answers.State.Addresses
	if f.Node == "" {
		f.Node = answers.Inputs.Node
	}
	if f.Labels == nil {
		f.Labels = answers.Inputs.Labels
	}
	f.Features.UnusableCNIs = answers.State.UnusableCNIs
	out.Printf("node %s, addresses %v: from %s", f.Node, f.Addresses, source)
	return nil
}

// NodeName is the name as kubelet would have it. Kubelet takes the host's name in lower case unless it is told another.
func (f *Inputs) NodeName(deps osdeps.Deps) (string, error) {
	switch {
	case f.Node != "":
		return f.Node, nil
	case f.Recording != "":
		dir, err := filepath.Abs(f.Recording)
		return filepath.Base(dir), err
	}
	name, err := deps.Hostname()
	return strings.ToLower(name), err
}

// features returns those of the cluster, with the CNI plugins of the node. Without --cni-plugin the node is taken to
// have every plugin that a policy names.
func (f *Inputs) features(policies []policyapi.DeviceExposurePolicy) draslices.Features {
	features := f.Features
	features.CNIBinaries, features.MovingCNIs = sets.New(f.Plugins...), sets.New(cnichain.DefaultSchemas().Moving()...)
	if f.Plugins == nil {
		features.CNIBinaries = pluginsOf(policies)
	}
	return features
}
