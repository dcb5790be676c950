package ovnkube

import (
	"context"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
)

// State is the folder, on a node, of the files that stand for the database of Open vSwitch: ports are in ports below
// it.
const State = "/var/run/ovn-kubernetes/double"

// Run is OVN-Kubernetes on a node until ctx ends: server and controller. limit bounds requests, 0 for [RealLimit]. It
// must run in the mount and network namespaces of the node. Pods that are attached stay so when it ends, as ports are
// files.
func Run(ctx context.Context, kubeconfig, node string, limit time.Duration) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	controller := &Controller{Client: client, Dynamic: objects, Clock: clock.RealClock{}, Node: node}
	go controller.Run(ctx)
	server := NewServer(Config{Client: client, Clock: clock.RealClock{}, Limit: limit, State: State,
		PCI: "/sys/bus/pci/devices"})
	return server.Serve(ctx, Socket)
}
