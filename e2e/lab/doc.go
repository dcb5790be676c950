// Package lab runs a real Kubernetes cluster on the local machine: the API server, etcd, containerd, the kubelet and
// the other components, built from source, without Docker and without a registry.
//
// Invariant: the lifetime of everything in a cluster depends on one process, which is process 1 in its
// own mount, network, PID, IPC and UTS namespaces. Killing this process terminates the cluster. Outside the run
// directory and the cluster's own cgroup, the cluster's mounts, interfaces, addresses and files are never visible on
// the host.
//
//	cluster, err := lab.Up(ctx, lab.Options{Name: "mytest", Progress: os.Stderr})
//	defer cluster.Down(ctx)
//	config, err := cluster.RESTConfig()
//	client, err := kubernetes.NewForConfig(config)
//
// By default, a cluster has one node, in the namespaces of process 1. With Options.Nodes, it has several nodes. Each
// node is a process 1 in its own set of namespaces, which the cluster's process 1 starts and which terminates with it,
// so the rule still holds. Nodes can be switched off and disconnected individually: see Cluster.Nodes.
//
// With Options.ControlPlaneOnly, the cluster has no node, and Options.Kubernetes can be an older version. Use this to
// test how the API server and the scheduler handle Node objects created by a test. With Options.NodeElsewhere, another
// machine is the node. Pack prepares a cluster that runs entirely on another machine.
//
// [Up] has these phases: check the machine; build the programs into the cache; remove the remains of an earlier run
// with the same name; write keys, configuration and helper programs to the run directory; start process 1 in new
// namespaces, where package node creates the mounts and the network; start the components through the control socket
// and wait for them; and, in a multi-node cluster, boot each node. The context and Options.StartTimeout apply to all
// phases except the build.
//
// The file cluster.json in the run directory contains a cluster's state, so that another process, such as the lab
// command, can find the cluster with [Open]. Up, Down, Remove and the operations that switch a node on or off hold a
// lock on a file next to that directory; all other operations need no lock. State files are replaced atomically by
// renaming, so readers need no lock. The files are not synced to disk, because no cluster survives a crash of the
// machine.
//
// The internal network is the same for every cluster: the nodes and all pods are on one bridge with addresses in
// 10.88.0.0/16, and 10.96.0.1, the first Service address, is the API server's address. There is no kube-proxy and no
// DNS, so no other Service address is reachable.
package lab
