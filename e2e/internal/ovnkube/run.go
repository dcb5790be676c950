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

// State is the directory on a node with the files that replace the Open vSwitch database. The ports are in its
// subdirectory "ports".
const State = "/var/run/ovn-kubernetes/double"

// RealSweep is the interval at which a real OVN-Kubernetes node removes ports that have no interface.
const RealSweep = time.Minute

// Run runs the test double for OVN-Kubernetes on a node until ctx is done: the server, the controller, and the sweep
// that removes ports that have no interface. limit is the time limit for a request; 0 means [RealLimit]. sweep is the
// interval between sweeps. Run must be called in the node's mount and network namespaces. Since ports are recorded in
// files, pods stay attached after Run has returned.
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
	// A real node also sweeps for the first time one minute after it starts.
	go wait.UntilWithContext(ctx, func(context.Context) {
		if err := (&vswitch{state: State}).sweep(); err != nil {
			klog.ErrorS(err, "Cannot remove all ports without an interface; trying again")
		}
	}, sweep)
	server := NewServer(Config{Client: client, Clock: clock.RealClock{}, Limit: limit, State: State,
		PCI: "/sys/bus/pci/devices"})
	return server.Serve(ctx, Socket)
}
