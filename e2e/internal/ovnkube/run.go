package ovnkube

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// State is the directory, on a node, of the files that replace the database of Open vSwitch: its subdirectory ports
// contains the ports.
const State = "/var/run/ovn-kubernetes/double"

// RealSweep is how often the real node looks for ports without an interface.
const RealSweep = time.Minute

// Run is OVN-Kubernetes on a node until ctx ends: server, controller, and what removes ports without an interface.
// limit bounds requests, 0 for [RealLimit]; sweep is the time between two looks for such ports. It must run in the
// mount and network namespaces of the node. Pods that are attached stay so when it ends, as ports are files.
func Run(ctx context.Context, kubeconfig, node string, limit, sweep time.Duration) error {
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
	// The real node does so, too, a minute after its start for the first time.
	go wait.UntilWithContext(ctx, func(context.Context) {
		if err := (&vswitch{state: State}).sweep(); err != nil {
			klog.ErrorS(err, "Cannot remove all ports without an interface; trying again")
		}
	}, sweep)
	server := NewServer(Config{Client: client, Clock: clock.RealClock{}, Limit: limit, State: State,
		PCI: "/sys/bus/pci/devices"})
	return server.Serve(ctx, Socket)
}
