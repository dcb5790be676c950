// Command ovnkube is a test double for OVN-Kubernetes on the node in a local Kubernetes cluster; see package
// e2e/internal/ovnkube. KUBECONFIG selects the cluster.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/e2e/internal/ovnkube"
)

func main() {
	node := flag.String("node", "", "name of the node whose pods get addresses")
	limit := flag.Duration("limit", ovnkube.RealLimit, "how long a request of the CNI plugin may take")
	sweep := flag.Duration("sweep", ovnkube.RealSweep, "time between two looks for ports without an interface")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := ovnkube.Run(ctx, os.Getenv("KUBECONFIG"), *node, *limit, *sweep)
	stop()
	if err != nil {
		klog.ErrorS(err, "Cannot run the double of OVN-Kubernetes")
		os.Exit(1)
	}
}
