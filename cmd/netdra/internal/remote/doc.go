// Package remote runs netdra commands on other nodes: it finds an object's node, and runs netdra, from the driver's
// image, in the driver's pod on that node.
//
// The rule of this package: everything goes through the API server with the caller's permissions. The package has no
// credentials except the caller's kubeconfig, and does not trust answers from nodes.
//
// A call has these steps: an [Object] is located ([Cluster.Locate]), the driver's pod on the object's node is found,
// netdra is run in that pod ([Cluster.Run]), and its output is relayed as text ([Cluster.Relay]) or decoded from JSON
// ([Cluster.Decode]). [Each] does this for all nodes. For the reasons, see docs/adr/0029-other-nodes-by-exec.md.
package remote
