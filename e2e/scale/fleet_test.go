package scale

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/plugin"
)

// fleet is a set of nodes with the same shape. Their drivers run in this process.
type fleet struct {
	*plane
	shape     shape
	recording string
	cniDir    string
	nodes     int

	mu      sync.Mutex
	changed chan struct{} // closed when something changes
	// published contains the slices observed for each node, keyed by node name and slice name.
	published map[string]map[string]contents
}

// contents describes the content of a slice.
type contents struct {
	pool     string
	devices  int
	revision int64 // the highest policy revision among its devices; 0 without devices
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// newFleet creates the policies, the class and the nodes.
func newFleet(t *testing.T, p *plane, s shape, nodes int) *fleet {
	t.Helper()
	f := &fleet{plane: p, shape: s, recording: s.record(t), cniDir: pluginFiles(t), nodes: nodes,
		changed: make(chan struct{}), published: map[string]map[string]contents{}}
	p.apply(t, s.objects(1))
	f.each(t, nodes, func(ctx context.Context, i int) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}}
		_, err := p.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	})
	return f
}

// watch keeps published up to date until ctx is done. It does not keep the devices in slices, which could use a
// gigabyte of memory.
func (f *fleet) watch(ctx context.Context, t *testing.T) {
	t.Helper()
	api := f.client.ResourceV1().ResourceSlices()
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return api.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return api.Watch(ctx, o)
		},
	}, &resourceapi.ResourceSlice{}, 0, nil)
	if err := informer.SetTransform(func(object any) (any, error) {
		if slice, ok := object.(*resourceapi.ResourceSlice); ok {
			f.see(slice)
			slice.Spec, slice.ManagedFields = resourceapi.ResourceSliceSpec{NodeName: slice.Spec.NodeName}, nil
		}
		return object, nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		if slice, ok := object.(*resourceapi.ResourceSlice); ok {
			f.forget(slice)
		}
	}}); err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the cache of ResourceSlices did not sync")
	}
}

// see records a slice.
func (f *fleet) see(slice *resourceapi.ResourceSlice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.wake()
	node := *slice.Spec.NodeName
	if f.published[node] == nil {
		f.published[node] = map[string]contents{}
	}
	c := contents{pool: slice.Spec.Pool.Name, devices: len(slice.Spec.Devices)}
	for i := range slice.Spec.Devices {
		if r := slice.Spec.Devices[i].Attributes["dra.networking/revision"].IntValue; r != nil {
			c.revision = max(c.revision, *r)
		}
	}
	f.published[node][slice.Name] = c
}

// forget removes the record of a deleted slice.
func (f *fleet) forget(slice *resourceapi.ResourceSlice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.wake()
	delete(f.published[*slice.Spec.NodeName], slice.Name)
}

// wake makes all waiting goroutines recheck their conditions. The caller must hold the lock.
func (f *fleet) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// until waits until holds returns true. holds is called with the lock held.
func (f *fleet) until(ctx context.Context, what string, holds func() bool) error {
	for {
		f.mu.Lock()
		change, ok := f.changed, holds()
		f.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", context.Cause(ctx), what)
		}
	}
}

// complete reports whether all devices on a node have been observed with the given policy revision. The caller must
// hold the lock.
func (f *fleet) complete(i int, revision int64) bool {
	devices := 0
	for _, c := range f.published[nodeName(i)] {
		if c.devices > 0 && c.revision != revision {
			return false
		}
		devices += c.devices
	}
	return devices == f.shape.entries()
}

// slices returns the total number of slices observed for all nodes.
func (f *fleet) slices() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	count := 0
	for _, slices := range f.published {
		count += len(slices)
	}
	return count
}

// writesOfChange returns the number of writes required if all devices on the first nodes change. A pool with a single
// slice keeps its generation and requires one write. A pool with several slices requires one write for each slice.
func (f *fleet) writesOfChange(nodes int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	writes := 0
	for i := range nodes {
		slices, withDevices := map[string]int{}, map[string]int{}
		for _, c := range f.published[nodeName(i)] {
			if slices[c.pool]++; c.devices > 0 {
				withDevices[c.pool]++
			}
		}
		for pool, count := range withDevices {
			if count > 1 {
				count = slices[pool]
			}
			writes += count
		}
	}
	return writes
}

// drive runs the publishing part of a node's driver until ctx is done, with the rate limits of the driver's client.
func (f *fleet) drive(ctx context.Context, i int) error {
	config := rest.CopyConfig(f.config)
	config.QPS, config.Burst = 50, 100
	return plugin.Replay(klog.NewContext(ctx, logr.Discard()), plugin.ReplayConfig{
		Recording: f.recording, NodeName: nodeName(i), RestConfig: config, CNIDirs: []string{f.cniDir},
	})
}

// publishAll runs the drivers for the first nodes, several at a time, until each has published its devices.
func (f *fleet) publishAll(t *testing.T, nodes int) {
	t.Helper()
	f.each(t, nodes, func(ctx context.Context, i int) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- f.drive(ctx, i) }()
		err := f.until(ctx, nodeName(i)+" publishes its devices", func() bool { return f.complete(i, 1) })
		cancel()
		<-ended //nolint:errcheck // the error is that ctx has ended
		return err
	})
}

// each calls do for every i below count, with up to 32 calls at a time.
func (f *fleet) each(t *testing.T, count int, do func(ctx context.Context, i int) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(32)
	for i := range count {
		group.Go(func() error { return do(ctx, i) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}
