// Package plugin is the shell of the node driver: it connects kubelet (DRA), the container runtime (NRI), the API
// server and the journal with the packages that decide.
//
// The rule of this package: it carries values from one to the other and decides nothing about networks. From
// RunPodSandbox on nothing waits for the API server.
//
// The pieces, each with its own lock and none holding it over I/O:
//
//	publisher  facts, policies -> ResourceSlices
//	claims     what is prepared, durable; who holds which device
//	sandboxes  what is attached, durable; one attach or detach at a time for a sandbox
//	gate       CDI specs that keep containers from starting before their claim is attached
//	statuses   claim status and events, written in the background
package plugin
