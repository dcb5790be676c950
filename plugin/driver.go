package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	nrilog "github.com/containerd/nri/pkg/log"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/clock"

	"golang.org/x/sync/errgroup"

	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/nodeattributes"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/status"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// Config is the configuration of the node driver. Paths are host paths, and the same files must exist at the same paths
// in the driver's container.
type Config struct {
	// NodeName is the name of this node in Kubernetes.
	NodeName string
	// Version is the driver's version, for display only.
	Version string
	// RestConfig is the configuration for API server clients.
	RestConfig *rest.Config
	// PluginDir is the kubelet's directory for this DRA plugin. It contains the driver's sockets and journal.
	PluginDir string
	// RegistrarDir is the kubelet's directory for plugin registration.
	RegistrarDir string
	// CNIDirs are the directories that are searched for CNI plugins.
	CNIDirs []string
	// NetNSDir is where network namespaces are pinned; its mount must be shared with the host.
	NetNSDir string
	// HostProcDir is the host's /proc.
	HostProcDir string
	// CDIDir is where CDI specs are written.
	CDIDir string
	// DeviceInfoDir is the directory where the driver writes allocations for other components that attach devices.
	DeviceInfoDir string
	// LogDir is where CNI calls are logged, with one directory for each claim.
	LogDir string
	// LogRetention is how long the log of a released claim is kept after the last line was written.
	LogRetention time.Duration
	// AttributeDir is the directory that contains the files with device attributes. It is optional.
	AttributeDir string
	// NRISocket is the container runtime's NRI socket.
	NRISocket string
	// HTTPAddress is the address on which /healthz, /readyz and /metrics are served.
	HTTPAddress string
	// ListAttributes enables publishing the CNI plugins of a device as a list (feature gate DRAListTypeAttributes). The
	// controller must use the same setting.
	ListAttributes bool
	// CompatibilityGroups enables compatibility groups (feature gate DRADeviceCompatibilityGroups), which keep
	// incompatible devices apart if the rules can be expressed as groups.
	CompatibilityGroups bool
	// Plugins maps names to the CNI plugins in the helper binary that the driver can run in its own process.
	Plugins map[string]executor.InProcess
	// NetworkStatus enables the k8s.v1.cni.cncf.io/network-status annotation, which lists the interfaces of each pod.
	NetworkStatus bool
}

// Driver is the node driver. New builds it; Run runs it once.
type Driver struct {
	components
	config   Config
	client   kubernetes.Interface
	networks *status.Networks // nil unless NetworkStatus is set
	nri      *nriPlugin
	dra      *draPlugin
	callLog  *calllog.Log
	calls    *calllog.Background // writes to callLog in the background
	events   record.EventBroadcaster
	sources  discovery.Sources // used by the publisher
	// attributes reads the attributes of devices from files.
	attributes nodeattributes.Directory
	linkUse    linkUse
	linkTypes  *host.LinkTypes
	journal    journal.Opened
	stopWork   context.CancelFunc
	// again prepares claims again, in the same way as a call from the kubelet.
	again func(context.Context, []*drapb.Claim) error
	// heartbeats and locks detect a hung driver.
	heartbeats *telemetry.Heartbeats
	locks      *lockProbe

	startup   *startup
	installed installation

	mu         sync.Mutex
	registered func() bool
	helper     *kubeletplugin.Helper // nil until the driver serves DRA calls
	fatal      chan error
}

// New builds a driver without starting anything. If Run is not called, Close releases its resources.
func New(_ context.Context, config Config) (driver *Driver, err error) {
	client, err := kubernetes.NewForConfig(config.RestConfig)
	if err != nil {
		return nil, fmt.Errorf("cannot create a client for the API server: %w", err)
	}
	config.CNIDirs = append(slices.Clone(config.CNIDirs), nodeapi.HelperDir(config.PluginDir))
	d := &Driver{
		components: components{Metrics: newMetrics(config.Version), Clock: clock.RealClock{}},
		config:     config, client: client, fatal: make(chan error, 1),
		registered: func() bool { return false }, startup: newStartup(),
		heartbeats: telemetry.NewHeartbeats(clock.RealClock{}),
		linkTypes:  host.NewLinkTypes(host.MissingLinkTypes, clock.RealClock{}),
	}
	d.again, d.attributes.Path = d.prepareAgain, config.AttributeDir
	if d.installed, err = newInstallation(&config, nodeapi.HelperDir(config.PluginDir)); err != nil {
		return nil, err
	}
	d.locks = &lockProbe{try: func() { _, _, _ = d.Sandboxes.Count(), d.Claims.All(), d.nri.runtime.isConnected() }}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if d.Cluster, err = newCluster(config.RestConfig, client, config.NodeName); err != nil {
		return nil, err
	}
	if d.sources, err = discovery.Host(); err != nil {
		return nil, err
	}
	d.linkUse.cluster = d.Cluster
	d.linkUse.sources, err = discovery.Host()
	return d, err
}

const journalRetry = 5 * time.Second

// awaitJournal opens the journal, retrying until it succeeds, because exiting would only cause restarts. In the
// meantime, running pods are not affected, pods without claims start, and pods with claims wait, because the driver is
// not registered with the kubelet or the runtime. The readiness probe reports the reason. For example, the previous
// driver process may still hold the lock because it is finishing its chains.
func (d *Driver) awaitJournal(ctx context.Context, again <-chan time.Time) error {
	return d.startup.await(ctx, again, "Waiting for the journal: no pod with claims starts on this node until it can "+
		"be opened", func() error {
		opened, err := journal.Open(d.journalPath(), clock.RealClock{})
		if err != nil {
			return err
		}
		d.journal = opened
		d.installed.journal, err = os.Lstat(d.journalPath())
		return err
	})
}

// awaitHelper installs the programs that run on the host, retrying until it succeeds. Without the hook, containers that
// name a claim cannot start.
func (d *Driver) awaitHelper(ctx context.Context, again <-chan time.Time) error {
	return d.startup.await(ctx, again, "Waiting for the helper programs: no pod with claims starts on this node "+
		"until they can be installed", func() error {
		return d.installed.helper.Install(ctx)
	})
}

func (d *Driver) fail(err error) {
	select {
	case d.fatal <- err:
	default:
	}
}

// Close releases the resources that New acquired.
func (d *Driver) Close() {
	if d.stopWork != nil {
		d.stopWork()
	}
	d.sources.Close()
	d.linkUse.close()
	if d.journal.DB != nil {
		_ = d.journal.Close()
	}
}

// shutdownLimit is how long a stopping driver waits for running chains to finish: a plugin call takes at most 30 s, and
// the kubelet kills the pod after its terminationGracePeriodSeconds, which is 60 s.
const shutdownLimit = 45 * time.Second

// Run runs the driver until ctx is done or an error occurs that requires a new process. NRI and the gates start first
// and do not need the API server, so pods without claims and prepared pods can start while the API server is down.
func (d *Driver) Run(ctx context.Context) error {
	defer d.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.serveHTTP(ctx) })
	group.Go(func() error {
		ticker := time.NewTicker(journalRetry)
		defer ticker.Stop()
		if err := d.installed.directories.Note(); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot watch the directories of the host: removed ones are not restored")
		}
		if err := d.awaitHelper(ctx, ticker.C); err != nil {
			return err
		}
		if err := d.awaitJournal(ctx, ticker.C); err != nil {
			return err
		}
		return d.serve(ctx)
	})
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// serve runs the driver with an open journal.
//
// Before it accepts calls, it reads the journal and adopts the state of the previous driver process. Otherwise, its
// responses to the kubelet and the runtime would be based on an empty state.
func (d *Driver) serve(ctx context.Context) error {
	d.repairInstallation(ctx)
	if err := d.readJournal(ctx); err != nil {
		return err
	}
	d.startup.complete()
	// NRI outlives DRA: while the driver is shutting down, it must still attach pods whose claims are already prepared.
	nriCtx, stopNRI := context.WithCancel(context.WithoutCancel(ctx))
	defer stopNRI()
	group, ctx := errgroup.WithContext(ctx)
	nrilog.Set(nriLogger{klog.FromContext(ctx)})
	group.Go(func() error { return d.nri.run(nriCtx) })
	group.Go(func() error { return d.Cluster.run(ctx) })
	group.Go(func() error { return d.Statuses.Run(ctx) })
	group.Go(func() error { return d.networks.Run(ctx) })
	every := func(period time.Duration, do func(context.Context)) {
		group.Go(func() error { wait.UntilWithContext(ctx, do, period); return nil })
	}
	every(max(d.config.LogRetention/4, time.Minute), d.sweepLogs)
	every(leftoverRetry, d.retryLeftovers)
	group.Go(func() error { return d.sweepUntilDone(ctx) })
	group.Go(func() error { return d.serveDebug(ctx) })
	group.Go(func() error { return d.watchFatal(ctx) })
	group.Go(func() error {
		defer stopNRI()
		// The shutdown order is DRA, then running chains, then NRI. Pods that start in the meantime are attached or
		// rejected, since the driver is still responding.
		defer d.finishWork()
		return d.serveDRA(ctx)
	})
	d.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: d.client.CoreV1().Events("")})
	defer d.events.Shutdown()
	return group.Wait()
}

const (
	// sweepPeriod is how often the driver checks for changes that are not reported by events.
	sweepPeriod = 30 * time.Second
	// sweepLimit is the time without a completed sweep after which the driver is considered hung.
	sweepLimit = 5 * time.Minute
)

func (d *Driver) sweepUntilDone(ctx context.Context) error {
	const loop = "sweeps"
	defer d.heartbeats.End(loop)
	sweeper := &attach.Sweeper{Sandboxes: d.Sandboxes, PodHasEnded: d.Cluster.podHasEnded,
		IsNamed: d.nri.Namespaces.isNamed}
	ticker := time.NewTicker(sweepPeriod)
	defer ticker.Stop()
	for {
		d.heartbeats.Beat(loop, sweepLimit)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		d.sweep(ctx, sweeper)
		d.repairFiles(ctx)
		d.recoverLost(ctx)
		d.Statuses.ForgetOld()
	}
}

// sweep repairs the installation and then checks all sandboxes and gates. The repair comes first because the checks
// write files to the installation's directories.
func (d *Driver) sweep(ctx context.Context, sweeper *attach.Sweeper) {
	d.repairInstallation(ctx)
	d.installed.defects.note(ctx, partGates, sweeper.Sweep())
}

func (d *Driver) helperPath() string {
	return filepath.Join(nodeapi.HelperDir(d.config.PluginDir), nodeapi.HelperName)
}

const leftoverRetry = 5 * time.Minute

// retryLeftovers retries failed rollbacks. A device leaves quarantine once it has returned to the host.
func (d *Driver) retryLeftovers(ctx context.Context) {
	for _, leftover := range d.Executor.Leftovers() {
		if _, err := d.retryLeftover(ctx, leftover.Key, false); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot clean up a leftover; retrying later", "leftover",
				leftover.Key)
		}
	}
}

func (d *Driver) watchFatal(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-d.fatal:
		return err
	}
}

// serveDRA registers with the kubelet and publishes devices until ctx is done. It registers first, so that pods can
// terminate even if the devices or the API server are unavailable; in that case, only Prepare fails.
func (d *Driver) serveDRA(ctx context.Context) error {
	helper, err := kubeletplugin.Start(ctx, d.dra,
		kubeletplugin.DriverName(v1alpha1.DriverName), kubeletplugin.NodeName(d.config.NodeName),
		kubeletplugin.KubeClient(d.client), kubeletplugin.PluginDataDirectoryPath(d.config.PluginDir),
		kubeletplugin.RegistrarDirectoryPath(d.config.RegistrarDir),
		kubeletplugin.Serialize(false), kubeletplugin.CDIDirectory(d.config.CDIDir),
		kubeletplugin.EnableDeviceMetadata(true, metadataVersions()), kubeletplugin.MetadataFileOps(metadataFiles()))
	if err != nil {
		return fmt.Errorf("cannot register with kubelet: %w", err)
	}
	defer helper.Stop()
	d.mu.Lock()
	d.helper = helper
	d.registered = func() bool {
		status := helper.RegistrationStatus()
		return status != nil && status.PluginRegistered
	}
	d.mu.Unlock()
	if err := d.Cluster.synced(ctx); err != nil {
		return nil //nolint:nilerr // ctx is done
	}
	d.repairFiles(ctx) // files may have been removed while the driver was down
	changes, err := d.Publisher.Watch(ctx)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(socketPeriod)
	defer ticker.Stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.Publisher.Settle(ctx, helper.PublishResources) })
	group.Go(func() error { d.Publisher.Run(ctx, changes); return nil })
	group.Go(func() error { return watchSockets(ctx, ticker.C, d.socketsAreThere) })
	return group.Wait()
}

// finishWork stops accepting work and waits for running work to finish. Work that does not finish in time is aborted
// when the process exits, and the next driver process uses the journal to roll it back.
func (d *Driver) finishWork() {
	d.stopWork()
	done := make(chan struct{})
	go func() {
		d.Sandboxes.FinishWork()
		d.calls.Flush()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(shutdownLimit):
	}
}

func (d *Driver) sweepLogs(ctx context.Context) {
	if err := d.callLog.Sweep(time.Now().Add(-d.config.LogRetention), d.isPrepared); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove old CNI logs", "dir", d.config.LogDir)
	}
}
