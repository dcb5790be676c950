package chainrun

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// PlannedChain is the output of "chain plan".
type PlannedChain struct {
	Topology      string   `json:"topology"`
	DeviceClasses []string `json:"deviceClasses"`
	// RunRefuses describes the links that "chain run" would reject without --force, and the plugins that cannot work on
	// the machine.
	RunRefuses []string      `json:"runRefuses,omitempty"`
	Steps      []plannedStep `json:"steps"`
}

type plannedStep struct {
	Name     string   `json:"name"`
	Instance int      `json:"instance"`
	Type     string   `json:"type"`
	After    []string `json:"after,omitempty"`
	Plugin   string   `json:"plugin"`
	// CNIVersion is the CNI version of the configuration that the plugin receives.
	CNIVersion string `json:"cniVersion"`
	Network    string `json:"network"`
	// Interface is empty if the name depends on earlier steps.
	Interface string `json:"interface,omitempty"`
	// Makes is true if the plugin creates the interface, and false if it modifies the interface.
	Makes      bool            `json:"makes"`
	PrevResult bool            `json:"prevResult"`
	Device     string          `json:"device,omitempty"`
	Exclusive  bool            `json:"exclusive,omitempty"`
	Config     json.RawMessage `json:"config"`
}

// ShowPlan prints the plan for a run.
func (f *Options) ShowPlan(ctx context.Context, deps *osdeps.Deps, streams printer.Streams) error {
	shown, err := f.plan(ctx, deps, streams)
	if err != nil {
		return err
	}
	return printer.Show(streams.Out, f.Form, shown, shown.print)
}

// plan compiles the topology for the given links in the same way as the driver does for allocated devices.
func (f *Options) plan(ctx context.Context, deps *osdeps.Deps, streams printer.Streams) (*PlannedChain, error) {
	topology, schemas, err := f.Load(streams.In)
	if err != nil {
		return nil, err
	}
	pod, err := f.parsePod("netdra")
	if err != nil {
		return nil, err
	}
	// If a namespace is given, interface names depend on the links that already exist in it, as in a run.
	var taken []cnichain.Link
	if f.Netns != "" {
		path, err := findNamespace(deps, f.Netns)
		if err != nil {
			return nil, err
		}
		if taken, err = deps.Host.Links(path); err != nil {
			return nil, err
		}
	}
	devices, losses, err := bindDevices(ctx, deps, topology, schemas, &f.DeviceOptions)
	if err != nil {
		return nil, err
	}
	runner := executor.New(executor.Options{Exec: deps.Plugins(""), Host: deps.Host, Dirs: f.searched(deps)})
	plan, err := f.compile(ctx, deps, runner, topology, schemas, pod, devices, nil)
	if err != nil {
		return nil, err
	}
	named := executor.NewAttachment("netdra", pod, []cnichain.Plan{*plan})
	if err := executor.AssignNames(named, taken); err != nil {
		return nil, err
	}
	chain, err := describePlan(topology, named)
	if err != nil {
		return nil, err
	}
	for _, loss := range losses {
		chain.RunRefuses = append(chain.RunRefuses, loss.Error())
	}
	lacking, err := kernelLacks(deps, topology, schemas)
	if err != nil {
		return nil, err
	}
	chain.RunRefuses = append(chain.RunRefuses, lacking...)
	return chain, nil
}

// kernelLacks returns messages about plugins that cannot work on the machine. Without root privileges, it returns none.
func kernelLacks(deps *osdeps.Deps, topology *v1alpha1.NetworkTopology, schemas cnichain.Schemas) ([]string, error) {
	missing, err := schemas.KernelLacks(cnichain.Types(topology), deps.UnavailableLinkTypes)
	if err != nil {
		return nil, nil //nolint:nilerr // see above
	}
	node, err := deps.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot determine the name of this machine: %w", err)
	}
	var texts []string
	for _, cniType := range slices.Sorted(maps.Keys(missing)) {
		texts = append(texts, fmt.Sprintf("CNI plugin %s cannot work on node %s: %s", cniType, node, missing[cniType]))
	}
	return texts, nil
}

// describePlan describes an attachment whose interfaces have been named but whose steps have not run. Steps for
// additional topology instances come after the steps for the first instance, in the same order.
func describePlan(topology *v1alpha1.NetworkTopology, named *executor.Attachment) (*PlannedChain, error) {
	chain := &PlannedChain{Topology: topology.Name, DeviceClasses: manifest.ClassNames(topology)}
	for i := range named.Steps {
		record := &named.Steps[i]
		step := &record.Step
		config, err := cnichain.Preview(step)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", record.Title(), err)
		}
		planned := plannedStep{
			Name: step.Name, Instance: step.Instance, Type: step.Type, Plugin: step.Path, CNIVersion: step.CNIVersion,
			Network: step.Network, Interface: record.IfName, Makes: step.Makes, PrevResult: step.PrevResult,
			Config: config,
		}
		for _, parent := range step.DependsOn {
			planned.After = append(planned.After, named.Steps[parent].Step.Name)
		}
		if step.Device != nil {
			planned.Device, planned.Exclusive = step.Device.Name, step.Device.Exclusive
		}
		chain.Steps = append(chain.Steps, planned)
	}
	return chain, nil
}

func (c *PlannedChain) print(out *printer.Printer) {
	out.Printf("Topology %s; a claim requests deviceClassName %s", c.Topology, strings.Join(c.DeviceClasses, " and "))
	for _, reason := range c.RunRefuses {
		out.Warn("chain run rejects this: %s", reason)
	}
	for i := range c.Steps {
		c.Steps[i].print(out, i+1)
	}
}

func (s *plannedStep) print(out *printer.Printer, number int) {
	out.Printf("\n%d. %s (%s)", number, printer.StepTitle(s.Name, s.Instance), s.Type)
	out.Printf("   plugin      %s, called with CNI %s", s.Plugin, s.CNIVersion)
	if s.Device != "" {
		use := "shared: it stays on the machine"
		if s.Exclusive {
			use = "exclusive: it must be unchanged at the end"
		}
		out.Printf("   device      %s, %s", s.Device, use)
	}
	if len(s.After) > 0 {
		out.Printf("   after       %s", strings.Join(s.After, ", "))
	}
	verb := "works on"
	if s.Makes {
		verb = "makes"
	}
	out.Printf("   interface   %s %s", verb, cmp.Or(s.Interface, "one that is named when the step runs"))
	out.Printf("   network     %s", s.Network)
	previous := "no"
	if s.PrevResult {
		previous = "yes, the results of " + strings.Join(s.After, ", ")
	}
	out.Printf("   prevResult  %s", previous)
	config, err := yaml.JSONToYAML(s.Config)
	if err != nil {
		config = s.Config
	}
	out.Printf("   config\n%s", printer.Indent(string(config), 5))
}

// Options are the options shared by the commands that compile a topology. CNIPath is a list of directories with the
// same separator as $PATH. Pod has the form NAMESPACE/NAME. Netns is a path or name; if it is empty, a namespace is
// created.
type Options struct {
	manifest.TopologySource
	DeviceOptions
	CNIPath string
	Pod     string
	// Annotations are the pod's annotations in the form KEY=VALUE.
	Annotations []string
	Netns       string
	Form        string
}

// parsePod parses --pod and --annotation. It uses uid, which is the ID of the run, as the UID of the pod, so that
// plugins that store data by UID do not find data from an earlier run.
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

func (f *Options) directories() []string { return filepath.SplitList(f.CNIPath) }

// searched returns the directories in which plugins are searched. The driver's own directories come last.
func (f *Options) searched(deps *osdeps.Deps) []string {
	return append(f.directories(), deps.PluginDirs...)
}

func dirsHelp(deps *osdeps.Deps) string {
	help := "name its directory with --cni-path"
	if len(deps.PluginDirs) > 0 {
		help += "; the driver's own, links to " + nodeapi.HelperName + ", are also found in " +
			strings.Join(deps.PluginDirs, " and ")
	}
	return help
}

// compile creates the plan for a run. It changes nothing and calls plugins only with the CNI command VERSION, which has
// no side effects. The error contains all problems, one per line, so that the author can fix them together.
// missingLinkTypes queries the kernel for link types that it does not support, and may load kernel modules.
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

// hint returns the flags to add for root steps without a device.
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
