// Package plugin is the outer layer of the node driver: it connects the kubelet (DRA), the container runtime (NRI), the
// API server and the journal to the packages that make decisions.
//
// Invariant: it passes values between these components and makes no decisions about networks. From
// RunPodSandbox onwards, no step waits for the API server.
//
// The components are packages in internal. Each has its own lock, which is never held during I/O. Imports point
// downward:
//
//	status     claim status, events and health of devices, written in the background
//	publish    facts, policies -> ResourceSlices
//	attach     durable attachments; gates that keep containers from starting before their claim is attached
//	claims     durable records of prepared claims and the devices that they hold
//
// reporter, the only observer in this package, receives the results for each pod and notifies the kubelet and the
// status writer.
package plugin
