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
	"github.com/dra-networking/dra-network-driver/discovery/nodeattributes"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
	"github.com/dra-networking/dra-network-driver/slices/upcoming"
)

// Inputs selects the machine and the policies. Its flags are the same for all commands about offers.
//
// Nil and empty values have different meanings. If Addresses, Labels or Plugins is nil, the flag is not set: the driver
// is queried, or all plugins are assumed to be installed. If Recording is empty, the machine is this machine. If Node
// is empty, the name of the machine, the recording or the driver's node is used.
type Inputs struct {
	Files, Plugins  []string
	Recording, Node string
	// RecordingFlag is the name of the flag for Recording, as used in messages. If it is empty, the name is --from.
	RecordingFlag string
	Labels        map[string]string
	Features      draslices.Features
	Addresses     []netip.Addr
	// Socket is the path of the socket of this node's driver.
	Socket string
	// attributes are the attribute files on this node, as reported by the driver.
	attributes []nodeattributes.File
}

// Snapshot is the state of a machine and the result of applying a set of policies to the machine.
type Snapshot struct {
	Node     policy.Node
	Facts    discovery.Facts
	Features draslices.Features
	Policies []policyapi.DeviceExposurePolicy
	Decision policy.Decision
	Result   draslices.Result
	// Answers contains the driver's answers. It is nil if the driver was not queried; holders are then unknown.
	Answers *nodestate.Answers
	// Devices are the devices published by the driver.
	Devices []nodeclient.Device
	// published contains the entries in Result in the form that they have in ResourceSlices.
	published map[draslices.EntryID]upcoming.Device
}

// Read reads the policies from files. Without files, it reads all inputs from this node's driver; more lists additional
// paths to read from the driver's API. The two sources are never mixed: with files, the result is hypothetical; without
// files, it is the current state.
func (f *Inputs) Read(ctx context.Context, deps osdeps.Deps, streams printer.Streams, more ...string) (*Snapshot,
	error) {
	switch {
	case len(f.Files) > 0:
		return f.readFiles(ctx, deps, streams)
	case f.Recording != "":
		return nil, errors.New("cannot use a recording without policies; pass a file with -f")
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

// Build resolves policies for the machine. It prints a warning if information about the node is missing. Even if the
// driver was queried for that information, Answers stays nil, because the devices that the driver publishes depend on
// other policies.
func (f *Inputs) Build(ctx context.Context, deps osdeps.Deps, policies []policyapi.DeviceExposurePolicy,
	out *printer.Printer) (*Snapshot, error) {
	facts, err := f.readFacts(ctx, deps, out)
	if err != nil {
		return nil, err
	}
	return f.resolve(deps, facts, policies, nil)
}

// readDriver queries this node's driver and discovers the devices on the node. Devices in pods are included with the
// state that they had when their claims were prepared. The facts are discovered rather than read from the driver, so
// netdra must run in the node's network namespace and with the driver's privileges.
func (f *Inputs) readDriver(ctx context.Context, deps osdeps.Deps, more ...string) (*Snapshot, error) {
	paths := append(more, nodeapi.PathState, nodeapi.PathPolicies, nodeapi.PathPublished, nodeapi.PathClaims,
		nodeapi.PathSandboxes)
	answers, err := nodeclient.Read(ctx, nodeclient.New(f.Socket).Get, paths...)
	if err != nil {
		return nil, err
	}
	if f.Addresses != nil { // flags take precedence
		answers.State.Addresses = f.Addresses
	}
	facts, err := deps.Facts(ctx, answers.State.Addresses)
	if err != nil {
		return nil, err
	}
	facts = nodeattributes.Apply(facts, answers.State.AttributeFiles)
	return f.ofDriver(answers).resolve(deps, addPublished(facts, answers.Published), answers.Inputs.Policies, answers)
}

// ofDriver returns a copy of f with the node's name, labels and plugins from the driver's answers. If answers is nil,
// the copy is unchanged.
func (f *Inputs) ofDriver(answers *nodestate.Answers) *Inputs {
	inputs := *f
	if answers != nil {
		inputs.Node, inputs.Labels = answers.Inputs.Node, answers.Inputs.Labels
		if inputs.Plugins == nil {
			inputs.Plugins = answers.State.CNIPlugins
		}
	}
	return &inputs
}

// addPublished adds published devices that cannot be discovered because they are in pods.
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

// resolve applies the policies to the facts in the same way as the driver.
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
		s.Features.UnusableCNIs, s.Devices = answers.State.UnusableCNIs, nodeclient.Devices(answers)
	}
	s.Decision = policy.Resolve(facts, policies, s.Node)
	s.Features.UnusableCNIs = f.findUnusable(deps, s)
	if s.Result, err = draslices.Build(name, s.Decision, s.Features); err != nil {
		return nil, fmt.Errorf("--node: %w", err)
	}
	s.published = map[draslices.EntryID]upcoming.Device{}
	for pool, parts := range upcoming.FromResult(s.Result).Pools {
		for _, slice := range parts {
			for i := range slice.Devices {
				s.published[draslices.EntryID{Pool: pool, Name: slice.Devices[i].Name}] = slice.Devices[i]
			}
		}
	}
	return s, nil
}

// findUnusable returns the CNI plugins that policies use but that cannot work on this machine, with the reason for
// each. The driver has already checked the plugins in its own policies. For other plugins, findUnusable queries the
// kernel in the same way, but without loading modules that are available on the machine. It cannot query the kernel of
// a recorded machine, or the local kernel without root privileges.
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
	maps.Copy(missing, unusable) // the driver also detects modules that exist but cannot be loaded
	return missing
}

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

func (f *Inputs) readFacts(ctx context.Context, deps osdeps.Deps, out *printer.Printer) (discovery.Facts, error) {
	if f.Recording == "" {
		f.findNode(ctx, out)
		facts, err := deps.Facts(ctx, f.Addresses)
		return nodeattributes.Apply(facts, f.attributes), err
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

// driverLimit is the timeout for queries to the driver. The command also works without an answer from the driver.
const driverLimit = 2 * time.Second

// findNode determines the properties of this node that are not set by flags. The most important of these are the node's
// addresses: links with these addresses are infrastructure, which policies never offer.
//
// Flags take precedence over the driver. Without either, the command still works and prints a warning. findNode
// modifies f, so that all later steps use the result.
func (f *Inputs) findNode(ctx context.Context, out *printer.Printer) {
	if f.Addresses != nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, driverLimit)
	defer cancel()
	answers, err := nodeclient.Read(limited, nodeclient.New(f.Socket).Get, nodeapi.PathState, nodeapi.PathPolicies)
	if err != nil {
		out.Warn("the node's addresses are unknown, so links that carry them may be shown as offered: run this on " +
			"the node as root, or set --node-address")
		return
	}
	f.Addresses = answers.State.Addresses
	if f.Node == "" {
		f.Node = answers.Inputs.Node
	}
	if f.Labels == nil {
		f.Labels = answers.Inputs.Labels
	}
	f.Features.UnusableCNIs, f.attributes = answers.State.UnusableCNIs, answers.State.AttributeFiles
	out.Printf("node %s, addresses %v: from the driver", f.Node, f.Addresses)
}

// NodeName returns the name of the node. The default is the host name in lowercase, as for the kubelet.
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

// features returns the features of the cluster and the CNI plugins on the node. If --cni-plugin is not set, it assumes
// that every plugin used by the policies is installed on the node.
func (f *Inputs) features(policies []policyapi.DeviceExposurePolicy) draslices.Features {
	features := f.Features
	schemas := cnichain.DefaultSchemas()
	features.CNIBinaries = sets.New(f.Plugins...)
	features.MovingCNIs, features.StackingCNIs = sets.New(schemas.Moving()...), sets.New(schemas.Stacking()...)
	features.PCIAddressCNIs = sets.New(schemas.ByPCIAddress()...)
	if f.Plugins == nil {
		features.CNIBinaries = pluginsOf(policies)
	}
	return features
}
