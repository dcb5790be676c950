package suite

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/dra-networking/dra-network-driver/e2e/internal/testcluster"
	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// clusterName distinguishes concurrent runs.
var clusterName = flag.String("cluster", "suite", "name of the local Kubernetes that is started")

// containerRuntime selects the node's runtime. CRI-O's programs are in $CRIO_DIR.
var containerRuntime = flag.String("runtime", string(lab.RuntimeContainerd),
	"container runtime of the node: containerd, crio or crio-crun")

// theCluster is the cluster for the run. Tests share it, but each test has its own namespace, links and objects.
var theCluster = testcluster.Shared{
	Start: func(ctx context.Context) (*lab.Cluster, kubernetes.Interface, error) { return up(ctx, *clusterName) },
}

func TestMain(m *testing.M) { os.Exit(theCluster.Main(m)) }

// up starts a cluster with the test plugins but without the driver.
func up(ctx context.Context, name string) (*lab.Cluster, kubernetes.Interface, error) {
	return upWith(ctx, name, lab.Options{})
}

// upWith is like up, but with additional options, for example for features that are off by default.
func upWith(ctx context.Context, name string, options lab.Options) (*lab.Cluster, kubernetes.Interface, error) {
	cache, err := lab.CacheDir()
	if err != nil {
		return nil, nil, err
	}
	// the path is fixed, so that killed runs leave only this directory behind
	extra := filepath.Join(cache, name+"-cni")
	build := exec.CommandContext(ctx, "go", "build", "-o", extra+"/", "../cmd/slow-macvlan",
		"../cmd/ovn-k8s-cni-overlay")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // the plugins run in the driver's image, which has no libraries
	if output, err := build.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("cannot build the test plugins: %w\n%s", err, output)
	}
	options.Name, options.ExtraCNIDirs, options.Runtime = name, lab.ExtraCNIDirs(extra), lab.Runtime(*containerRuntime)
	return testcluster.Up(ctx, options)
}
