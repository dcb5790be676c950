// Package node is process 1 of a lab cluster's namespaces: it prepares the mounts and the network, and starts, stops
// and reaps the components it is told to run.
//
// The one rule: the package decides nothing. What to mount and which addresses to use comes in a Spec, what to run
// comes over the control socket, and a component that ends stays ended until somebody asks for it again. It stays small
// and free of Kubernetes libraries, since it is built anew for every cluster.
package node
