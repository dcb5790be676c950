package chainrun

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// Options are common to the commands that compile a topology. CNIPath is a list of directories, separated as in $PATH;
// Pod is NAMESPACE/NAME; Netns a path or a name, and a namespace is made for an empty one.
type Options struct {
	manifest.TopologySource
	DeviceOptions
	CNIPath string
	Pod     string
	// Annotations are the pod's, as KEY=VALUE.
	Annotations []string
	Netns       string
	Form        string
}

// parsePod reads --pod and --annotation. The UID is that of the run: plugins that keep something by the pod's UID must
// not find what an earlier run has left.
func (f *Options) parsePod(uid string) (executor.Pod, error) {
	namespace, name, found := strings.Cut(f.Pod, "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return executor.Pod{}, exit.Refusef("--pod %q: say NAMESPACE/NAME", f.Pod)
	}
	pod := executor.Pod{Namespace: namespace, Name: name, UID: uid, Annotations: map[string]string{}}
	for _, annotation := range f.Annotations {
		key, value, found := strings.Cut(annotation, "=")
		if !found || key == "" {
			return executor.Pod{}, exit.Refusef("--annotation %q: say KEY=VALUE", annotation)
		}
		pod.Annotations[key] = value
	}
	return pod, nil
}

// directories reads --cni-path.
func (f *Options) directories() []string { return filepath.SplitList(f.CNIPath) }

// searched are where plugins are looked for: the driver's own need not be in --cni-path.
func (f *Options) searched(deps *osdeps.Deps) []string {
	return append(f.directories(), deps.PluginDirs...)
}

// dirsHelp tells where else plugins are found.
func dirsHelp(deps *osdeps.Deps) string {
	help := "name its directory with --cni-path"
	if len(deps.PluginDirs) > 0 {
		help += "; the driver's own, links to " + nodeapi.HelperName + ", are also found in " +
			strings.Join(deps.PluginDirs, " and ")
	}
	return help
}

// compile makes the plan of a run. It changes nothing and runs plugins only to ask for their versions. All problems are
// in the error, one on each line, as the author corrects them together. Plugins are asked for versions by the CNI verb
// VERSION, which has no effects. With missingLinkTypes it asks the kernel what it makes, which may load modules.
func (f *Options) compile(ctx context.Context, deps *osdeps.Deps, executor *executor.Executor,
	topology *v1alpha1.NetworkTopology, schemas cnichain.Schemas,
	pod executor.Pod, devices []cnichain.RootDevice, missingLinkTypes func([]string) ([]string, error),
) (*cnichain.Plan, error) {
	if topology.Spec.Attachment == v1alpha1.AttachmentExternal {
		return nil, exit.Refusef("topology %s runs no plugins (attachment: External): the network of a pod attaches "+
			"its devices", topology.Name)
	}
	node, err := deps.Hostname()
	if err != nil {
		return nil, err
	}
	binaries, err := executor.Probe(ctx, cnichain.Types(topology))
	if err != nil {
		return nil, err
	}
	missing, err := schemas.KernelLacks(cnichain.Types(topology), missingLinkTypes)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the kernel which types of links it makes: %w", err)
	}
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim: cnichain.Claim{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, Node: node,
		Schemas: schemas, Plugins: binaries, Dirs: f.directories(), DirsHelp: dirsHelp(deps),
		Devices: devices, WithoutClaim: true, KernelLacks: missing,
	})
	if len(problems) == 0 {
		return plan, nil
	}
	lines := make([]string, len(problems))
	for i, problem := range problems {
		lines[i] = problem.Error()
	}
	return nil, exit.Refusef("topology %s cannot be run with these devices:\n  %s%s", topology.Name,
		strings.Join(lines, "\n  "), f.hint(topology))
}

// hint returns the flags that are missing to give every root step a device. A step that was named is not repeated. A
// single root step may be meant by a --device without a name.
func (f *Options) hint(topology *v1alpha1.NetworkTopology) string {
	given := map[string]bool{}
	for i := range f.Devices {
		if step, _, named := strings.Cut(f.Devices[i], "="); named {
			given[step] = true
		}
	}
	var missing []string
	roots := manifest.RootSteps(topology)
	for _, root := range roots {
		if !given[root] && (len(f.Devices) == 0 || len(roots) > 1) {
			missing = append(missing, "--device "+root+"=LINK")
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return "\n  in place of a claim, give " + strings.Join(missing, " ")
}
