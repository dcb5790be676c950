// Package remote runs commands of netdra on nodes from elsewhere: it finds the node of an object, and calls the netdra
// of the driver's image in the driver's pod there.
//
// The rule of this package: everything goes through the API server with the rights of the caller. There is no
// credential but the caller's kubeconfig, and what nodes answer is strangers' text.
//
// The way of a call: an [Object] is located ([Cluster.Locate]), the driver's pod on that node is found, netdra is run
// in it ([Cluster.Run]), and what it printed is relayed as text ([Cluster.Relay]) or decoded from JSON
// ([Cluster.Decode]). [Each] does it for all nodes. Why it is done so: docs/adr/0029-other-nodes-by-exec.md.
package remote
