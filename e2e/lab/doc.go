// Package lab runs a real Kubernetes cluster on the local machine: the API server, etcd, containerd, kubelet and the
// rest, built from source, without Docker and without a registry.
//
// The one rule: everything that belongs to a cluster is below one process, process 1 of private mount, network, PID,
// IPC and UTS namespaces. Killing that process ends the cluster. Mounts, interfaces, addresses and files of the cluster
// are never visible on the host outside the run directory and the cluster's own cgroup.
//
//	cluster, err := lab.Up(ctx, lab.Options{Name: "mytest", Progress: os.Stderr})
//	defer cluster.Down(ctx)
//	config, err := cluster.RESTConfig()
//	client, err := kubernetes.NewForConfig(config)
//
// A cluster has one node, in the namespaces of process 1. With Options.Nodes it has several: each is a process 1 of
// further namespaces, which the process 1 of the cluster starts and ends with, so the rule still holds. Nodes can be
// switched off and disconnected one by one: see Cluster.Nodes.
//
// With Options.ControlPlaneOnly the cluster has no node, and Options.Kubernetes can be an older version. Use it to test
// how the API server and the scheduler handle Node objects that a test creates. With Options.NodeElsewhere another
// machine is the node, and Pack prepares a cluster that runs completely on another machine.
//
// [Up] has these phases: check the machine; build the programs into the cache; remove the remains of an earlier run
// with the same name; write keys, configuration and helper programs into the run directory; start process 1 in new
// namespaces, where package node creates mounts and network; start the components through its control socket and wait
// for them; and, with several nodes, boot each node. The context and Options.StartTimeout bound all phases except the
// build.
//
// The file cluster.json in the run directory contains the state of a cluster, so that another process, such as the
// command lab, finds it with [Open]. Up, Down, Remove and the power switch of a node hold a lock file next to that
// directory; everything else takes no lock. State files are replaced by a rename, so readers need no lock. They are not
// synced to the disk, because no cluster survives a crash of the machine.
//
// The network inside is the same for every cluster: 10.88.0.0/16 contains the nodes and all pods on one bridge, and
// 10.96.0.1, the first address of Services, belongs to the API server. There is neither kube-proxy nor DNS, so no other
// Service has a reachable address.
package lab
