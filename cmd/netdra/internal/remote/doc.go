// Package remote runs netdra commands on other nodes: it determines the node of an object, and runs the netdra binary
// in the driver's image, in the driver's pod on that node.
//
// Invariant: everything goes through the API server with the caller's permissions. The package has no
// credentials other than the caller's kubeconfig, and does not trust answers from nodes.
//
// A call has these steps: the node of an [Object] is determined ([Cluster.Locate]), the driver's pod on the node is
// found, netdra is run in that pod ([Cluster.Run]), and its output is relayed as text ([Cluster.Relay]) or decoded from
// JSON ([Cluster.Decode]). [Each] does this for all nodes. For the reasons, see docs/adr/0029-other-nodes-by-exec.md.
package remote
