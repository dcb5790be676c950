package plugin

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/clock"

	"golang.org/x/sync/errgroup"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/publish"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

// ReplayConfig selects a recorded machine and the node as which it is published.
type ReplayConfig struct {
	// Recording is the path to a directory written by `netdra facts --record`.
	Recording string
	// NodeName is the name of a Node object in the cluster. Its labels determine which policies apply.
	NodeName string
	// RestConfig is the configuration for API server clients.
	RestConfig *rest.Config
	// CNIDirs are the directories that are searched for CNI plugins, because devices are offered only for installed
	// plugins.
	CNIDirs []string
	// ListAttributes and CompatibilityGroups have the same meaning as in [Config].
	ListAttributes, CompatibilityGroups bool
}

// replayPeriod is how often the recording is checked for changes. A change to the recording has the same effect as a
// change to the machine.
const replayPeriod = time.Second

// Replay publishes the devices of a recorded machine, as the driver on that machine would, until ctx is done. It serves
// neither a kubelet nor a container runtime, so a pod that is allocated one of the devices never starts.
func Replay(ctx context.Context, config ReplayConfig) error {
	client, err := kubernetes.NewForConfig(config.RestConfig)
	if err != nil {
		return fmt.Errorf("cannot create a client for the API server: %w", err)
	}
	c, err := newCluster(config.RestConfig, client, config.NodeName)
	if err != nil {
		return err
	}
	c.informers = []cache.SharedIndexInformer{c.policies, c.node}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	defer broadcaster.Shutdown()
	p, _, err := publish.New(publish.Config{
		NodeName: config.NodeName, Cluster: c, Claims: &claims.Store{}, Client: client,
		ListAttributes: config.ListAttributes, CompatibilityGroups: config.CompatibilityGroups,
		Read: replayed(config.Recording), Events: polled{config.Recording}, CNIDirs: config.CNIDirs,
		Quarantined: func(discovery.Device) bool { return false },
		MayBeInPod:  func(string, *claims.HeldDevice) bool { return false }, HealthChanged: func() {},
		Recorder: broadcaster.NewRecorder(scheme.Scheme,
			corev1.EventSource{Component: v1alpha1.DriverName, Host: config.NodeName}),
		Metrics:    publish.NewMetrics(prometheus.NewRegistry()),
		FreeMemory: debug.FreeOSMemory, Clock: clock.RealClock{},
		Heartbeats: telemetry.NewHeartbeats(clock.RealClock{}),
	})
	if err != nil {
		return err
	}
	if err := c.onChange(p.TriggerSoon); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.run(ctx) })
	group.Go(func() error {
		if err := c.synced(ctx); err != nil {
			return nil //nolint:nilerr // ctx is done
		}
		// Seed the controller with the first slices. An empty start would delete the slices of the previous process.
		var controller *resourceslice.Controller
		defer func() { controller.Stop() }()
		p.StartPublishing(func(_ context.Context, resources resourceslice.DriverResources) (err error) {
			if controller != nil {
				controller.Update(&resources)
				return nil
			}
			controller, err = resourceslice.StartController(ctx, resourceslice.Options{
				DriverName: v1alpha1.DriverName, KubeClient: client, Resources: &resources, ErrorHandler: p.HandleError,
				Owner: &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: config.NodeName},
			})
			return err
		})
		changes, err := p.Watch(ctx)
		if err != nil {
			return err
		}
		p.Run(ctx, changes)
		return nil
	})
	return group.Wait()
}

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

// polled detects changes to a recording by polling its files.
type polled struct{ dir string }

// Subscribe implements discovery.Events.
func (p polled) Subscribe(ctx context.Context, changed func()) (<-chan error, error) {
	broken, seen := make(chan error, 1), p.state()
	go func() {
		wait.UntilWithContext(ctx, func(context.Context) {
			if now := p.state(); now != seen {
				seen = now
				changed()
			}
		}, replayPeriod)
		broken <- context.Cause(ctx)
	}()
	return broken, nil
}

// state returns a string that changes whenever a file in the recording is written or replaced.
func (p polled) state() string {
	var state strings.Builder
	entries, _ := os.ReadDir(p.dir) // errors are reported when the recording is read
	for _, entry := range entries {
		if info, err := os.Stat(filepath.Join(p.dir, entry.Name())); err == nil {
			fmt.Fprintln(&state, entry.Name(), info.ModTime().UnixNano(), info.Size())
		}
	}
	return state.String()
}
