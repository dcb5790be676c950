package plugin

import (
	"context"
	"errors"
	"path/filepath"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/external"
	"github.com/dra-networking/dra-network-driver/plugin/internal/publish"
	"github.com/dra-networking/dra-network-driver/plugin/internal/status"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// readJournal builds the driver from the state that an earlier process has recorded.
func (d *Driver) readJournal(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	if d.journal.SetAside != "" {
		logger.Error(d.journal.Reason, "Cannot read the journal; moving it aside and preparing the claims again",
			"path", d.journal.SetAside)
	}
	if d.journal.NotesOff != nil {
		logger.Error(d.journal.NotesOff, "Cannot keep notes beside the journal; pods wait longer for the disk")
	}
	if d.journal.Replayed > 0 {
		logger.Info("Read the notes of a driver that was killed", "notes", d.journal.Replayed)
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
	attachments, damagedChains, err := chains.Load(d.dra.Executor)
	if err != nil {
		return err
	}
	logDamaged(ctx, append(damaged, damagedChains...))
	if err := d.exec().AwaitEarlier(ctx, earlierLimit); err != nil {
		logger.Error(err, "Continuing although CNI plugins of an earlier driver process may still run")
	}
	if err := d.external.Sync(""); err != nil {
		logger.Error(err, "Cannot update the files about devices that others attach; retrying in the next sweep")
	}
	return d.sandboxes.Recover(attachments)
}

// earlierLimit is how long CNI plugins that an earlier process started may still run. That process would have killed
// them after 30 s; the remaining ten seconds allow for their exit.
const earlierLimit = 40 * time.Second

// exec returns the executor of CNI plugins.
func (d *Driver) exec() executor.PluginExec {
	return executor.PluginExec{Lock: filepath.Join(d.config.PluginDir, "cni.lock")}
}

// inProcess returns an executor that runs the plugins from the driver's own helper binary in this process.
func (d *Driver) inProcess() executor.InProcessExec {
	plugins := make(map[string]executor.InProcess, len(d.config.Plugins))
	for name, plugin := range d.config.Plugins {
		plugins[filepath.Join(nodeapi.HelperDir(d.config.PluginDir), name)] = plugin
	}
	return executor.InProcessExec{PluginExec: d.exec(), Plugins: plugins}
}

// build connects the components.
//
// Some components depend on others that do not exist yet: CheckFree, for example, uses d.dra. They get functions that
// access these components only when called, after everything is built.
func (d *Driver) build(ctx context.Context, chains *journal.Chains) error {
	var host host.Linux
	bootID, err := host.Boot()
	if err != nil {
		return err
	}
	host.BootID = bootID // all components use the same boot ID
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stopWork = stop
	d.callLog = calllog.New(d.config.LogDir,
		func(err error) { klog.FromContext(ctx).Error(err, "Cannot write the CNI call log") })
	d.calls = calllog.NewBackground(d.callLog)
	runner := executor.New(executor.Options{
		Exec: d.inProcess(), Host: host, Journal: chains,
		Log:  measuredCalls{d.calls, d.metrics, klog.FromContext(ctx)},
		Dirs: d.config.CNIDirs,
		CheckFree: func(ctx context.Context, device *cnichain.Device) error {
			return d.dra.notBusy(ctx, []cnichain.PlanStep{{Device: device}})
		},
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
	observer := &reporter{driver: d}
	d.sandboxes = attach.New(attach.Config{
		Work: work, Executor: runner, Claims: d.claims, Gate: claimGate, Clock: realClock, Observer: observer,
		Metrics: d.metrics.attach, Node: d.config.NodeName, BootID: bootID, PinDir: d.config.NetNSDir,
	})
	d.statuses = status.New(status.Config{Client: d.client, Events: recorder, Claims: d.claims,
		Attachments: d.sandboxes, Clock: realClock, Node: d.config.NodeName})
	observer.Writer = d.statuses
	if d.config.NetworkStatus {
		d.networks = status.NewNetworks(d.client, d.claims, d.sandboxes.States)
	}
	d.external = external.New(d.config.CDIDir, d.config.DeviceInfoDir, d.claims, d.journalLost)
	d.metrics.watch(d.claims, d.sandboxes, runner)
	d.health = status.NewHealth(d.claims, d.unhealthy(runner), realClock)
	if err := d.buildPublisher(ctx, recorder, runner, bootID); err != nil {
		return err
	}
	d.nri = newNRIPlugin(nriConfig{
		Socket: d.config.NRISocket, Cluster: d.cluster, Claims: d.claims, Sandboxes: d.sandboxes, Clock: realClock,
		Namespaces: namespaces{procDir: d.config.HostProcDir, dir: d.config.NetNSDir},
		Work:       work, Metrics: d.metrics, Observer: observer,
	})
	d.dra = newDRAPlugin(draConfig{
		Cluster: d.cluster, Publisher: d.publisher, Claims: d.claims, Sandboxes: d.sandboxes, Executor: runner,
		Gate: claimGate, External: d.external, Statuses: d.statuses, Health: d.health, Metrics: d.metrics,
		Connected: d.nri.runtime.isConnected, Busy: d.cluster.linkUse,
		MissingLinkTypes: d.linkTypes.Missing, Fatal: d.fail, Clock: realClock, Work: work,
	})
	return errors.Join(d.cluster.onChange(d.publisher.TriggerSoon), d.cluster.onReplaced(d.fail),
		d.cluster.onPodGone(d.claims.Wake), d.cluster.onSandbox(d.nri.expectSandbox))
}

// buildPublisher creates the publisher of devices.
func (d *Driver) buildPublisher(
	ctx context.Context, recorder record.EventRecorder, executor *executor.Executor, bootID string,
) error {
	publisher, damaged, err := publish.New(publish.Config{
		NodeName: d.config.NodeName, BootID: bootID, Cluster: d.cluster, Claims: d.claims, Client: d.client,
		ListAttributes: d.config.ListAttributes, CompatibilityGroups: d.config.CompatibilityGroups,
		DB: d.journal.DB, Read: publish.ReadHost(d.sources), Events: discovery.KernelEvents(),
		CNIDirs: d.config.CNIDirs, MissingLinkTypes: d.linkTypes.Missing,
		Quarantined: quarantined(executor), MayBeInPod: mayBeInPod(d.claims, d.sandboxes, executor.Host),
		HealthChanged: d.health.Changed,
		Recorder:      recorder, Metrics: d.metrics.publish, Heartbeats: d.heartbeats, FreeMemory: debug.FreeOSMemory,
		Clock: clock.RealClock{},
	})
	if err != nil {
		return err
	}
	logDamaged(ctx, damaged)
	d.publisher = publisher
	return nil
}

func logDamaged(ctx context.Context, records []journal.Damaged) {
	for _, record := range records {
		klog.FromContext(ctx).Error(record.Err, "Cannot read a journal record; ignoring it", "bucket", record.Bucket,
			"key", record.Key)
	}
}

// unhealthy returns the health problem of an allocated device, or "" if it has none.
func (d *Driver) unhealthy(executor *executor.Executor) func(string, *claims.HeldDevice) string {
	isQuarantined := quarantined(executor)
	return func(claimUID string, held *claims.HeldDevice) string {
		switch {
		case d.publisher.IsGone(held.Facts):
			return "the device no longer exists on the node"
		case isQuarantined(held.Facts):
			return "in quarantine: its cleanup after an earlier pod failed"
		case d.publisher.LostCarrier(held.Facts):
			return "the link has lost its carrier"
		}
		// Health is a property of the device: the kubelet reports it to all pods that share the device, although only
		// one of them lacks its interface.
		if name := d.sandboxes.MissingInterface(claimUID, held); name != "" && held.Exclusive {
			return attach.MissingText(name)
		}
		return ""
	}
}

// quarantined returns a function that reports whether a device is quarantined.
func quarantined(executor *executor.Executor) func(discovery.Device) bool {
	return func(device discovery.Device) bool {
		return executor.Quarantined(&cnichain.Device{PCIAddress: string(device.PCIAddress),
			IfName: string(device.Interface)}) != nil
	}
}
