// Package node is process 1 of a lab cluster's namespaces: it prepares the mounts and the network, and starts, stops
// and reaps the components it is told to run.
//
// The one rule: the package decides nothing. What to mount and which addresses to use comes in a Spec, what to run
// comes over the control socket, and a component that ends stays ended until somebody asks for it again. It stays small
// and free of Kubernetes libraries, since it is built anew for every cluster.
//
// [Run] is for the namespaces that package lab has made on this machine; [Join] does the same on a machine of its own,
// which the node is as a whole. Run goes through these phases: settings are read; mounts are made, while all of them
// are private; host name and network follow; the control socket is opened, which tells the other side that all this is
// done; and from then on children are reaped and requests are answered.
//
// Process 1 does not ask who sends a request: the socket is in the run directory, which only root can enter. Whatever
// happens to it ends the node, and nothing else has to be undone.
package node
