// Command dra-network-controller keeps what belongs to the whole cluster: the DeviceClasses of NetworkTopologies, and
// the conditions and the webhook that tell the authors of topologies and policies what is wrong with them.
//
// The rule of this command: it never touches a node and holds no state of its own; everything is computed from the
// objects in the cluster and can be computed again. Pods that run don't need it.
//
// What runs in the process: one controller of package controller-runtime for each kind (topology, blocks, exposure,
// contract, and endpoints if asked for), in the replica that holds the lease; the webhook and the source of its
// certificate in all replicas. They share one cache, which transforms claims and pods to the fields that are read
// (blocks.Transform, endpoints.TransformPod). A field that a controller begins to read must be added there, or is
// always empty.
package main
