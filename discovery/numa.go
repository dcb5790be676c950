package discovery

import (
	"io/fs"

	"k8s.io/dynamic-resource-allocation/deviceattribute"
)

// addNearNodes sets the NUMANodes of PCI functions according to the rule shared by all device drivers, so that devices
// from different drivers have a node in common. The Kubernetes library reads the sockets and the distances between
// nodes (ACPI SLIT). Most machines have only a handful of nodes, so each node is queried only once.
func addNearNodes(sys fs.ReadLinkFS, functions map[PCIAddress]Device) {
	near := map[int][]int{None: nil}
	for address, f := range functions {
		nodes, known := near[f.NUMANode]
		if !known {
			nodes = nearNodes(sys, f.NUMANode)
			near[f.NUMANode] = nodes
		}
		f.NUMANodes = nodes
		functions[address] = f
	}
}

// nearNodes returns the given node, followed by the other nodes at the same distance. It returns nil if there are no
// other such nodes, or if the machine does not report distances.
func nearNodes(sys fs.ReadLinkFS, node int) []int {
	attribute, err := deviceattribute.GetNUMANodeAttribute(node, deviceattribute.ListAttribute,
		deviceattribute.WithFS(sys))
	if err != nil || len(attribute.Value.IntValues) < 2 { // an error means that the node number is invalid
		return nil
	}
	nodes := make([]int, len(attribute.Value.IntValues))
	for i, n := range attribute.Value.IntValues {
		nodes[i] = int(n)
	}
	return nodes
}
