package plugin

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"golang.org/x/sync/errgroup"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
)

// ReplayConfig says which recorded machine to publish, and as which node.
type ReplayConfig struct {
	// Recording is a directory as `netdra facts --record` writes it.
	Recording string
	// NodeName is a Node object of the cluster, whose labels decide which policies count.
	NodeName string
	// RestConfig says how to reach the API server.
	RestConfig *rest.Config
	// CNIDirs are where CNI plugins are looked up: only for those that are there devices are offered.
	CNIDirs []string
}

// replayPeriod is how often the recording is read: one that has changed is a machine that has.
const replayPeriod = time.Second

// Replay publishes the devices of a recorded machine until ctx ends, as the driver of that machine would. It serves no
// kubelet and no container runtime, so a pod that gets one of the devices never starts.
func Replay(ctx context.Context, config ReplayConfig) error {
	client, err := kubernetes.NewForConfig(config.RestConfig)
	if err != nil {
		return fmt.Errorf("cannot make a client of the API server: %w", err)
	}
	c, err := newCluster(config.RestConfig, client, config.NodeName)
	if err != nil {
		return err
	}
	c.informers = []cache.SharedIndexInformer{c.policies, c.node}
	p := newPublisher(c, &claims{}, discovery.Sources{}, config.CNIDirs)
	p.read, p.events, p.period = replayed(config.Recording), silent{}, replayPeriod
	if err := c.onChange(p.trigger); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.run(ctx) })
	group.Go(func() error {
		if err := c.synced(ctx); err != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		controller, err := resourceslice.StartController(ctx, resourceslice.Options{
			DriverName: v1alpha1.DriverName, KubeClient: client,
			Owner:        &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: config.NodeName},
			Resources:    &resourceslice.DriverResources{},
			ErrorHandler: func(ctx context.Context, err error, msg string) { klog.FromContext(ctx).Error(err, msg) },
		})
		if err != nil {
			return fmt.Errorf("cannot publish devices: %w", err)
		}
		defer controller.Stop()
		p.startPublishing(func(_ context.Context, resources resourceslice.DriverResources) error {
			controller.Update(&resources)
			return nil
		})
		return p.run(ctx)
	})
	return group.Wait()
}

// replayed reads the facts of a recording.
func replayed(dir string) func(context.Context, []netip.Addr) (discovery.Facts, error) {
	return func(ctx context.Context, _ []netip.Addr) (discovery.Facts, error) {
		recording, err := discovery.OpenRecording(os.DirFS(dir))
		if err != nil {
			return discovery.Facts{}, err
		}
		sources, err := recording.Sources()
		if err != nil {
			return discovery.Facts{}, err
		}
		return discovery.Read(ctx, sources)
	}
}

// silent has no notifications.
type silent struct{}

// Subscribe implements discovery.Events.
func (silent) Subscribe(ctx context.Context, _ func()) (<-chan error, error) {
	broken := make(chan error, 1)
	context.AfterFunc(ctx, func() { broken <- context.Cause(ctx) })
	return broken, nil
}
