// Command dra-network-controller manages the cluster-wide objects: the DeviceClasses of NetworkTopologies, and the
// conditions and the webhook that report errors to the authors of topologies and policies.
//
// The rule of this command: it never touches a node and has no state of its own; everything is computed from the
// objects in the cluster and can be computed again. Running pods do not need it.
//
// The process runs one controller of package controller-runtime for each kind (topology, blocks, exposure, contract,
// and endpoints if enabled), in the replica that holds the lease, and the webhook and the source of its certificate in
// all replicas. They share one cache, which reduces claims, pods and Services to the fields that are read
// (blocks.Transform, endpoints.TransformPod, endpoints.TransformService). A field that a controller begins to read must
// be added there, otherwise it is always empty.
package main
