// Package plugin is the shell of the node driver: it connects kubelet (DRA), the container runtime (NRI), the API
// server and the journal with the packages that decide.
//
// The rule of this package: it carries values from one to the other and decides nothing about networks. From
// RunPodSandbox on nothing waits for the API server.
//
// The parts, each with its own lock and none holding it over I/O, are packages in internal; imports point downward:
//
//	status     claim status, events and health of devices, written in the background
//	publish    facts, policies -> ResourceSlices
//	attach     what is attached, durable; gates that keep containers from starting before their claim is attached
//	claims     what is prepared, durable; who holds which device
//
// What becomes of pods is told to one observer, which is here (reporter): it wakes kubelet and the status.
package plugin
