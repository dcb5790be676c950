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

// readJournal builds the driver from the state recorded by an earlier process.
func (d *Driver) readJournal(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	if d.journal.SetAside != "" {
		logger.Error(d.journal.Reason, "Cannot read the journal; moving it aside and preparing the claims again",
			"path", d.journal.SetAside)
	}
	if d.journal.NotesOff != nil {
		logger.Error(d.journal.NotesOff, "Cannot write notes next to the journal; pods wait longer, until the journal is on disk")
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
	d.Claims = claims
	if err := d.build(ctx, chains); err != nil {
		return err
	}
	attachments, damagedChains, err := chains.Load(d.Executor)
	if err != nil {
		return err
	}
	logDamaged(ctx, append(damaged, damagedChains...))
	if err := d.exec().AwaitEarlier(ctx, earlierLimit); err != nil {
		logger.Error(err, "Continuing although CNI plugins of an earlier driver process may still run")
	}
	if err := d.External.Sync(""); err != nil {
		logger.Error(err, "Cannot update the files about externally attached devices; retrying in the next sweep")
	}
	return d.Sandboxes.Recover(attachments)
}

// earlierLimit is how long CNI plugins that were started by an earlier process may continue to run. That process would
// have killed them after 30 s; the remaining ten seconds give them time to exit.
const earlierLimit = 40 * time.Second

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
// Some components depend on others that do not exist yet: CheckFree, for example, uses d.dra. Such components are given
// functions that access the other components only when they are called, which is after everything has been built.
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
	d.Executor = executor.New(executor.Options{
		Exec: d.inProcess(), Host: host, Journal: chains,
		Log:  measuredCalls{d.calls, d.Metrics, klog.FromContext(ctx)},
		Dirs: d.config.CNIDirs,
		CheckFree: func(ctx context.Context, device *cnichain.Device) error {
			return d.dra.notBusy(ctx, []cnichain.PlanStep{{Device: device}})
		},
		OnLeftover: func(leftover executor.Leftover) {
			klog.FromContext(ctx).Error(errors.New(leftover.Reason),
				"Cannot roll back a step; keeping it as a leftover and retrying later", "leftover", leftover.Key,
				"pod", leftover.Attachment.Pod.String(), "quarantined", leftover.Quarantines() != nil)
		},
	})
	d.events = record.NewBroadcaster(record.WithContext(ctx))
	recorder := d.events.NewRecorder(scheme.Scheme,
		corev1.EventSource{Component: v1alpha1.DriverName, Host: d.config.NodeName})
	d.Gate = attach.NewGate(d.config.CDIDir, d.helperPath())
	observer := &reporter{driver: d}
	d.Work, d.Observer = work, observer
	d.Sandboxes = attach.New(attach.Config{
		Work: work, Executor: d.Executor, Claims: d.Claims, Gate: d.Gate, Clock: clock.RealClock{}, Observer: observer,
		Metrics: d.Metrics.attach, Node: d.config.NodeName, BootID: bootID, PinDir: d.config.NetNSDir,
	})
	d.Statuses = status.New(status.Config{Client: d.client, Events: recorder, Claims: d.Claims,
		Attachments: d.Sandboxes, Clock: d.Clock, Node: d.config.NodeName})
	observer.Writer = d.Statuses
	if d.config.NetworkStatus {
		d.networks = status.NewNetworks(d.client, d.Claims, d.Sandboxes.States)
	}
	d.External = external.New(d.config.CDIDir, d.config.DeviceInfoDir, d.Claims, d.journalLost)
	d.Metrics.watch(d.Claims, d.Sandboxes, d.Executor)
	d.Health = status.NewHealth(d.Claims, d.unhealthy, clock.RealClock{})
	if err := d.buildPublisher(ctx, recorder, bootID); err != nil {
		return err
	}
	d.nri = newNRIPlugin(nriConfig{components: d.components, Socket: d.config.NRISocket,
		Namespaces: namespaces{procDir: d.config.HostProcDir, dir: d.config.NetNSDir}})
	d.dra = newDRAPlugin(draConfig{components: d.components, Connected: d.nri.runtime.isConnected,
		Busy: d.linkUse.find, MissingLinkTypes: d.linkTypes.Missing, Fatal: d.fail})
	return errors.Join(d.Cluster.onChange(d.Publisher.TriggerSoon), d.Cluster.onReplaced(d.fail),
		d.Cluster.onPodGone(d.Claims.Wake), d.Cluster.onSandbox(d.nri.expectSandbox))
}

func (d *Driver) buildPublisher(ctx context.Context, recorder record.EventRecorder, bootID string) error {
	publisher, damaged, err := publish.New(publish.Config{
		NodeName: d.config.NodeName, BootID: bootID, Cluster: d.Cluster, Claims: d.Claims, Client: d.client,
		ListAttributes: d.config.ListAttributes, CompatibilityGroups: d.config.CompatibilityGroups,
		DB: d.journal.DB, Read: publish.ReadHost(d.sources, &d.attributes),
		Events:  discovery.KernelEvents(),
		CNIDirs: d.config.CNIDirs, MissingLinkTypes: d.linkTypes.Missing,
		Quarantined: d.isQuarantined, MayBeInPod: mayBeInPod(d.Claims, d.Sandboxes, d.Executor.Host),
		HealthChanged: d.Health.Changed,
		Recorder:      recorder, Metrics: d.Metrics.publish, Heartbeats: d.heartbeats, FreeMemory: debug.FreeOSMemory,
		Clock: d.Clock,
	})
	if err != nil {
		return err
	}
	logDamaged(ctx, damaged)
	d.Publisher = publisher
	return nil
}

func logDamaged(ctx context.Context, records []journal.Damaged) {
	for _, record := range records {
		klog.FromContext(ctx).Error(record.Err, "Cannot read a journal record; ignoring it", "bucket", record.Bucket,
			"key", record.Key)
	}
}

// unhealthy returns the health problem of an allocated device, or "" if there is none.
func (d *Driver) unhealthy(claimUID string, held *claims.HeldDevice) string {
	switch {
	case d.Publisher.IsGone(held.Facts):
		return "the device no longer exists on the node"
	case d.isQuarantined(held.Facts):
		return "in quarantine: its cleanup after an earlier pod failed"
	case d.Publisher.LostCarrier(held.Facts):
		return "the link has lost its carrier"
	}
	// Health is a property of the device: the kubelet reports it for all pods that share the device, even if only one
	// of them has lost its interface.
	if name := d.Sandboxes.MissingInterface(claimUID, held); name != "" && held.Exclusive {
		return attach.MissingText(name)
	}
	return ""
}

func (d *Driver) isQuarantined(device discovery.Device) bool {
	return d.Executor.Quarantined(&cnichain.Device{PCIAddress: string(device.PCIAddress),
		IfName: string(device.Interface)}) != nil
}
