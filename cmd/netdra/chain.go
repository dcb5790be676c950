package main

import (
	"cmp"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/chainrun"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/deviceclasses"
)

func chainCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "chain", Aliases: []string{"topology"},
		Short: "Validate, plan, run and undo a topology",
		Long: `Use chain to develop a NetworkTopology without Kubernetes. Its subcommands read a NetworkTopology from
a YAML file. Links of this machine take the place of the devices that Kubernetes would allocate.

Exit status:
  0  success
  1  a step failed or the run was interrupted, and everything was undone
  2  nothing was run: wrong usage, invalid topology, unusable link, or an earlier run that is not undone yet
  3  something could not be undone, or differs from the state before the run`,
		Example: `  netdra chain validate deploy/samples/topologies.yaml
  netdra chain plan topology.yaml --device uplink=eth1
  sudo netdra chain run topology.yaml --device uplink=eth1 --keep
  sudo netdra chain undo`,
		Args: subcommandOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(validateCommand(streams), planCommand(deps, streams), runCommand(deps, streams),
		undoCommand(deps, streams))
	return cmd
}

// addChainFlags adds the flags shared by plan and run.
func addChainFlags(cmd *cobra.Command, f *chainrun.Options) {
	flags := cmd.Flags()
	nameFlag(cmd, &f.Name)
	flags.StringArrayVarP(&f.Devices, "device", "d", nil,
		"STEP=LINK, or LINK if only one step takes a device; LINK is an interface name or a PCI address; repeat the "+
			"flag for each root step, and for further instances of the topology, in order")
	flags.StringArrayVar(&f.Shared, "shared", nil,
		"root STEP whose devices are shared and stay on the machine (macvlan, vlan...); other devices are exclusive "+
			"and must be restored at the end; bridges are always shared, and rejected if the plugin would move them")
	flags.BoolVar(&f.Force, "force", false, "also use links that carry this machine's traffic, which may disconnect it")
	flags.StringVar(&f.Netns, "netns", "",
		"network namespace of the pod: a path, or a name below /var/run/netns (default: created for the run)")
	flags.StringVar(&f.Pod, "pod", "default/netdra", "NAMESPACE/NAME of the pod, as passed to plugins")
	flags.StringArrayVar(&f.Annotations, "annotation", nil,
		"KEY=VALUE, an annotation of the pod, for plugins that only attach networks that pods select; can be "+
			"repeated")
	flags.StringVar(&f.CNIPath, "cni-path", cmp.Or(os.Getenv("CNI_PATH"), "/opt/cni/bin"),
		"directories of CNI plugins, separated by colons; the first match wins; $CNI_PATH sets the default; the "+
			"directories of the driver's own plugins are searched last")
	schemasFlag(cmd, &f.Schemas)
	formFlag(cmd, &f.Form)
}

func validateCommand(streams printer.Streams) *cobra.Command {
	var schemas, name, form string
	cmd := &cobra.Command{
		Use: "validate TOPOLOGY...", Aliases: []string{"lint"},
		Short: "Validate topologies",
		Long: `Use validate while you write a topology, or in CI. It needs no plugins, devices or root permissions.
"-" is stdin.

It prints every problem of the NetworkTopologies and AddressRanges in the files as FILE:LINE: PATH: REASON. It does
the same checks as the controller: unknown fields, names, order and references of steps, configuration, templates, and
the CEL expressions of root steps. CNIPluginSchemas in the same file apply to its topologies. For a valid topology it
prints the DeviceClasses that a claim must request. -o json prints the same data for CI, one entry per object.

Exit status: 0 the topologies and ranges are valid, 2 there is a problem.`,
		Example: `  netdra chain validate deploy/samples/topologies.yaml
  netdra chain validate --schemas my-plugins.yaml topologies/*.yaml
  netdra chain validate topologies/*.yaml -o json | jq '.[] | select(.valid | not)'
  kubectl get ntopo mine -o yaml | netdra chain validate -`,
		Args: countArguments(1, math.MaxInt, "TOPOLOGY", "topology.yaml"),
		RunE: func(_ *cobra.Command, files []string) error {
			known, err := manifest.LoadSchemas(schemas, streams.In)
			if err != nil {
				return err
			}
			results := []validation{}
			for _, file := range files {
				results = append(results, validateFile(streams, file, name, known)...)
			}
			err = printer.Show(streams.Out, form, results, func(out *printer.Printer) {
				for i := range results {
					results[i].print(out)
				}
			})
			if err == nil && slices.ContainsFunc(results, func(v validation) bool { return !v.Valid }) {
				err = exit.Status(exit.Refused)
			}
			return err
		},
	}
	nameFlag(cmd, &name)
	schemasFlag(cmd, &schemas)
	formFlag(cmd, &form)
	return cmd
}

// validation is the result for one object, or for a file that has no readable object.
type validation struct {
	// Location is FILE:LINE for an object, or the file name.
	Location string `json:"location"`
	Kind     string `json:"kind,omitempty"`
	Name     string `json:"name,omitempty"`
	Valid    bool   `json:"valid"`
	// DeviceClasses are the classes that a claim must request devices from.
	DeviceClasses []string `json:"deviceClasses,omitempty"`
	// Problems have the form FILE:LINE: PATH: REASON, each with its own location.
	Problems []string `json:"problems,omitempty"`
	Remarks  []string `json:"remarks,omitempty"`
}

func (v *validation) print(out *printer.Printer) {
	for _, problem := range v.Problems {
		out.Bad("%s", problem)
	}
	switch {
	case !v.Valid:
	case v.Kind == manifest.KindRange:
		out.Good("%s: range %s is valid; use it in addressRange of a step", v.Location, v.Name)
	default:
		out.Good("%s: topology %s is valid; request deviceClassName %s in a claim", v.Location, v.Name,
			strings.Join(v.DeviceClasses, " and "))
	}
	for _, remark := range v.Remarks {
		out.Warn("%s: %s", v.Location, remark)
	}
}

// validateFile returns a result for each topology and range in a file. If name is set, it validates only the topology
// with that name and skips ranges.
func validateFile(streams printer.Streams, file, name string, schemas cnichain.Schemas) []validation {
	documents, err := manifest.Read(file, streams.In)
	isValidated := func(document manifest.Document) bool {
		return document.Kind == manifest.KindTopology || document.Kind == manifest.KindRange
	}
	if err == nil && (name != "" || !slices.ContainsFunc(documents, isValidated)) {
		_, err = manifest.ChooseTopology(file, documents, name)
	}
	if err != nil {
		return []validation{{Location: file, Problems: []string{err.Error()}}}
	}
	var results []validation
	for i := range documents {
		if documents[i].Kind != manifest.KindSchema {
			continue
		}
		schema, err := manifest.ReadSchema(&documents[i])
		if err != nil {
			return []validation{{Location: documents[i].Location(), Problems: []string{err.Error()}}}
		}
		schemas = schemas.With(*schema)
	}
	for i := range documents {
		found := &documents[i]
		switch {
		case found.Kind == manifest.KindRange && name == "":
			_, problems := manifest.ReadRange(found)
			results = append(results, validation{Location: found.Location(), Kind: found.Kind, Name: found.Name,
				Valid: len(problems) == 0, Problems: problems})
		case found.Kind == manifest.KindTopology && (name == "" || found.Name == name):
			results = append(results, validateDocument(found, schemas))
		}
	}
	return results
}

func validateDocument(found *manifest.Document, schemas cnichain.Schemas) validation {
	topology, problems := manifest.ReadTopology(found, schemas)
	result := validation{Location: found.Location(), Kind: found.Kind, Name: found.Name, Valid: len(problems) == 0,
		Problems: problems}
	if result.Valid {
		result.DeviceClasses = manifest.ClassNames(topology)
		result.Remarks = append(cnichain.Remarks(topology, schemas), deviceclasses.Remarks(topology)...)
	}
	return result
}

func planCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &chainrun.Options{}
	cmd := &cobra.Command{
		Use:   "plan TOPOLOGY --device STEP=LINK...",
		Short: "Show the steps of a run",
		Long: `Use plan to see what "chain run" would do. Nothing is changed; plugins are only called for their
versions.

It compiles a topology for links of this machine and prints the steps in order: the plugin and its CNI version, the
interface, whether the step receives the results of earlier steps, and its configuration.
Templates of {{ device }} are rendered; those of other steps, pod, claim and node are rendered when the step runs.
Links that "chain run" rejects without --force, such as the link of the default route, are planned with a remark. So
are plugins that need link types which the kernel does not support; this is only checked as root.`,
		Example: `  netdra chain plan topology.yaml --device uplink=eth1
  netdra chain plan topologies.yaml --name bonded --device a=0000:3b:02.1 --device b=0000:3b:02.2 -o yaml`,
		Args: countArguments(1, 1, "TOPOLOGY", "topology.yaml --device uplink=eth1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.File = args[0]
			return flags.ShowPlan(cmd.Context(), &deps, streams)
		},
	}
	addChainFlags(cmd, flags)
	return cmd
}

func runCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &chainrun.RunOptions{}
	cmd := &cobra.Command{
		Use:   "run TOPOLOGY --device STEP=LINK...",
		Short: "Attach, verify and undo a topology",
		Long: `Use run to try a topology on real links. It does what the driver does for a pod.

It runs the CNI plugins of a NetworkTopology against a network namespace, in order, and verifies that every interface
exists. Then it prints the namespace, undoes everything, and verifies that the links, addresses and routes of the
namespace and of this machine are as before. If a step fails, or on Ctrl-C, it undoes the completed steps immediately.
"netdra chain undo" undoes a run that was killed, or left attached with --keep; no other run can start before that.

A device is exclusive unless it is a bridge or --shared names its step. Exclusive devices must return unchanged; run
restores them if the plugin does not. Links that carry this machine's default route are rejected. So are exclusive
links with addresses or a master, which they would lose in another namespace, and links that the driver of this node
has allocated to claims, unless both uses are shared. --force uses them anyway.

{{ device.<attribute> }} has the values that the driver would publish, without attributes that policies add. The claim
in {{ claim }} has the name of the pod. The selector of a step is validated but not evaluated: you choose the link.

With -o json and -o yaml the progress is written to stderr. --log does not remove secrets.`,
		Example: `  # one step takes a device
  sudo netdra chain run topologies.yaml --name macvlan-tuned --device eth1 --shared uplink

  # move a virtual function, given by its PCI address, to an existing namespace; print the result for a script
  sudo netdra chain run vf.yaml --device vf0=0000:3b:02.1 --netns blue -o json

  # log the input and output of every call, to debug a failing plugin
  sudo netdra chain run topology.yaml --device uplink=eth1 --log

  # leave it attached to inspect the interfaces, and undo it later
  sudo netdra chain run topology.yaml --device uplink=eth1 --keep
  sudo netdra chain undo`,
		Args: countArguments(1, 1, "TOPOLOGY", "topology.yaml --device uplink=eth1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.File = args[0]
			return flags.Run(cmd.Context(), &deps, streams)
		},
	}
	addChainFlags(cmd, &flags.Options)
	addCallFlags(cmd, &flags.CallOptions)
	cmd.Flags().BoolVar(&flags.Keep, "keep", false, "leave the topology attached until \"netdra chain undo\"")
	cmd.Flags().BoolVar(&flags.Check, "check", false,
		"call STATUS before attaching and CHECK while attached, for plugins that support them")
	return cmd
}

func undoCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &chainrun.UndoOptions{}
	cmd := &cobra.Command{
		Use:   "undo",
		Short: "Undo earlier runs",
		Long: `Use undo after a run that was killed, that was kept with --keep, or that could not be undone. You can
call it at any time.

It undoes everything in the journal of "netdra chain run". It first waits until the plugins of a killed run have
ended. Steps that cannot be undone stay in the journal, and no other run can start: fix the error that the plugin
reports and call undo again. --forget retries and, if that fails, removes these steps from the journal: clean up the
printed leftovers manually.

Exit status: 0 everything is undone, 3 something could not be undone.`,
		Example: `  sudo netdra chain undo
  sudo netdra chain undo --log
  sudo netdra chain undo --forget`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), &deps, streams) },
	}
	addCallFlags(cmd, &flags.CallOptions)
	cmd.Flags().BoolVar(&flags.Forget, "forget", false,
		"remove steps that cannot be undone from the journal; their leftovers stay on this machine")
	return cmd
}
