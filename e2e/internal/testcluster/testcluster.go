// Package testcluster starts local Kubernetes clusters (package lab) for tests: a control plane for a single test, or a
// cluster that all tests in a run share.
package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

const (
	// startLimit is the time limit for starting a cluster, which may include an uncached Kubernetes build.
	startLimit = 20 * time.Minute
	// downLimit is the time limit for removing a cluster.
	downLimit = time.Minute
)

// Clone returns the root of the repository. It works only for tests in packages directly below e2e, because go test
// runs them in the package's directory.
func Clone() (string, error) { return filepath.Abs("../..") }

// NeedsRoot skips a test unless it runs as root, which is required to start a cluster.
func NeedsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: starts a local Kubernetes in private namespaces")
	}
}

// Start starts a cluster.
type Start func(context.Context) (*lab.Cluster, kubernetes.Interface, error)

// Up starts a cluster built from this repository. It sets the options Clone and Progress. If Up returns an error, it
// has already removed the cluster. The context limits only the startup.
func Up(ctx context.Context, options lab.Options) (*lab.Cluster, kubernetes.Interface, error) {
	clone, err := Clone()
	if err != nil {
		return nil, nil, err
	}
	options.Clone, options.Progress = clone, os.Stderr
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
	return nil, nil, errors.Join(err, down(cluster))
}

func down(cluster *lab.Cluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), downLimit)
	defer cancel()
	return cluster.Down(ctx)
}

// ForTest starts a cluster and removes it at the end of the test, even if the test fails. If the cluster cannot be
// removed, the test fails.
func ForTest(t *testing.T, start Start) (*lab.Cluster, kubernetes.Interface) {
	t.Helper()
	NeedsRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	cluster, client, err := start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := down(cluster); err != nil {
			t.Error(err)
		}
	})
	return cluster, client
}

// ControlPlane starts a control plane with the driver's CustomResourceDefinitions, and removes it at the end of the
// test.
func ControlPlane(t *testing.T, name string) *lab.Cluster {
	t.Helper()
	cluster, _ := ForTest(t, func(ctx context.Context) (*lab.Cluster, kubernetes.Interface, error) {
		return Up(ctx, lab.Options{Name: name, ControlPlaneOnly: true})
	})
	if err := Define(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// Define creates the driver's CustomResourceDefinitions in a cluster, and waits until they are served. It may be called
// more than once.
func Define(ctx context.Context, cluster *lab.Cluster) error {
	clone, err := Clone()
	if err != nil {
		return err
	}
	definitions := filepath.Join(clone, "deploy", "crds")
	for _, args := range [][]string{
		{"apply", "-f", definitions}, {"wait", "--for=condition=Established", "--timeout=30s", "-f", definitions},
	} {
		if _, err := cluster.Exec(ctx, append([]string{"kubectl"}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// Install installs the driver from the working tree in a cluster. It uses the existing binaries in bin instead of
// building them.
func Install(ctx context.Context, cluster *lab.Cluster) error {
	clone, err := Clone()
	if err != nil {
		return err
	}
	return stack.Install(ctx, cluster,
		stack.Options{Clone: clone, Bin: filepath.Join(clone, "bin"), Progress: os.Stderr})
}

// Shared is a cluster with the driver that all tests in a run share. The first call to Get starts the cluster. Declare
// a Shared as a package variable in the tests. Tests may call Get concurrently. If the process is killed, for example
// when go test times out, the cluster terminates with it (see lab.Up).
type Shared struct {
	// Start starts the cluster without the driver.
	Start Start

	once    sync.Once
	cluster *lab.Cluster
	client  kubernetes.Interface
	err     error
}

// Get returns the cluster and a client for it. If the cluster could not be started, this test and all later tests fail.
func (s *Shared) Get(t *testing.T) (*lab.Cluster, kubernetes.Interface) {
	t.Helper()
	NeedsRoot(t)
	s.once.Do(func() { s.err = s.start() })
	if s.err != nil {
		t.Fatalf("cannot start the cluster: %v", s.err)
	}
	return s.cluster, s.client
}

// start starts the cluster and installs the driver. If the installation fails, the cluster is kept; Main removes it.
func (s *Shared) start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if s.cluster, s.client, err = s.Start(ctx); err != nil {
		return err
	}
	return Install(ctx, s.cluster)
}

// Main runs a package's tests, removes the cluster, and returns the process's exit status. If no test called Get, there
// is no cluster to remove.
func (s *Shared) Main(m *testing.M) int {
	code := m.Run()
	if s.cluster == nil {
		return code
	}
	if err := down(s.cluster); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}
