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

// Options are shared by the commands that compile a topology. CNIPath is a list of directories, separated as in $PATH.
// Pod is NAMESPACE/NAME. Netns is a path or name, or empty to create a namespace.
type Options struct {
	manifest.TopologySource
	DeviceOptions
	CNIPath string
	Pod     string
	// Annotations are the pod's annotations, as KEY=VALUE.
	Annotations []string
	Netns       string
	Form        string
}

// parsePod parses --pod and --annotation. The pod's UID is uid, the ID of the run, so that plugins that store data by
// UID do not find data from an earlier run.
func (f *Options) parsePod(uid string) (executor.Pod, error) {
	namespace, name, found := strings.Cut(f.Pod, "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return executor.Pod{}, exit.Refusef("cannot use --pod %q; use NAMESPACE/NAME", f.Pod)
	}
	pod := executor.Pod{Namespace: namespace, Name: name, UID: uid, Annotations: map[string]string{}}
	for _, annotation := range f.Annotations {
		key, value, found := strings.Cut(annotation, "=")
		if !found || key == "" {
			return executor.Pod{}, exit.Refusef("cannot use --annotation %q; use KEY=VALUE", annotation)
		}
		pod.Annotations[key] = value
	}
	return pod, nil
}

// directories parses --cni-path.
func (f *Options) directories() []string { return filepath.SplitList(f.CNIPath) }

// searched returns the directories that are searched for plugins, including the directories with the driver's own
// plugins.
func (f *Options) searched(deps *osdeps.Deps) []string {
	return append(f.directories(), deps.PluginDirs...)
}

// dirsHelp describes the directories that are searched for plugins.
func dirsHelp(deps *osdeps.Deps) string {
	help := "name its directory with --cni-path"
	if len(deps.PluginDirs) > 0 {
		help += "; the driver's own, links to " + nodeapi.HelperName + ", are also found in " +
			strings.Join(deps.PluginDirs, " and ")
	}
	return help
}

// compile creates the plan for a run. It changes nothing, and only runs plugins with the CNI command VERSION, which has
// no side effects. The error contains all problems, one per line, so that the author can fix them together.
// missingLinkTypes queries the kernel for the link types that it supports, which may load kernel modules.
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
		return nil, fmt.Errorf("cannot determine which types of links the kernel supports: %w", err)
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

// hint returns the flags that are missing for root steps without a device. It omits steps that already have one. If
// there is a single root step, a --device without a step name refers to it.
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
	return "\n  instead of a claim, set " + strings.Join(missing, " ")
}
