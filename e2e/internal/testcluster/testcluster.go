// Package testcluster starts the local Kubernetes (package lab) for tests: a control plane until the end of a test, or
// a cluster that the tests of a run share.
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
	// startLimit includes a build of Kubernetes from nothing.
	startLimit = 20 * time.Minute
	// downLimit is how long a cluster may take to end.
	downLimit = time.Minute
)

// Clone returns the root of the repository for tests of a package in a folder of e2e, in which go test runs them.
func Clone() (string, error) { return filepath.Abs("../..") }

// NeedsRoot skips a test that cannot start a cluster.
func NeedsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: starts a local Kubernetes in private namespaces")
	}
}

// Start starts a cluster.
type Start func(context.Context) (*lab.Cluster, kubernetes.Interface, error)

// Up starts a cluster of this repository, which it ends again if it returns an error. The options' Clone and Progress
// are set here. The context bounds the start alone.
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

// ForTest starts a cluster until the end of a test. It ends with the test, also if the test has failed. A cluster that
// does not end fails the test.
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

// ControlPlane starts a control plane with the driver's definitions until the end of a test.
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
// again.
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

// Install installs the driver of the working tree in a cluster. It uses the existing binaries in bin and builds
// nothing.
func Install(ctx context.Context, cluster *lab.Cluster) error {
	clone, err := Clone()
	if err != nil {
		return err
	}
	return stack.Install(ctx, cluster,
		stack.Options{Clone: clone, Bin: filepath.Join(clone, "bin"), Progress: os.Stderr})
}

// Shared is the cluster of a run of tests, with the driver. The first test that needs it starts it. It is a package
// variable of the tests, set before they run. Tests may call Get concurrently. If the process is killed, as when go
// test is over time, the cluster ends with it (see lab.Up).
type Shared struct {
	// Start starts the cluster, without the driver.
	Start Start

	once    sync.Once
	cluster *lab.Cluster
	client  kubernetes.Interface
	err     error
}

// Get returns the cluster and a client for it. If it could not be started, this test fails, and each later one.
func (s *Shared) Get(t *testing.T) (*lab.Cluster, kubernetes.Interface) {
	t.Helper()
	NeedsRoot(t)
	s.once.Do(func() { s.err = s.start() })
	if s.err != nil {
		t.Fatalf("no cluster: %v", s.err)
	}
	return s.cluster, s.client
}

// start keeps a cluster if the driver cannot be installed in it; Main ends that cluster.
func (s *Shared) start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if s.cluster, s.client, err = s.Start(ctx); err != nil {
		return err
	}
	return Install(ctx, s.cluster)
}

// Main runs the tests of a package, ends the cluster, and returns the exit status of the process. Without a test that
// called Get it starts nothing.
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
