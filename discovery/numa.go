package discovery

import (
	"io/fs"

	"k8s.io/dynamic-resource-allocation/deviceattribute"
)

// addNearNodes sets the NUMANodes of PCI functions according to the rule that all device drivers share, so that devices
// from different drivers have a node in common. The Kubernetes library reads the distances between nodes (ACPI SLIT)
// and the sockets. Most machines have only a handful of nodes, so each node is queried once.
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

// nearNodes returns a node, followed by the other nodes at the same distance. It returns nil if there are no others, or
// if the machine does not report distances.
func nearNodes(sys fs.ReadLinkFS, node int) []int {
	attribute, err := deviceattribute.GetNUMANodeAttribute(node, deviceattribute.ListAttribute,
		deviceattribute.WithFS(sys))
	if err != nil || len(attribute.Value.IntValues) < 2 { // an error means that the number is invalid
		return nil
	}
	nodes := make([]int, len(attribute.Value.IntValues))
	for i, n := range attribute.Value.IntValues {
		nodes[i] = int(n)
	}
	return nodes
}
