// Command dra-network-controller keeps what belongs to the whole cluster: the DeviceClasses of NetworkTopologies, and
// the conditions and the webhook that tell the authors of topologies and policies what is wrong with them.
//
// The rule of this command: it never touches a node and holds no state of its own; everything is computed from the
// objects in the cluster and can be computed again. Pods that run don't need it.
package main
