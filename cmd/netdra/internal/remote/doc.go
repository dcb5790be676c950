// Package remote runs netdra commands on other nodes: it finds the node of an object, and runs netdra in the driver's
// pod on that node, from the driver's image.
//
// The rule of this package: everything goes through the API server with the caller's permissions. It has no credentials
// except the caller's kubeconfig, and does not trust the answers of nodes.
//
// A call has these steps: an [Object] is located ([Cluster.Locate]), the driver's pod on that node is found, netdra is
// run in it ([Cluster.Run]), and its output is relayed as text ([Cluster.Relay]) or decoded from JSON
// ([Cluster.Decode]). [Each] does this for all nodes. For the reasons, see docs/adr/0029-other-nodes-by-exec.md.
package remote
