package scheduler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// patience is the time limit for every wait in a test. The scheduler retries rejected pods within ten seconds.
const patience = 2 * time.Minute

// plane is a control plane, together with caches for the objects that tests read.
type plane struct {
	*lab.Cluster
	client  kubernetes.Interface
	driver  string // the binary
	version string // the version, for messages
	// templates is true if the claims for pods in tests are created from templates. The scheduler in 1.36 sometimes
	// misses the creation of such claims, and then retries the pod only minutes later.
	templates bool
	// encodings lists the driver flags for which classes are generated.
	encodings []string
	// derivedAttributes is true if claims can derive device attributes.
	derivedAttributes bool

	pods   corelisters.PodNamespaceLister
	claims resourcelisters.ResourceClaimNamespaceLister
	slices resourcelisters.ResourceSliceLister
	end    context.CancelFunc // stops the caches

	mu      sync.Mutex
	changed chan struct{} // closed when a cache changes
	nodes   int           // number of nodes so far
}

// watch fills the caches, and keeps them up to date until stop is called.
func (p *plane) watch(ctx context.Context) error {
	forever, end := context.WithCancel(context.Background())
	p.end = end
	factory := informers.NewSharedInformerFactory(p.client, 0)
	resources := factory.Resource().V1()
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().Pods().Informer(), resources.ResourceClaims().Informer(),
		resources.ResourceSlices().Informer(),
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { p.wake() }, UpdateFunc: func(any, any) { p.wake() },
			DeleteFunc: func(any) { p.wake() },
		}); err != nil {
			return err
		}
	}
	p.pods = factory.Core().V1().Pods().Lister().Pods(metav1.NamespaceDefault)
	p.claims = resources.ResourceClaims().Lister().ResourceClaims(metav1.NamespaceDefault)
	p.slices = resources.ResourceSlices().Lister()
	factory.StartWithContext(forever)
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("cannot watch %s: %w", kind, context.Cause(ctx))
		}
	}
	return nil
}

// stop stops the caches and the cluster.
func (p *plane) stop(ctx context.Context) error {
	if p.end != nil {
		p.end()
	}
	return p.Down(ctx)
}

// wake makes all waiting tests recheck their conditions.
func (p *plane) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// change returns a channel that will be closed when a cache next changes.
func (p *plane) change() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// until waits until holds returns nil. It calls holds again whenever a cache has changed.
func (p *plane) until(ctx context.Context, what string, holds func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("timed out after %s", patience))
	defer cancel()
	for {
		change := p.change() // get the channel first; otherwise, a change after the check would be missed
		err := holds()
		if err == nil {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return fmt.Errorf("%w: %s: %w", context.Cause(ctx), what, err)
		}
	}
}

// apply applies YAML.
func (p *plane) apply(ctx context.Context, text string) error {
	cmd := p.Command(ctx, "kubectl", "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := p.Run(cmd); err != nil {
		return fmt.Errorf("cannot apply: %w\n%s\n%s", err, output.String(), text)
	}
	return nil
}

// node is a Node object with a driver that publishes the devices in a recording of a machine.
type node struct {
	*plane
	name string
}

// publish creates a node for the machine recorded in the directory recording, with policies that apply only to this
// node. The driver runs with the given flags until the end of the test. Since pool names contain the node name, a node
// is not affected by earlier tests.
func (p *plane) publish(
	t *testing.T, title, recording string, policies []v1alpha1.DeviceExposurePolicy, flags ...string,
) node {
	t.Helper()
	p.mu.Lock()
	p.nodes++
	n := node{plane: p, name: fmt.Sprintf("%s-%d", title, p.nodes)}
	p.mu.Unlock()
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{corev1.LabelHostname: n.name}},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1000")},
		},
	}
	if _, err := p.client.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.apply(t.Context(), n.owned(t, policies)); err != nil {
		t.Fatal(err)
	}
	n.drive(t, append([]string{"--recording=" + recording}, flags...)...)
	return n
}

// owned returns policies as YAML, with names that are unique to the node and selectors that match only the node.
func (n node) owned(t *testing.T, policies []v1alpha1.DeviceExposurePolicy) string {
	t.Helper()
	var documents []string
	for _, policy := range policies {
		policy.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "DeviceExposurePolicy"}
		policy.Name = n.name + "-" + policy.Name
		policy.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: n.name}}
		data, err := yaml.Marshal(policy)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(data))
	}
	return strings.Join(documents, "\n---\n")
}

// drive runs the driver until the end of the test.
func (n node) drive(t *testing.T, flags ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "driver.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := n.Command(context.Background(), append([]string{n.driver, "publish",
		"--node-name=" + n.name, "--kubeconfig=" + n.Kubeconfig(), "--cni-bin-dir=" + pluginFiles(t)}, flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := n.StartCommand(cmd); err != nil {
		t.Fatalf("cannot run the driver, which `make build` builds: %v", err)
	}
	t.Cleanup(func() {
		err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait(), log.Close())
		if text, readErr := os.ReadFile(log.Name()); err != nil || t.Failed() {
			t.Logf("output of the driver of node %s:\n%s", n.name, text)
			err = errors.Join(err, readErr)
		}
		if err != nil {
			t.Errorf("the driver of node %s: %v", n.name, err)
		}
	})
}

// pluginFiles returns a directory with an empty file for each CNI plugin that tests use, so that the driver finds the
// plugins.
func pluginFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"bridge", "host-device", "ipvlan", "macvlan", "ovn-k8s-cni-overlay", "sriov"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// published returns the slices published for the node. It returns an error if a pool is incomplete.
func (n node) published() ([]*resourceapi.ResourceSlice, error) {
	all, err := n.slices.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var mine []*resourceapi.ResourceSlice
	pools := map[resourceapi.ResourcePool]int64{}
	for _, slice := range all {
		if slice.Spec.NodeName != nil && *slice.Spec.NodeName == n.name {
			mine = append(mine, slice)
			pools[slice.Spec.Pool]++
		}
	}
	for pool, count := range pools {
		if count != pool.ResourceSliceCount {
			return nil, fmt.Errorf("pool %s of generation %d has %d of %d slices", pool.Name, pool.Generation, count,
				pool.ResourceSliceCount)
		}
	}
	return mine, nil
}

// devices returns the devices published for the node, keyed by name.
func (n node) devices() (map[string]resourceapi.Device, error) {
	slices, err := n.published()
	devices := map[string]resourceapi.Device{}
	for _, slice := range slices {
		for _, device := range slice.Spec.Devices {
			devices[device.Name] = device
		}
	}
	return devices, err
}

// offers waits until the given number of devices is published for the node.
func (n node) offers(t *testing.T, count int) {
	t.Helper()
	err := n.until(t.Context(), fmt.Sprintf("node %s offers %d devices", n.name, count), func() error {
		devices, err := n.devices()
		if err == nil && len(devices) != count {
			err = fmt.Errorf("the node offers %d devices", len(devices))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
