package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/keylock"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/external"
	"github.com/dra-networking/dra-network-driver/plugin/internal/publish"
	"github.com/dra-networking/dra-network-driver/plugin/internal/status"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

// prepareLimit allows for claims.ReleaseWait, 12 s, and the work that follows. The kubelet waits up to 45 s for the
// response and does not start any of the pod's containers in the meantime. Prepare changes nothing on the host, so a
// call that exceeds the limit can simply fail, and the kubelet will retry.
const prepareLimit = 20 * time.Second

// components are the parts of the driver that are used to handle calls from the kubelet, the runtime and netdra.
type components struct {
	Cluster   *cluster
	Publisher *publish.Publisher
	Claims    *claims.Store
	Sandboxes *attach.Sandboxes
	Executor  *executor.Executor
	Gate      attach.Gate
	External  *external.Files
	Statuses  *status.Writer
	Health    *status.Health
	Metrics   *metrics
	Clock     clock.Clock
	// Work is canceled when the driver shuts down.
	Work context.Context
	// Observer reports why a pod is not attached, both on the pod and on its claims.
	Observer attach.Observer
}

type draConfig struct {
	components
	// Connected reports whether the driver is connected to the container runtime, which then reports new pods.
	Connected func() bool
	// Busy reports how the node itself uses links.
	Busy func(context.Context, ...discovery.IfName) (map[discovery.IfName]discovery.Use, error)
	// MissingLinkTypes returns the given link types that the kernel does not support.
	MissingLinkTypes func(linkTypes []string) ([]string, error)
	// Fatal is called with an error that only a new process can recover from.
	Fatal func(error)
}

type draPlugin struct {
	draConfig
	// locks serializes the preparation and release of each claim by UID, so that the kubelet's calls for a claim never
	// overlap.
	locks *keylock.Locks
	// evicting contains the UIDs of claims that are being evicted.
	evicting sync.Map
	// repairing contains the UIDs of claims whose files are being repaired. Such a claim may be released before the
	// call for it arrives. It must not be prepared again then, because the kubelet would never release it.
	repairing sync.Map
}

func newDRAPlugin(c draConfig) *draPlugin { return &draPlugin{draConfig: c, locks: keylock.New(1)} }

var _ kubeletplugin.DRAPlugin = &draPlugin{}

// PrepareResourceClaims compiles and records the plans of each claim. Claims succeed and fail independently.
func (d *draPlugin) PrepareResourceClaims(
	ctx context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	ctx, cancel := context.WithTimeout(ctx, prepareLimit)
	defer cancel()
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, claim := range claims {
		logger := klog.FromContext(ctx).WithValues("claim", klog.KObj(claim))
		start := time.Now()
		devices, err := d.prepare(klog.NewContext(ctx, logger), claim)
		telemetry.Observe(d.Metrics.prepared, time.Since(start), err, "prepare")
		if err != nil {
			err = fmt.Errorf("node %s: cannot prepare claim %s/%s: %w", d.Cluster.nodeName, claim.Namespace,
				claim.Name, err)
			logger.Error(err, "Cannot prepare the claim")
			d.Statuses.Failed(claimOf(claim), allocatedDevices(claim), status.ReasonPrepare, err)
			// The kubelet reports this error as an event.
			err = fmt.Errorf("%w; %s", err, status.PrepareHint(claimOf(claim), err))
		}
		logger.V(telemetry.LevelCalls).Info("Answered NodePrepareResources", "duration",
			time.Since(start).Round(time.Microsecond), "err", err)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: telemetry.WireError(err)}
	}
	return results, nil
}

// allocatedDevices returns the driver's devices that are allocated to a claim that could not be prepared.
func allocatedDevices(claim *resourceapi.ResourceClaim) []claims.HeldDevice {
	var devices []claims.HeldDevice
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == v1alpha1.DriverName {
			devices = append(devices, claims.HeldDevice{Pool: result.Pool, Name: result.Device,
				ShareID: string(ptr.Deref(result.ShareID, "")), Consumed: result.ConsumedCapacity})
		}
	}
	return devices
}

func claimOf(claim *resourceapi.ResourceClaim) cnichain.Claim {
	return cnichain.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
}

// prepare is idempotent: for a prepared claim, it returns the result based on the record and rewrites files that were
// lost in a reboot. The claim's lock serializes Prepare and Unprepare for the same claim. Calls for different claims
// run concurrently.
func (d *draPlugin) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	unlock, err := d.locks.Acquire(ctx, string(claim.UID))
	if err != nil {
		return nil, fmt.Errorf("another call for the claim takes too long: %w; %s", err, attach.SlowRemedy)
	}
	defer unlock()
	record, known := d.Claims.Get(string(claim.UID))
	if known && !claims.IsRecordOf(&record, claim) {
		// The claim has been deallocated and allocated again, but the kubelet did not release it in between, because
		// its last pod was force-deleted or the node was lost.
		klog.FromContext(ctx).Info("The allocation of the claim differs from the prepared one, which is released " +
			"first")
		if err := d.release(ctx, record.Claim.UID); err != nil {
			return nil, fmt.Errorf("cannot release the devices of the claim's earlier allocation: %w", err)
		}
		known = false
	}
	if known {
		// The kubelet calls again if another pod uses the claim. The call must fail for as long as the driver would be
		// unable to attach that pod.
		if err := d.checkConnected(&record); err != nil {
			return nil, err
		}
		if err := d.renewBaselines(ctx, &record); err != nil {
			return nil, err
		}
		if err := d.Sandboxes.SyncGate(record.Claim.UID); err != nil {
			return nil, err
		}
		return d.devices(&record), d.tellOthers(&record)
	}
	if _, isRepair := d.repairing.Load(string(claim.UID)); isRepair {
		return nil, errors.New("the claim was released before its files were repaired; trying again")
	}
	// From here on, the claim holds its devices. Nothing on the host has been changed yet: that happens when the
	// sandbox starts.
	record, err = d.compileAndHold(ctx, claim)
	if err != nil {
		return nil, err
	}
	d.Publisher.Trigger()
	if record.Attaches() {
		d.warnOfContainers(claim)
	}
	klog.FromContext(ctx).V(2).Info("Prepared the claim", "devices", len(record.Devices), "steps", steps(&record))
	return d.devices(&record), d.tellOthers(&record)
}

// checkConnected returns an error if the driver must attach devices of the claim but is not connected to the container
// runtime, which reports new pods.
func (d *draPlugin) checkConnected(record *claims.Record) error {
	if !record.Attaches() || d.Connected() {
		return nil
	}
	return errors.New("the driver is not connected to the container runtime (NRI), so the pod would start without " +
		"its interfaces; it is reconnecting")
}

// tellOthers writes the device information files for other components that attach the claim's devices.
func (d *draPlugin) tellOthers(record *claims.Record) error {
	if !hasExternal(record) {
		return nil
	}
	d.Statuses.Changed(record.Claim.UID)
	return d.External.Sync(record.Claim.UID)
}

// compileAndHold builds a claim's record and reserves the claim's devices and addresses. Concurrent calls may assign
// the same last addresses in a block; a claim that loses this race is compiled again.
func (d *draPlugin) compileAndHold(
	ctx context.Context, claim *resourceapi.ResourceClaim,
) (record claims.Record, err error) {
	complete := func(record *claims.Record) error { return d.snapshot(ctx, record) }
	for {
		record, err = d.compile(ctx, claim)
		if err == nil {
			err = d.checkConnected(&record)
		}
		if err != nil {
			return record, err
		}
		err = d.Claims.HoldWhenFree(ctx, d.Clock, record, d.rivalsOf(record.Claim), complete)
		if !errors.Is(err, claims.ErrAddressesTaken) || ctx.Err() != nil {
			return record, err
		}
	}
}

func steps(record *claims.Record) int {
	n := 0
	for i := range record.Plans {
		n += len(record.Plans[i].Steps)
	}
	return n
}

// devices returns the response to the kubelet: each device, with the claim's gate and the metadata for containers.
func (d *draPlugin) devices(record *claims.Record) []kubeletplugin.Device {
	steps := d.Sandboxes.AttachedSteps(record.Claim.UID)
	devices := make([]kubeletplugin.Device, 0, len(record.Devices))
	for i := range record.Devices {
		held := &record.Devices[i]
		device := kubeletplugin.Device{
			Requests: []string{held.Request}, PoolName: held.Pool, DeviceName: held.Name,
			CDIDeviceIDs: []string{d.Gate.DeviceID(attach.PartOf(record, held))}, Metadata: metadataOf(record,
				held, steps),
		}
		if step := record.ExternalStep(held); step != nil {
			device.CDIDeviceIDs = deviceIDs(record, step, device.CDIDeviceIDs)
		} else if !record.Attaches() { // bandwidth on a link, for devices that other components attach
			device.CDIDeviceIDs = nil
		}
		if held.ShareID != "" {
			device.ShareID = ptr.To(types.UID(held.ShareID))
		}
		devices = append(devices, device)
	}
	return devices
}

// UnprepareResourceClaims succeeds once every device is back on the host. Until then, it returns an error, and the
// kubelet retries.
func (d *draPlugin) UnprepareResourceClaims(
	ctx context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	// The kubelet cancels its calls when it shuts down, but this must not interrupt plugins in the middle of a DEL. The
	// kubelet will call again after it restarts.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unprepareLimit)
	defer cancel()
	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		start := time.Now()
		err := d.Sandboxes.RunToTheEnd("release the claim", func() error { return d.unprepare(ctx, string(claim.UID)) })
		telemetry.Observe(d.Metrics.prepared, time.Since(start), err, "release")
		if err != nil {
			err = fmt.Errorf("node %s: cannot release claim %s yet: %w", d.Cluster.nodeName, claim, err)
			klog.FromContext(ctx).Error(err, "Cannot release the claim", "claim", claim.String())
		}
		klog.FromContext(ctx).V(telemetry.LevelCalls).Info("Answered NodeUnprepareResources", "claim", claim.String(),
			"duration", time.Since(start).Round(time.Microsecond), "err", err)
		results[claim.UID] = telemetry.WireError(err)
	}
	return results, nil
}

// HandleError handles failed slice writes and the termination of the gRPC servers.
func (d *draPlugin) HandleError(ctx context.Context, err error, msg string) {
	d.Publisher.HandleError(ctx, err, msg)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.Fatal(err)
	}
}

// WatchHealthStatus reports device health to the kubelet. A report also makes the kubelet retry pods that no longer
// have to wait.
func (d *draPlugin) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	return d.Health.Watch(ctx, reports)
}
