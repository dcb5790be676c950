// Package node is process 1 of a lab cluster's namespaces: it prepares the mounts and the network, and starts, stops
// and reaps components on request.
//
// The one rule: the package decides nothing. Mounts and addresses come from a Spec, commands to run come over the
// control socket, and a component that has ended is not restarted until the next request to start it. The package stays
// small and free of Kubernetes libraries, since it is built for each cluster.
//
// [Run] is for the namespaces that package lab has created on this machine; [Join] does the same on a separate machine,
// all of which is the node. Run has these phases: read the settings; create the mounts, while all of them are private;
// set up host name and network; open the control socket, which signals that the preparation is complete; from then on,
// reap children and answer requests.
//
// Process 1 does not authenticate requests: the socket is in the run directory, which only root can enter. Any failure
// of process 1 ends the node, and requires no further cleanup.
package node
