package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	nrilog "github.com/containerd/nri/pkg/log"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/clock"

	"golang.org/x/sync/errgroup"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/keylock"
	"github.com/dra-networking/dra-network-driver/plugin/internal/publish"
	"github.com/dra-networking/dra-network-driver/plugin/internal/status"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// Config of the node driver. Paths are those of the host, and must be the same inside the driver's container.
type Config struct {
	// NodeName is the name of this node in Kubernetes.
	NodeName string
	// Version is the driver's, for people.
	Version string
	// RestConfig says how to reach the API server.
	RestConfig *rest.Config
	// PluginDir holds the driver's sockets and its journal: kubelet's directory for the plugin.
	PluginDir string
	// RegistrarDir is kubelet's directory for plugin registration.
	RegistrarDir string
	// CNIDirs are where CNI plugins are looked up.
	CNIDirs []string
	// NetNSDir is where network namespaces are pinned; its mount must be shared with the host.
	NetNSDir string
	// HostProcDir is the host's /proc.
	HostProcDir string
	// CDIDir is where CDI specs are written.
	CDIDir string
	// LogDir is where CNI calls are logged, one folder for each claim.
	LogDir string
	// LogRetention is how long the log of a claim stays after its last line, once the claim is released.
	LogRetention time.Duration
	// NRISocket is the container runtime's NRI socket.
	NRISocket string
	// HTTPAddress serves /healthz, /readyz and /metrics.
	HTTPAddress string
	// ListAttributes publishes CNI plugins as a list (feature DRAListTypeAttributes). The controller must do so, too.
	ListAttributes bool
	// CompatibilityGroups keeps devices apart by groups (feature DRADeviceCompatibilityGroups) where that can say it.
	CompatibilityGroups bool
}

// Driver is the node driver. New builds it, Run runs it once.
type Driver struct {
	config    Config
	client    kubernetes.Interface
	cluster   *cluster
	claims    *claims.Store
	sandboxes *attach.Sandboxes
	publisher *publish.Publisher
	statuses  *status.Writer
	nri       *nriPlugin
	dra       *draPlugin
	callLog   *executor.CallLog
	events    record.EventBroadcaster
	sources   discovery.Sources
	journal   journal.Opened
	metrics   *metrics
	health    *status.Health
	stopWork  context.CancelFunc
	// again prepares claims as if kubelet had asked for it.
	again func(context.Context, []*drapb.Claim) error
	// heartbeats and locks tell whether the driver hangs.
	heartbeats *telemetry.Heartbeats
	locks      *lockProbe

	guarding sync.Mutex
	guard    discovery.Sources // for busy: sources are not for two at once

	mu         sync.Mutex
	waiting    error // why nothing works yet
	registered func() bool
	helper     *kubeletplugin.Helper // nil until DRA is served
	fatal      chan error
}

// New builds a driver. It starts nothing. Close frees what it holds if Run is not called.
func New(_ context.Context, config Config) (driver *Driver, err error) {
	client, err := kubernetes.NewForConfig(config.RestConfig)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client of the API server: %w", err)
	}
	config.CNIDirs = append(slices.Clone(config.CNIDirs), nodeapi.HelperDir(config.PluginDir))
	d := &Driver{
		config: config, client: client, fatal: make(chan error, 1), metrics: newMetrics(),
		registered: func() bool { return false }, waiting: errors.New("starting"),
		heartbeats: telemetry.NewHeartbeats(clock.RealClock{}),
	}
	d.again = d.prepareAgain
	d.locks = &lockProbe{try: func() { _, _, _ = d.sandboxes.Count(), d.claims.All(), d.nri.connected() }}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if d.cluster, err = newCluster(config.RestConfig, client, config.NodeName); err != nil {
		return nil, err
	}
	if d.sources, err = discovery.Host(); err != nil {
		return nil, err
	}
	d.guard, err = discovery.Host()
	return d, err
}

// journalRetry is how often a journal that can't be opened is tried.
const journalRetry = 5 * time.Second

// awaitJournal opens the journal, however long that takes. A process that ended instead would be started again and
// again and help nobody: pods that run are not touched, pods without claims start, and those with claims wait, because
// nothing is registered with kubelet or the runtime. The probe says why.
func (d *Driver) awaitJournal(ctx context.Context, again <-chan time.Time) error {
	return d.await(ctx, again, "Waiting for the journal: no pod with claims starts on this node until it can be opened",
		func() error {
			opened, err := journal.Open(filepath.Join(d.config.PluginDir, "journal.db"), time.Now())
			if err == nil {
				d.journal = opened
			}
			return err
		})
}

// awaitHelper installs the programs that run on the host: without the hook no container that names a claim could start.
func (d *Driver) awaitHelper(ctx context.Context, again <-chan time.Time) error {
	return d.await(ctx, again, "Waiting for the helper programs: no pod with claims starts on this node until they "+
		"can be installed", func() error {
		return installHelper(ctx, nodeapi.HelperDir(d.config.PluginDir))
	})
}

// await tries something until it succeeds, and has the probe say why it does not.
func (d *Driver) await(ctx context.Context, again <-chan time.Time, message string, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		d.mu.Lock()
		isNews := d.waiting.Error() != err.Error()
		d.waiting = err
		d.mu.Unlock()
		if isNews {
			klog.FromContext(ctx).Error(err, message, "again", journalRetry)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again:
		}
	}
}

// readJournal builds the driver on what an earlier one has left.
func (d *Driver) readJournal(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	if d.journal.SetAside != "" {
		logger.Error(d.journal.Reason, "Cannot read the journal; it is set aside, and claims are prepared again",
			"path", d.journal.SetAside)
	}
	claims, damaged, err := claims.Load(d.journal.DB)
	if err != nil {
		return err
	}
	chains, err := journal.NewChains(d.journal.DB)
	if err != nil {
		return err
	}
	d.claims = claims
	if err := d.build(ctx, chains); err != nil {
		return err
	}
	attachments, damagedChains, err := chains.Load(d.dra.executor)
	if err != nil {
		return err
	}
	for _, record := range append(damaged, damagedChains...) {
		logger.Error(record.Err, "Cannot read a journal record; it is ignored", "bucket", record.Bucket,
			"key", record.Key)
	}
	if err := d.exec().AwaitEarlier(ctx, earlierLimit); err != nil {
		logger.Error(err, "Continuing although CNI plugins of an earlier driver process may still run")
	}
	return d.sandboxes.Recover(attachments)
}

// earlierLimit is how long CNI plugins that an earlier process started may still run. That process would
// have ended them after 30 s; ten more are for their end.
const earlierLimit = 40 * time.Second

// exec runs CNI plugins.
func (d *Driver) exec() executor.PluginExec {
	return executor.PluginExec{Lock: filepath.Join(d.config.PluginDir, "cni.lock")}
}

// build wires the pieces.
func (d *Driver) build(ctx context.Context, chains *journal.Chains) error {
	var host host.Linux
	bootID, err := host.Boot()
	if err != nil {
		return err
	}
	host.BootID = bootID // one answer for all that the process does
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stopWork = stop
	d.callLog = executor.NewCallLog(d.config.LogDir,
		func(err error) { klog.FromContext(ctx).Error(err, "Cannot write the CNI call log") })
	runner := executor.New(executor.Options{
		Exec: d.exec(), Host: host, Journal: chains, Log: measuredCalls{d.callLog, d.metrics, klog.FromContext(ctx)},
		Dirs:      d.config.CNIDirs,
		CheckFree: func(ctx context.Context, device *cnichain.Device) error { return d.dra.notBusy(ctx, device) },
		OnLeftover: func(leftover executor.Leftover) {
			klog.FromContext(ctx).Error(errors.New(leftover.Reason),
				"Cannot roll back a step; it is kept as a leftover and tried again later", "leftover", leftover.Key,
				"pod", leftover.Attachment.Pod.String(), "quarantined", leftover.Quarantines() != nil)
		},
	})
	d.events = record.NewBroadcaster(record.WithContext(ctx))
	recorder := d.events.NewRecorder(scheme.Scheme,
		corev1.EventSource{Component: v1alpha1.DriverName, Host: d.config.NodeName})
	realClock := clock.RealClock{}
	claimGate := attach.NewGate(d.config.CDIDir, d.helperPath())
	d.sandboxes = attach.New(attach.Config{
		Work: work, Executor: runner, Claims: d.claims, Gate: claimGate, Clock: realClock, Observer: reporter{d},
		Metrics: d.metrics.attach, Node: d.config.NodeName, BootID: bootID, PinDir: d.config.NetNSDir,
	})
	d.statuses = status.New(status.Config{Client: d.client, Events: recorder, Claims: d.claims,
		Attachments: d.sandboxes, Clock: realClock, Node: d.config.NodeName})
	d.metrics.watch(d.claims, d.sandboxes, runner)
	d.health = status.NewHealth(d.claims, d.unhealthy(runner), realClock)
	if err := d.buildPublisher(ctx, recorder, runner, bootID); err != nil {
		return err
	}
	d.nri = &nriPlugin{
		socket: d.config.NRISocket, cluster: d.cluster, claims: d.claims, sandboxes: d.sandboxes, clock: realClock,
		work: work, observer: reporter{d},
		namespaces: namespaces{procDir: d.config.HostProcDir, dir: d.config.NetNSDir},
		metrics:    d.metrics, unclaimed: newUnclaimedSandboxes(),
	}
	d.dra = &draPlugin{
		cluster: d.cluster, publisher: d.publisher, claims: d.claims, sandboxes: d.sandboxes, executor: runner,
		gate:     claimGate,
		statuses: d.statuses, health: d.health, metrics: d.metrics, locks: keylock.New(1), connected: d.nri.connected,
		busy: d.busy, fatal: d.fail, clock: realClock, work: work,
	}
	return errors.Join(d.cluster.onChange(d.publisher.Trigger), d.cluster.onReplaced(d.fail),
		d.cluster.onPodGone(d.claims.Wake))
}

// buildPublisher wires what publishes devices.
func (d *Driver) buildPublisher(
	ctx context.Context, recorder record.EventRecorder, executor *executor.Executor, bootID string,
) error {
	publisher, damaged, err := publish.New(publish.Config{
		NodeName: d.config.NodeName, BootID: bootID, Cluster: d.cluster, Claims: d.claims, Client: d.client,
		ListAttributes: d.config.ListAttributes, CompatibilityGroups: d.config.CompatibilityGroups,
		DB: d.journal.DB, Read: publish.ReadHost(d.sources), Events: discovery.KernelEvents(),
		CNIDirs:     d.config.CNIDirs,
		Quarantined: quarantined(executor), MayBeInPod: d.sandboxes.MayBeInPod, HealthChanged: d.health.Changed,
		Recorder: recorder, Metrics: d.metrics.publish, Heartbeats: d.heartbeats, FreeMemory: debug.FreeOSMemory,
		Clock: clock.RealClock{},
	})
	if err != nil {
		return err
	}
	for _, record := range damaged {
		klog.FromContext(ctx).Error(record.Err, "Cannot read a journal record; it is ignored", "bucket", record.Bucket,
			"key", record.Key)
	}
	d.publisher = publisher
	return nil
}

// unhealthy says what is wrong with a device that a claim holds; empty if nothing.
func (d *Driver) unhealthy(executor *executor.Executor) func(string, *claims.HeldDevice) string {
	isQuarantined := quarantined(executor)
	return func(claimUID string, held *claims.HeldDevice) string {
		switch {
		case d.publisher.IsGone(held.Facts):
			return "the device does not exist on the node any more"
		case isQuarantined(held.Facts):
			return "in quarantine: what an earlier pod left on it could not be removed"
		case d.publisher.LostCarrier(held.Facts):
			return "the link has lost its carrier"
		}
		// Health is of a device, and kubelet gives it to all pods that share it: only one of them misses the interface.
		if name := d.sandboxes.MissingInterface(claimUID, held); name != "" && held.Exclusive {
			return attach.MissingText(name)
		}
		return ""
	}
}

// quarantined reports whether a device is held back.
func quarantined(executor *executor.Executor) func(discovery.Device) bool {
	return func(device discovery.Device) bool {
		return executor.Quarantined(&cnichain.Device{PCIAddress: string(device.PCIAddress),
			IfName: string(device.Interface)}) != nil
	}
}

// busy says what the node itself does with a link. While the addresses of the Node object are not known, any address
// may be one of them, and nothing is given away for that.
func (d *Driver) busy(ctx context.Context, name discovery.IfName) (discovery.Use, error) {
	d.guarding.Lock()
	defer d.guarding.Unlock()
	sources := d.guard
	node, unknown := d.cluster.ThisNode()
	if unknown == nil {
		sources.NodeAddresses = publish.NodeAddresses(node)
	}
	use, err := discovery.Busy(ctx, sources, name)
	use.Restorable = use.Restorable && unknown == nil
	return use, err
}

// fail ends Run.
func (d *Driver) fail(err error) {
	select {
	case d.fatal <- err:
	default:
	}
}

// Close frees what New opened.
func (d *Driver) Close() {
	if d.stopWork != nil {
		d.stopWork()
	}
	d.sources.Close()
	d.guard.Close()
	if d.journal.DB != nil {
		_ = d.journal.Close()
	}
}

// shutdownLimit is how long a stopping driver lets running chains end: a call of a plugin takes 30 s at most, and
// kubelet kills the pod after its terminationGracePeriodSeconds, which is 60 s.
const shutdownLimit = 45 * time.Second

// Run runs the driver until ctx ends or something fails that only a new process cures. NRI and the gates come up first
// and without the API server, so that pods without claims and those that are prepared are served while it is down.
func (d *Driver) Run(ctx context.Context) error {
	defer d.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.serveHTTP(ctx) })
	group.Go(func() error {
		ticker := time.NewTicker(journalRetry)
		defer ticker.Stop()
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

// serve works on the journal.
func (d *Driver) serve(ctx context.Context) error {
	if err := os.MkdirAll(d.config.CDIDir, 0o755); err != nil {
		return fmt.Errorf("cannot make the CDI directory: %w", err)
	}
	if err := d.readJournal(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	d.waiting = nil
	d.mu.Unlock()
	// NRI outlives DRA: a pod that was prepared must still be attached while the driver stops.
	nriCtx, stopNRI := context.WithCancel(context.WithoutCancel(ctx))
	defer stopNRI()
	group, ctx := errgroup.WithContext(ctx)
	nrilog.Set(nriLogger{klog.FromContext(ctx)})
	group.Go(func() error { return d.nri.run(nriCtx) })
	group.Go(func() error { return d.cluster.run(ctx) })
	group.Go(func() error { return d.statuses.Run(ctx) })
	group.Go(func() error { return d.sweepLogs(ctx) })
	group.Go(func() error { return d.retryLeftovers(ctx) })
	group.Go(func() error { return d.sweeper().Run(ctx) })
	group.Go(func() error { return d.serveDebug(ctx) })
	group.Go(func() error { return d.watchFatal(ctx) })
	group.Go(func() error {
		defer stopNRI()
		defer d.finishWork()
		return d.serveDRA(ctx)
	})
	d.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: d.client.CoreV1().Events("")})
	defer d.events.Shutdown()
	return group.Wait()
}

// sweeper checks what no event reports to the driver.
func (d *Driver) sweeper() *attach.Sweeper {
	return &attach.Sweeper{
		Sandboxes: d.sandboxes, PodIsGone: d.cluster.podIsGone, IsNamed: d.nri.namespaces.isNamed,
		Heartbeats: d.heartbeats,
		Swept: func(ctx context.Context) {
			d.repairMetadata(ctx)
			d.recoverLost(ctx)
			d.statuses.ForgetOld()
		},
	}
}

// helperPath is where the binary is that the runtime runs as a hook.
func (d *Driver) helperPath() string {
	return filepath.Join(nodeapi.HelperDir(d.config.PluginDir), nodeapi.HelperName)
}

// leftoverRetry is how often what could not be undone is tried again.
const leftoverRetry = 5 * time.Minute

// retryLeftovers takes devices out of quarantine when they have returned to the host after all.
func (d *Driver) retryLeftovers(ctx context.Context) error {
	ticker := time.NewTicker(leftoverRetry)
	defer ticker.Stop()
	for {
		for _, leftover := range d.dra.executor.Leftovers() {
			if err := d.retryLeftover(ctx, leftover.Key); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot clean up a leftover; it is tried again later", "leftover",
					leftover.Key)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
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

// serveDRA registers with kubelet and publishes until ctx ends. It registers first: pods can end while the devices, or
// the API server, are not known, and only claims can't be prepared.
func (d *Driver) serveDRA(ctx context.Context) error {
	helper, err := kubeletplugin.Start(ctx, d.dra,
		kubeletplugin.DriverName(v1alpha1.DriverName), kubeletplugin.NodeName(d.config.NodeName),
		kubeletplugin.KubeClient(d.client),
		kubeletplugin.PluginDataDirectoryPath(d.config.PluginDir),
		kubeletplugin.RegistrarDirectoryPath(d.config.RegistrarDir),
		kubeletplugin.Serialize(false), kubeletplugin.CDIDirectory(d.config.CDIDir),
		kubeletplugin.EnableDeviceMetadata(true, metadataVersions()))
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
	if err := d.cluster.synced(ctx); err != nil {
		return nil //nolint:nilerr // ctx has ended
	}
	d.repairMetadata(ctx) // somebody may have removed files while no driver was there
	changes, err := d.publisher.Watch(ctx)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(socketPeriod)
	defer ticker.Stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.publisher.Settle(ctx, helper.PublishResources) })
	group.Go(func() error { d.publisher.Run(ctx, changes); return nil })
	group.Go(func() error { return watchSockets(ctx, ticker.C, d.socketsAreThere) })
	return group.Wait()
}

// finishWork lets what runs end, and nothing begin again.
func (d *Driver) finishWork() {
	d.stopWork()
	done := make(chan struct{})
	go func() {
		d.sandboxes.FinishWork()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(shutdownLimit):
	}
}

// sweepLogs removes the CNI logs of claims that are long gone.
func (d *Driver) sweepLogs(ctx context.Context) error {
	ticker := time.NewTicker(max(d.config.LogRetention/4, time.Minute))
	defer ticker.Stop()
	for {
		err := d.callLog.Sweep(time.Now().Add(-d.config.LogRetention), func(uid string) bool {
			_, prepared := d.claims.Get(uid)
			return prepared
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot remove old CNI logs", "dir", d.config.LogDir)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
