// Package node implements process 1 in the namespaces of a lab cluster: it prepares the mounts and the network, starts
// and stops components on request, and reaps processes.
//
// Invariant: it makes no decisions. Mounts and addresses come from a Spec, and requests to run commands
// arrive on the control socket. A component that has exited is not restarted until the next request to start it. The
// package is kept small and does not use Kubernetes libraries, since it is rebuilt for each cluster.
//
// [Run] is for namespaces that package lab has created on this machine. [Join] does the same on a separate machine,
// which becomes the node as a whole. Run has the following phases: it reads the Spec, creates the mounts while all
// mounts are private, sets up the host name and the network, and opens the control socket, which signals that setup is
// complete. From then on, it reaps children and handles requests.
//
// Process 1 does not authenticate requests: the socket is in the run directory, which only root can enter. If process 1
// fails, the node terminates without requiring any further cleanup.
package node
