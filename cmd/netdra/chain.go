package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

func chainCommand(on machine, to console) *cobra.Command {
	cmd := &cobra.Command{
		Use: "chain", Aliases: []string{"topology"},
		Short: "Try a NetworkTopology: check it, see its plan, run it and undo it",
		Long: `The commands below work on a NetworkTopology in a YAML file, and on links of this machine in place of devices that
Kubernetes would allocate.

Exit status:
  0  all is well
  1  a step failed or the run was interrupted, and everything was undone
  2  nothing was run: wrong usage, an invalid topology, a link that can't be given, an earlier run that is not undone
  3  something could not be undone, or is not as it was before`,
		Example: `  netdra chain validate deploy/samples/topologies.yaml
  netdra chain plan topology.yaml --device uplink=eth1
  sudo netdra chain run topology.yaml --device uplink=eth1 --hold
  sudo netdra chain undo`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(validateCommand(to), graphCommand(to), planCommand(on, to), runCommand(on, to), undoCommand(on, to))
	return cmd
}

// chainFlags are common to the commands that compile a topology.
type chainFlags struct {
	topologySource
	deviceFlags
	cniPath string
	pod     string
	netns   string
	form    string
}

func (f *chainFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	nameFlag(cmd, &f.name)
	flags.StringArrayVarP(&f.devices, "device", "d", nil,
		"STEP=LINK, or LINK where only one step takes a device: the link is an interface name or a PCI address; give one for every root step, and more for further instances of the topology, in order")
	flags.StringArrayVar(&f.shared, "shared", nil,
		"root STEP whose devices stay on the machine and may be used by others (macvlan, vlan...); by default a device is one's own, and must be as before at the end; bridges are always shared, and refused where the plugin would move them")
	flags.BoolVar(&f.force, "force", false, "take also links that carry this machine's traffic: it may be cut off")
	flags.StringVar(&f.netns, "netns", "", "network namespace that stands for the pod: a path, or a name below /var/run/netns (default: one made for the run)")
	flags.StringVar(&f.pod, "pod", "default/netdra", "NAMESPACE/NAME that the plugins are told")
	cniPathFlag(cmd, &f.cniPath)
	schemasFlag(cmd, &f.schemas)
	formFlag(cmd, &f.form)
	completeDevices(cmd)
}

func nameFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", "", "which topology, where the file has several")
}

func schemasFlag(cmd *cobra.Command, schemas *string) {
	cmd.Flags().StringVar(schemas, "schemas", "", "YAML file of CNIPluginSchemas that replace the built-in ones of the same plugins")
}

func cniPathFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "cni-path", cmp.Or(os.Getenv("CNI_PATH"), "/opt/cni/bin"), "directories of CNI plugins, separated by colons, first match wins; $CNI_PATH sets the default")
}

// completeDevices offers the links of the machine.
func completeDevices(cmd *cobra.Command) {
	// The name of a flag that exists is no error.
	_ = cmd.RegisterFlagCompletionFunc("device", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		step := ""
		if before, _, named := strings.Cut(typed, "="); named {
			step = before + "="
		}
		facts, err := readFacts(cmd.Context(), nil)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var offers []string
		for i := range facts.Devices {
			if name := string(facts.Devices[i].Interface); name != "" {
				offers = append(offers, step+name)
			}
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	})
}

// podOf reads --pod.
func podOf(text, uid string) (executor.Pod, error) {
	namespace, name, found := strings.Cut(text, "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return executor.Pod{}, usage("--pod %q: say NAMESPACE/NAME", text)
	}
	return executor.Pod{Namespace: namespace, Name: name, UID: uid}, nil
}

// directories reads --cni-path.
func (f *chainFlags) directories() []string { return filepath.SplitList(f.cniPath) }

// compile makes the plan of a run. It changes nothing and runs plugins only to ask for their versions.
func (f *chainFlags) compile(ctx context.Context, on *machine, executor *executor.Executor, topology *v1alpha1.NetworkTopology, schemas cnichain.Schemas,
	pod executor.Pod, devices []cnichain.RootDevice,
) (*cnichain.Plan, error) {
	node, err := on.hostname()
	if err != nil {
		return nil, err
	}
	binaries, err := executor.Probe(ctx, cnichain.Types(topology))
	if err != nil {
		return nil, err
	}
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim: cnichain.Claim(pod), Node: node,
		Schemas: schemas, Plugins: binaries, Dirs: f.directories(), DirsHelp: "name its directory with --cni-path", Devices: devices,
	})
	if len(problems) == 0 {
		return plan, nil
	}
	lines := make([]string, len(problems))
	for i, problem := range problems {
		lines[i] = problem.Error()
	}
	return nil, usage("topology %s can't be run with these devices:\n  %s%s", topology.Name, strings.Join(lines, "\n  "), f.hint(topology))
}

// hint says with which flags the roots get devices.
func (f *chainFlags) hint(topology *v1alpha1.NetworkTopology) string {
	given := map[string]bool{}
	for i := range f.devices {
		if step, _, named := strings.Cut(f.devices[i], "="); named {
			given[step] = true
		}
	}
	var missing []string
	roots := rootSteps(topology)
	for _, root := range roots {
		if !given[root] && (len(f.devices) == 0 || len(roots) > 1) {
			missing = append(missing, "--device "+root+"=LINK")
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return "\n  in place of a claim, give " + strings.Join(missing, " ")
}
