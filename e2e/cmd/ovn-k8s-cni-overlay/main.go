// Command ovn-k8s-cni-overlay is a test plugin that keeps the contract of OVN-Kubernetes' CNI plugin of that name
// towards who calls it, without OVN: a Linux bridge with the name br-int stands for that of Open vSwitch. What it takes
// from the real one:
//
//   - CNI_ARGS is a list of KEY=VALUE, and names the pod. Here all four of the keys that runtimes give are wanted.
//   - The configuration must be that of a network attachment: netAttachDefName is namespace/name; roles are for layer2 and layer3;
//     addresses come from "subnets" and never from an IPAM plugin; and so on.
//   - A localnet needs a bridge mapping of its physicalNetworkName, or else of its name. Here the alias of br-int has them, as
//     Open vSwitch does: ovn-bridge-mappings=NETWORK:BRIDGE,...
//   - The pod's interface is one end of a veth whose other end is a port of br-int, or the virtual function of deviceID. A localnet
//     has no deviceID: its uplink belongs to the bridge.
//   - The result names the host's interface first and then the pod's, with an address that its MAC is made of (0a:58 and the IPv4).
//   - DEL of what is gone says yes, CHECK looks at nothing.
//
// It knows no VLANs, no representors, and no networks of several nodes. The real one waits for annotations of the pod
// that OVN-Kubernetes' own controllers write; this one gives out addresses itself.
package main

import (
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
)

func main() {
	p := plugin{state: "/var/lib/cni/networks/ovn-k8s-cni-overlay", pci: "/sys/bus/pci/devices"}
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add: p.add, Del: p.del,
		Check: func(*skel.CmdArgs) error { return nil },
	}, version.PluginSupports("0.3.1", "0.4.0", "1.0.0"), "ovn-k8s-cni-overlay (test plugin)")
}
