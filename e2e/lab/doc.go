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
//
// [Up] goes through these phases: the machine is checked; the programs are built into the cache; what an earlier run of
// the same name left is removed; keys, configuration and helper programs are written into the run directory; process 1
// is started in new namespaces, where package node makes mounts and network; the components are started through its
// control socket, and waited for; and, with several nodes, each node boots. The context and Options.StartTimeout bound
// all of them but the build.
//
// What is known of a cluster is in the file cluster.json of its run directory, so that another process, such as the
// command lab, finds it with [Open]. Up, Down, Remove and the power switch of a node hold a lock beside that directory;
// everything else takes none. A file of state is replaced by a rename, so that readers need no lock, and is not
// synchronised to the disk: no cluster outlives a crash of the machine.
//
// The network inside is the same for every cluster: 10.88.0.0/16 has the nodes and all pods on one bridge, and
// 10.96.0.1, the first address of Services, is the API server's own. There is no kube-proxy and no DNS: no other
// Service has an address that leads anywhere.
package lab
