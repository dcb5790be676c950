package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/importer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func importCommand(deps osdeps.Deps, streams printer.Streams) *cobra.Command {
	flags := &importer.Command{}
	cmd := &cobra.Command{
		Use:   "import -f FILE...",
		Short: "Translate configuration of Multus and SR-IOV",
		Long: `Use import to come from Multus, the SR-IOV device plugin or the SR-IOV operator. It reads files, and
changes nothing.

Files may hold, also as lists that kubectl writes
  NetworkAttachmentDefinition       becomes a NetworkTopology and a ResourceClaimTemplate, and where it names a link of
                                    the node, a DeviceExposurePolicy for that
  SriovNetwork, SriovIBNetwork      the same, without the NetworkAttachmentDefinition that the operator makes of it
  ConfigMap of the device plugin,   becomes a DeviceExposurePolicy for each resource
    SriovNetworkNodePolicy
  Pod, Deployment, StatefulSet,     the same object, with claims in place of the annotation
    DaemonSet, Job, CronJob...      k8s.v1.cni.cncf.io/networks and of the device plugin's resources
Give all of them at once: a network finds the resource that it names, and a pod its networks.

The objects go to stdout, and a report to stderr: every field of the input that has no equivalent, or that means
something else, with the reason and what to do; then what is not needed any more. What selects devices and cannot be
translated makes a policy that selects nothing. With --output text it prints the report only, with json both.

With --dry-run it prints the report, and what this machine would publish, as "netdra slices" does, and tries pods and
claim templates on it, as "netdra simulate" does; with --machines on recorded ones.

Exit status: 0 nothing has to be done, 1 something has to be done by hand or does not fit, 2 the input cannot be read.`,
		Example: `  # everything that is in a cluster
  kubectl get net-attach-def,sriovnetworknodepolicies,sriovnetworks -A -o yaml > old.yaml
  netdra import -f old.yaml -f pods.yaml > new.yaml

  # the device plugin without the operator
  kubectl -n kube-system get configmap sriovdp-config -o yaml | netdra import -f - -f networks.yaml

  # pods that nobody may change: they go on asking for intel.com/sriov in their limits
  netdra import -f old.yaml -f pods.yaml --keep-resource-names > new.yaml

  # Multus stays, and devices are allocated by claims in place of the device plugin
  netdra import -f old.yaml -f pods.yaml --keep-multus > new.yaml

  # would the pods get their devices on these machines?
  netdra import -f old.yaml -f pods.yaml --machines worker-1,worker-2`,
		Args: noArguments("give files with -f {}"),
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), deps, streams) },
	}
	addImportFlags(cmd, flags)
	return cmd
}

func addImportFlags(cmd *cobra.Command, flags *importer.Command) {
	set := cmd.Flags()
	set.StringArrayVarP(&flags.Files, "filename", "f", nil, `YAML or JSON file of what is translated, or "-" for stdin`)
	set.StringVarP(&flags.Namespace, "namespace", "n", "default", "namespace of objects that name none")
	set.StringVar(&flags.DevicePluginPrefix, "device-plugin-prefix", "intel.com",
		"what the names of resources begin with, if the device plugin's configuration does not say it")
	set.StringVar(&flags.OperatorPrefix, "operator-prefix", "openshift.io",
		"what the names of the operator's resources begin with (RESOURCE_PREFIX of the operator)")
	set.BoolVar(&flags.KeepResourceNames, "keep-resource-names", false,
		"give topologies the names of the resources, and leave pods as they are that need no more than these")
	set.BoolVar(&flags.KeepMultus, "keep-multus", false,
		"only reserve the devices of networks with a resource, for Multus to attach as before")
	set.BoolVar(&flags.DryRun, "dry-run", false, "print the report, and what this machine would offer and give the "+
		"claims")
	set.StringSliceVar(&flags.Machines, "machines", nil,
		`a dry run on recordings of "netdra facts", whose directories are separated by commas`)
	schemasFlag(cmd, &flags.SchemaFile)
	manifestFlag(cmd, &flags.Output)
	_ = cmd.MarkFlagRequired("filename") // the flag exists
}
