package main

import (
	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/importer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

func importCommand(streams printer.Streams) *cobra.Command {
	flags := &importer.Command{}
	cmd := &cobra.Command{
		Use:   "import -f FILE...",
		Short: "Translate Multus and SR-IOV configuration",
		Long: `Use import to migrate from Multus, the SR-IOV device plugin, the SR-IOV operator or the NVIDIA network
operator. It reads files and changes nothing.

Files may contain, also as lists that kubectl writes
  NetworkAttachmentDefinition       becomes a NetworkTopology and a ResourceClaimTemplate; if it names a link of the
                                    node, also a DeviceExposurePolicy for the link
  SriovNetwork, SriovIBNetwork,     the same, without the NetworkAttachmentDefinition that the operator creates from it
    OVSNetwork, HostDeviceNetwork,
    MacvlanNetwork, IPoIBNetwork
  ConfigMap of a device plugin,     becomes one DeviceExposurePolicy per resource; if pods share RDMA devices, also a
    SriovNetworkNodePolicy,         NetworkTopology and a ResourceClaimTemplate
    NicClusterPolicy, NicNodePolicy
  Pod, Deployment, Job, MPIJob...,  the same object, with claims instead of the annotation
    all kinds with pod templates    k8s.v1.cni.cncf.io/networks and of the device plugin's resources
Pass all files together, so that networks are matched with their resources, and pods with their networks. Networks
that use interfaces of other networks of a pod, such as a bond, become one topology with these networks.

The objects are written to stdout and a report to stderr. The report lists every field of the input that has no
equivalent or has another meaning, with the reason and the action to take (marked with !), and the fields that are no
longer needed. If a device selector cannot be translated, the generated policy selects nothing. With --output text only
the report is printed, with json both.

To find out whether the pods would get their devices, pass the result to "netdra simulate".

Exit status: 0 no manual changes are needed, 1 manual changes are needed, 2 the input cannot be read.`,
		Example: `  # translate everything in a cluster
  kubectl get net-attach-def,sriovnetworknodepolicies,sriovnetworks -A -o yaml > old.yaml
  netdra import -f old.yaml -f pods.yaml > new.yaml

  # translate the objects of the NVIDIA network operator
  kubectl get nicclusterpolicies,hostdevicenetworks,macvlannetworks,ipoibnetworks,mpijobs -A -o yaml > old.yaml
  netdra import -f old.yaml > new.yaml

  # translate the device plugin without the operator
  kubectl -n kube-system get configmap sriovdp-config -o yaml | netdra import -f - -f networks.yaml

  # keep pods unchanged: they still request intel.com/sriov in their limits
  netdra import -f old.yaml -f pods.yaml --keep-resource-names > new.yaml

  # keep Multus, and replace only the device plugin by claims
  netdra import -f old.yaml -f pods.yaml --keep-multus > new.yaml

  # check whether the pods would get their devices on these machines
  netdra simulate -f new.yaml --machines worker-1,worker-2`,
		Args: noArguments("pass files with -f {}"),
		RunE: func(*cobra.Command, []string) error { return flags.Run(streams) },
	}
	addImportFlags(cmd, flags)
	return cmd
}

func addImportFlags(cmd *cobra.Command, flags *importer.Command) {
	set := cmd.Flags()
	set.StringArrayVarP(&flags.Files, "filename", "f", nil,
		`YAML or JSON file with objects to translate, or "-" for stdin`)
	set.StringVarP(&flags.Namespace, "namespace", "n", "default", "namespace of objects without one")
	set.StringVar(&flags.DevicePluginPrefix, "device-plugin-prefix", "intel.com",
		"prefix of resource names, if the device plugin's configuration does not set one")
	set.StringVar(&flags.OperatorPrefix, "operator-prefix", "",
		"prefix of the SR-IOV operator's resource names (its RESOURCE_PREFIX); by default, the prefix with which "+
			"the input requests them, or openshift.io")
	set.BoolVar(&flags.KeepResourceNames, "keep-resource-names", false,
		"map the existing resource names to topologies, and leave pods unchanged that need nothing else")
	set.BoolVar(&flags.KeepMultus, "keep-multus", false,
		"only reserve the devices of networks with a resource; Multus attaches them as before")
	schemasFlag(cmd, &flags.SchemaFile)
	manifestFlag(cmd, &flags.Output)
	_ = cmd.MarkFlagRequired("filename") // the flag exists
}
