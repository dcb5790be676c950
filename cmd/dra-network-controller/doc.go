// Command dra-network-controller manages the cluster-wide objects: it creates the DeviceClasses for NetworkTopologies,
// and reports errors to the authors of topologies and policies through conditions and a webhook.
//
// Invariant: it never touches a node and has no state of its own. Everything is computed from the
// objects in the cluster and can be recomputed at any time. Running pods do not depend on the controller.
//
// The process uses package controller-runtime. The replica that holds the lease runs one controller for each kind
// (topology, blocks, exposure, contract, and endpoints if enabled). All replicas run the webhook and the source of its
// certificate. Within a process, they share one cache, which reduces claims, pods and Services to the fields that are
// used (blocks.Transform, endpoints.TransformPod, endpoints.TransformService). If a controller starts using another
// field, that field must be added there; otherwise, it is always empty.
package main
