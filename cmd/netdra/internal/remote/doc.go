// Package remote runs commands of netdra on nodes from elsewhere: it finds the node of an object, and calls the netdra
// of the driver's image in the driver's pod there.
//
// The rule of this package: everything goes through the API server with the rights of the caller. There is no
// credential but the caller's kubeconfig, and what nodes answer is strangers' text.
package remote
