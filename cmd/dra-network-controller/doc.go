// Command dra-network-controller manages the cluster-wide objects: the DeviceClasses of NetworkTopologies, and the
// conditions and the webhook that report errors to the authors of topologies and policies.
//
// The rule of this command: it never touches a node and has no state of its own. Everything is computed from the
// objects in the cluster and can be recomputed. Running pods do not need it.
//
// The process uses package controller-runtime. In the replica that holds the lease, it runs one controller for each
// kind (topology, blocks, exposure, contract, and endpoints if enabled). In all replicas, it runs the webhook and the
// source of its certificate. They share one cache, which reduces claims, pods and Services to the fields that are read
// (blocks.Transform, endpoints.TransformPod, endpoints.TransformService). If a controller starts reading another field,
// the field must be added there, otherwise it is always empty.
package main
