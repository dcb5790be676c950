package suite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

// clusterName tells runs at the same time apart.
var clusterName = flag.String("cluster", "suite", "name of the local Kubernetes that is started")

// theCluster is the one cluster of the run; tests share it, each with its own namespace, links and objects.
var theCluster = struct {
	once    sync.Once
	cluster *lab.Cluster
	client  kubernetes.Interface
	err     error
}{}

func TestMain(m *testing.M) {
	code := m.Run()
	if theCluster.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if err := theCluster.cluster.Down(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		cancel()
	}
	os.Exit(code)
}

func start() (*lab.Cluster, kubernetes.Interface, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cluster, client, err := up(ctx, *clusterName)
	if err != nil {
		return nil, nil, err
	}
	theCluster.cluster = cluster
	clone, err := filepath.Abs("../..")
	if err == nil {
		err = stack.Install(ctx, cluster,
			stack.Options{Clone: clone, Bin: filepath.Join(clone, "bin"), Progress: os.Stderr})
	}
	return cluster, client, err
}

// up starts a cluster with the test plugins, and without the driver.
func up(ctx context.Context, name string) (*lab.Cluster, kubernetes.Interface, error) {
	return upWith(ctx, name, lab.Options{})
}

// upWith is up with features of Kubernetes that are off.
func upWith(ctx context.Context, name string, options lab.Options) (*lab.Cluster, kubernetes.Interface, error) {
	clone, err := filepath.Abs("../..")
	if err != nil {
		return nil, nil, err
	}
	cache, err := lab.CacheDir()
	if err != nil {
		return nil, nil, err
	}
	// one place, so that a run that is killed leaves no more than this
	extra := filepath.Join(cache, name+"-cni")
	build := exec.CommandContext(ctx, "go", "build", "-o", extra+"/", "../cmd/slow-macvlan",
		"../cmd/ovn-k8s-cni-overlay")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // they run inside the driver's image, which has no libraries
	if output, err := build.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("cannot build the test plugins: %w\n%s", err, output)
	}
	options.Name, options.Clone, options.ExtraCNIDirs, options.Progress = name, clone, lab.ExtraCNIDirs(extra), os.Stderr
	cluster, err := lab.Up(ctx, options)
	if err != nil {
		return nil, nil, err
	}
	config, err := cluster.RESTConfig()
	if err == nil {
		var client kubernetes.Interface
		if client, err = kubernetes.NewForConfig(config); err == nil {
			return cluster, client, nil
		}
	}
	return nil, nil, errors.Join(err, cluster.Down(context.WithoutCancel(ctx)))
}
