package main

import (
	"context"
	"math"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/clusterwide"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

func factsCommand(streams printer.Streams) *cobra.Command {
	flags := &offers.FactsOptions{}
	cmd := &cobra.Command{
		Use:   "facts",
		Short: "Show discovered network devices",
		Long: `Use facts to see a machine's network devices as the driver discovers them, before any policy applies,
or to record a machine for a bug report. It is read-only and does not need root. In a network namespace it needs a
sysfs that was mounted there, as "ip netns exec" does.

It lists physical and virtual functions, bridges, bonds, VLANs and all other links except the loopback. Columns: IF is
the interface, if the device has one here; PF and VF are the physical function and index of a virtual function; VFS is
the number of virtual functions, existing and possible; SPEED is in Mbit/s. Lines with an exclamation mark are
problems: data that is unreadable or inconsistent.

With --record the facts are also written to a directory, as two files that --from reads on any machine. The recording
contains no IP addresses, routes or serial numbers. Each MAC address is replaced consistently by a random one, also in
interface names that contain it (enx0242ac110002). The link addresses of tunnels, which are IP addresses, are replaced
in the same way. --with-addresses keeps all of these. Links that are in pods are not on the host and not part of the
recording.

Exit status: 0 the devices are shown, 2 the machine, or a file, cannot be read.`,
		Example: `  netdra facts
  netdra facts -o json | jq '.devices[] | select(.type == "pf")'
  netdra facts --record worker-1
  netdra facts --from worker-1 -o yaml`,
		Args: noArguments("to show one device, run netdra explain {}"),
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), streams) },
	}
	set := cmd.Flags()
	set.StringVar(&flags.Record, "record", "", "directory to record the machine in; created if it does not exist")
	set.StringVar(&flags.Recording, "from", "", "directory of a recording, instead of this machine")
	set.BoolVar(&flags.WithAddresses, "with-addresses", false,
		"with --record: keep MAC addresses and hardware switch IDs")
	cmd.MarkFlagsMutuallyExclusive("from", "record")
	cmd.MarkFlagsMutuallyExclusive("from", "with-addresses") // a recording may have no addresses
	for _, name := range []string{"record", "from"} {
		_ = cmd.MarkFlagDirname(name) // the flag exists
	}
	formFlag(cmd, &flags.Form)
	return cmd
}

func slicesCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &offers.SlicesOptions{}
	cmd := &cobra.Command{
		Use:   "slices",
		Short: "Show the ResourceSlices of a machine",
		Long: `Use slices to see what policies would publish before you apply them. It changes nothing.

It prints the ResourceSlices that the driver would publish for the DeviceExposurePolicies in files, on this machine or
on one that was recorded with "netdra facts". Problems, and every hidden device with the reason, are written to
stderr. All devices count as free. The addresses and labels of this machine come from the driver if it answers, or
from flags; the output names the source.

Columns of the text form: POOL is the pool of the device; USE is shared or exclusive; CAPACITY is divided among
claims, with the default amount per claim after a slash; CONSUMES is the amount of the pool's shared counters that the
device consumes while it is in use, with its compatibility groups in brackets.

With --template it prints the slices of any node like this one, for autoscalers and capacity planning: NODE replaces
the name of the node, and attributes of a single machine, such as the MAC address, are omitted. Nodes with the same
hardware, configuration and labels have the same template.

Forms of the slices:
  counters  as the driver publishes them
  kep5941   claims choose the bandwidth of a virtual function (DRA Shared Consumable Capacity)
  mixins    common parts of devices are written once (DRA ResourceSlice Mixins)
kep5941 and mixins are not supported by any API server yet.

Exit status: 0 the slices are shown, 2 the machine, or a file, cannot be read.`,
		Example: `  netdra slices -f policies.yaml -o text
  netdra slices -f policies.yaml | kubectl create --dry-run=server -f -
  netdra slices -f policies.yaml --from worker-1 --cni-plugin sriov --cni-plugin macvlan
  netdra slices -f policies.yaml -o json | jq '.items[].spec | select(.pool.name == "worker-1/eth0")'
  netdra slices -f policies.yaml --form mixins
  netdra slices -f policies.yaml --from worker-1 --template`,
		Args: noArguments("to show one device, run netdra explain {}"),
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), deps, streams) },
	}
	set := cmd.Flags()
	addInputFlags(cmd, &flags.Inputs)
	set.StringVar(&flags.Form, "form", offers.SlicesCounters, "form of the slices: counters, kep5941 or mixins")
	set.BoolVar(&flags.Template, "template", false, "print the slices of any node of this kind")
	manifestFlag(cmd, &flags.Output)
	// The only possible error is that the flag does not exist.
	_ = cmd.RegisterFlagCompletionFunc("form", cobra.FixedCompletions(offers.SliceForms(),
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func explainCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &offers.ExplainOptions{}
	cmd := &cobra.Command{
		Use:   "explain DEVICE",
		Short: "Explain why a device is offered or hidden",
		Long: `Use explain when a device is missing from the ResourceSlices, or is not offered as you expect.

It prints the names under which the device is published, the shared resources of its pool that each of them consumes,
the attributes that policies add, with the source of each or the reason why the device lacks it, the outcome of every
DeviceExposurePolicy with its reason, and the claims that hold the device. DEVICE is an interface name, a PCI address,
or a published name.

Without -f it uses the data of this node's driver. With -f it uses the policies in files, for this machine or for a
recording made with "netdra facts", and does not show which claims hold the device. The addresses and labels of this
machine then come from the driver if it answers, or from flags; the output names the source.

Exit status: 0 the device is offered, 1 it is not offered, is gone, or none of its CNI plugins works on the node, 2
there is no such device, or the policies cannot be read.`,
		Example: `  # on a node, as root
  sudo netdra explain eth0

  # before policies are applied, for a recorded machine
  netdra explain 0000:03:00.2 -f policies.yaml --from worker-1
  netdra explain eth0-macvlan -f policies.yaml --from worker-1 -o json`,
		Args: countArguments(1, 1, "DEVICE", "eth0"),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			return flags.Explain(cmd.Context(), deps, streams, arguments[0])
		},
	}
	addInputFlags(cmd, &flags.Inputs)
	formFlag(cmd, &flags.Form)
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"output"}, local: []string{"filename", "from"},
		each: true, object: func(place *remote.Place) []string { return place.Devices }})
	return cmd
}

func policiesCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "List and test device exposure policies",
		Long: `Use policies list to see the effect of the cluster's DeviceExposurePolicies, and policies test before
you apply new ones.`,
		Example: `  sudo netdra policies list
  sudo netdra policies test policies.yaml`,
		Args: subcommandOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(policiesListCommand(deps, streams), policiesTestCommand(deps, streams))
	return cmd
}

func policiesListCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags, form := &offers.Inputs{}, ""
	cmd := &cobra.Command{
		Use:   "list [POLICY]...",
		Short: "List the effect of policies on nodes",
		Long: `Use list to find policies that select nothing, and to see how many devices each policy exposes.

For every DeviceExposurePolicy that the driver knows, it counts the devices that the policy exposes, exposes although
no DeviceClass can select them (unusable), hides, loses to another policy, or fails on because its expression returns
an error; -o wide and -o json list their names, with the reason for unusable devices. STATE is one of
  active       the policy selects devices of the node
  unusable     it exposes devices, but no DeviceClass can select one: no CNI plugin for them works on the node
  no match     it selects no device: its expression is false for every device
  failed       it selects no device: its expression returns an error for some devices, and false for the others
  other nodes  its nodeSelector does not match the node
  invalid      it exposes nothing until it is corrected

Exit status: 0 the policies are listed, 2 the driver does not answer, or there is no such policy.`,
		Example: `  sudo netdra policies list
  netdra policies list --all-nodes
  netdra policies list shared --node worker-1 -o json`,
		RunE: func(cmd *cobra.Command, names []string) error {
			effects, err := flags.PolicyEffects(cmd.Context(), deps, names)
			if err != nil {
				return err
			}
			return printer.List(streams.Out, form, effects, offers.EffectColumns(),
				"the cluster has no DeviceExposurePolicy")
		},
	}
	socketFlag(cmd, &flags.Socket)
	listFlag(cmd, &form)
	addRemote(cmd, deps, streams, &remoteCommand{forward: []string{"output"}, allArguments: true,
		all: func(ctx context.Context, cluster *remote.Cluster, names []string) error {
			return clusterwide.ListPolicies(ctx, cluster, streams, form, names)
		}})
	return cmd
}

func policiesTestCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &offers.CheckOptions{}
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Show the effect of new policies",
		Long: `Use test to see the effect of policies on this node, or on a recorded machine, before you apply them.

For every DeviceExposurePolicy in the files it prints errors and remarks, and the devices that the policy would
expose, hide, or leave to another policy. A policy matches a device if its expression is true. If the expression
returns an error, the policy fails for the device; an exclude policy then hides it. At the end it lists the devices
that would be newly offered, no longer offered, or offered differently, with the claims that hold them.

The policies are added to the current ones of this node's driver and replace those of the same name, like kubectl
apply. With --alone they replace all current policies, which then only serve for the comparison. With --policies the
current policies are read from a file; with --from there are none besides these. In both cases the driver is not
queried.

Exit status: 0 the policies are valid, 1 a policy is not valid, 2 a file, the machine or the driver cannot be read.`,
		Example: `  # on a node, before kubectl apply
  sudo netdra policies test policies.yaml

  # anywhere, for a recorded machine, compared with the version in Git
  git show HEAD:policies.yaml | netdra policies test policies.yaml --policies - --alone --from worker-1`,
		Args: countArguments(1, math.MaxInt, "FILE", "policies.yaml"),
		RunE: func(cmd *cobra.Command, files []string) error {
			return flags.Run(cmd.Context(), deps, streams, files)
		},
	}
	addInputFlags(cmd, &flags.Inputs)
	_ = cmd.Flags().MarkHidden("filename") // the flag exists
	set := cmd.Flags()
	set.StringArrayVar(&flags.Old, "policies", nil,
		`YAML file of the current policies, or "-" for stdin (default: the policies of this node's driver)`)
	set.BoolVar(&flags.Alone, "alone", false, "the policies replace all current ones")
	formFlag(cmd, &flags.Form)
	return cmd
}
