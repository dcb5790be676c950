// Package lab runs a real Kubernetes cluster on the machine at hand: the API server, etcd, containerd, kubelet
// and the rest, built from source, without Docker and without a registry.
//
// The one rule: everything a cluster is made of hangs below one process, process 1 of private mount, network, PID, IPC
// and UTS namespaces. Killing that process ends the cluster, and the host never sees a mount, an interface, an address
// or a file of it outside the run directory and a cgroup of its own.
//
//	cluster, err := lab.Up(ctx, lab.Options{Name: "mytest", Progress: os.Stderr})
//	defer cluster.Down(ctx)
//	config, err := cluster.RESTConfig()
//	client, err := kubernetes.NewForConfig(config)
//
// A cluster has one node, in the namespaces of process 1. With Options.Nodes it has several: each is a process 1 of
// further namespaces, which that of the cluster starts and ends with, so the rule still holds. Nodes can be switched
// off and disconnected one by one: see Cluster.Nodes.
//
// With Options.ControlPlaneOnly there is no node, and Options.Kubernetes can be an older version: for what the API
// server and the scheduler do with Node objects that a test makes. With Options.NodeElsewhere another machine is the
// node, and Pack prepares a cluster of which all is on another machine.
package lab
