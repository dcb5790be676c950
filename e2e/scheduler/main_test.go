package scheduler

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/dra-networking/dra-network-driver/e2e/internal/testcluster"
	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// Driver flags for encodings.
const (
	// listAttributes publishes a device's CNI plugins as one list instead of a boolean for each plugin.
	listAttributes = "--list-attributes"
	// compatibilityGroups makes uses of a device mutually exclusive with compatibility groups instead of counters.
	compatibilityGroups = "--compatibility-groups"
)

var older = flag.Bool("older", false, "also test the oldest supported Kubernetes, which is compiled first")

// version is a Kubernetes version for the control plane. Every test runs with each version.
type version struct {
	name       string // for subtests; also part of the cluster's name
	kubernetes string // see lab.Options
	gates      map[string]bool
	// encodings lists the driver flags that the version's feature gates allow.
	encodings []string
}

var versions = []version{
	{name: "newest"},
	{
		name: "newest-alpha", gates: map[string]bool{"DRAListTypeAttributes": true,
			"DRADeviceCompatibilityGroups": true, "DRADerivedAttributes": true},
		encodings: []string{listAttributes, compatibilityGroups},
	},
	{name: "1.36", kubernetes: "1.36"},
}

// running contains the running control planes, keyed by version name. The first test that needs a control plane starts
// it.
var running struct {
	sync.Mutex
	planes map[string]*plane
	failed map[string]error
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, p := range running.planes {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if err := p.stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		cancel()
	}
	os.Exit(code)
}

// onEvery runs a test with each version.
func onEvery(t *testing.T, test func(*testing.T, *plane)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: starts Kubernetes control planes in private namespaces")
	}
	for _, v := range versions {
		t.Run(v.name, func(t *testing.T) {
			if v.kubernetes != "" && !*older {
				t.Skip("would compile an older Kubernetes; use make e2e-schedulers, which sets -older")
			}
			p, err := planeOf(v)
			if err != nil {
				t.Fatalf("cannot start a control plane: %v", err)
			}
			test(t, p)
		})
	}
}

func planeOf(v version) (*plane, error) {
	running.Lock()
	defer running.Unlock()
	if p, err := running.planes[v.name], running.failed[v.name]; p != nil || err != nil {
		return p, err
	}
	if running.planes == nil {
		running.planes, running.failed = map[string]*plane{}, map[string]error{}
	}
	p, err := startPlane(v)
	running.planes[v.name], running.failed[v.name] = p, err
	if p == nil {
		delete(running.planes, v.name)
	}
	return p, err
}

// startPlane starts a control plane, and installs the project's custom resource definitions and classes. On failure,
// the control plane keeps running until this process exits.
func startPlane(v version) (*plane, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute) // includes a build without a cache
	defer cancel()
	clone, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	cluster, err := lab.Up(ctx, lab.Options{
		Name: "scheduler-" + strings.ReplaceAll(v.name, ".", "-"), Clone: clone,
		Kubernetes: v.kubernetes, ControlPlaneOnly: true, FeatureGates: v.gates, Progress: os.Stderr,
	})
	if err != nil {
		return nil, err
	}
	config, err := cluster.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no limit: only this test uses the API server
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	served, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, err
	}
	p := &plane{
		Cluster: cluster, client: client, version: served.GitVersion + " (" + v.name +
			")", templates: v.kubernetes == "", encodings: v.encodings,
		derivedAttributes: v.gates["DRADerivedAttributes"],
		driver:            filepath.Join(clone, "bin", "dra-network-driver"), changed: make(chan struct{}),
	}
	if err := testcluster.Define(ctx, cluster); err != nil {
		return nil, err
	}
	if err := p.apply(ctx, classes(slices.Contains(v.encodings, listAttributes))); err != nil {
		return nil, err
	}
	return p, p.watch(ctx)
}
