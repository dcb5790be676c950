package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/keylock"
	"github.com/dra-networking/dra-network-driver/plugin/internal/publish"
	"github.com/dra-networking/dra-network-driver/plugin/internal/status"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

// kubelet gives up on either call after 45 s, and starts no other container of the pod meanwhile.
const (
	// prepareLimit is for claims.ReleaseWait, 12 s, and what follows it. Preparing changes nothing on the host, so what
	// takes longer fails, and kubelet asks again.
	prepareLimit = 20 * time.Second
	// unprepareLimit is one call of a plugin with all of its 30 s, and some seconds for the journal: the answer has to
	// come before kubelet gives up, else its error is lost. What is not done is done by the next call.
	unprepareLimit = 35 * time.Second
)

// draPlugin is what kubelet calls.
type draPlugin struct {
	cluster   *cluster
	publisher *publish.Publisher
	claims    *claims.Store
	sandboxes *attach.Sandboxes
	executor  *executor.Executor
	gate      attach.Gate
	statuses  *status.Writer
	health    *status.Health
	metrics   *metrics
	locks     *keylock.Locks
	// connected reports whether the container runtime would tell us about a new pod.
	connected func() bool
	// busy says what the node itself does with a link.
	busy  func(context.Context, discovery.IfName) (discovery.Use, error)
	fatal func(error)
	// evicting are the UIDs of claims that are being evicted.
	evicting sync.Map
	clock    clock.Clock
	// work ends when the driver stops.
	work context.Context
}

var _ kubeletplugin.DRAPlugin = &draPlugin{}

// PrepareResourceClaims compiles and records the plan of each claim. Claims succeed and fail each on their own.
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
		telemetry.Observe(d.metrics.prepared, time.Since(start), err, "prepare")
		if err != nil {
			err = fmt.Errorf("node %s: cannot prepare claim %s/%s: %w", d.cluster.nodeName, claim.Namespace,
				claim.Name, err)
			logger.Error(err, "Cannot prepare the claim")
			d.statuses.Failed(claimOf(claim), allocatedDevices(claim), "PrepareFailed", err)
		}
		logger.V(telemetry.LevelCalls).Info("Answered NodePrepareResources", "duration",
			time.Since(start).Round(time.Microsecond),
			"err", err)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: telemetry.WireError(err)}
	}
	return results, nil
}

// allocatedDevices are our devices of a claim that could not be prepared.
func allocatedDevices(claim *resourceapi.ResourceClaim) []claims.HeldDevice {
	var devices []claims.HeldDevice
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == v1alpha1.DriverName {
			devices = append(devices,
				claims.HeldDevice{Pool: result.Pool, Name: result.Device,
					ShareID: string(ptr.Deref(result.ShareID, ""))})
		}
	}
	return devices
}

func claimOf(claim *resourceapi.ResourceClaim) cnichain.Claim {
	return cnichain.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
}

// prepare is idempotent: a claim that is prepared is answered from its record, and what a reboot lost is made again.
func (d *draPlugin) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	unlock, err := d.locks.Acquire(ctx, string(claim.UID))
	if err != nil {
		return nil, fmt.Errorf("another call for the claim takes too long: %w; %s", err, keylock.Remedy)
	}
	defer unlock()
	if !d.connected() {
		return nil, errors.New("the driver is not connected to the container runtime (NRI), so the pod would start " +
			"without its interfaces; it is trying again")
	}
	record, known := d.claims.Get(string(claim.UID))
	if known && !claims.IsRecordOf(&record, claim) {
		// The claim was deallocated and allocated again, and kubelet did not release it in between: its last pod was
		// deleted by force, or the node was lost.
		klog.FromContext(ctx).Info("The claim has another allocation than the one that was prepared, which is " +
			"released first")
		if err := d.release(ctx, record.Claim.UID); err != nil {
			return nil, fmt.Errorf("cannot release the devices of the claim's earlier allocation: %w", err)
		}
		known = false
	}
	if known {
		if err := d.sandboxes.SyncGate(record.Claim.UID); err != nil {
			return nil, err
		}
		return d.devices(&record), nil
	}
	record, err = d.compile(ctx, claim)
	if err != nil {
		return nil, err
	}
	complete := func(record *claims.Record) error { return d.takeBaselines(ctx, record) }
	if err := d.claims.HoldWhenFree(ctx, d.clock, record, d.rivalsOf(record.Claim), complete); err != nil {
		return nil, err
	}
	d.publisher.Trigger()
	d.warnOfContainers(claim)
	klog.FromContext(ctx).V(2).Info("Prepared the claim", "devices", len(record.Devices), "steps", steps(&record))
	return d.devices(&record), nil
}

// takeBaselines refuses devices in quarantine and notes how the others are now, while they are free: this is how they
// must return to the host. What a crash leaves of them later never becomes the baseline, since the claim is not
// released before.
func (d *draPlugin) takeBaselines(ctx context.Context, record *claims.Record) error {
	plans := make([]cnichain.Plan, 0, len(record.Plans))
	for _, plan := range record.Plans {
		plan.Steps = slices.Clone(plan.Steps)
		for i := range plan.Steps {
			if plan.Steps[i].Device == nil {
				continue
			}
			device, err := d.takeBaseline(ctx, *plan.Steps[i].Device)
			if err != nil {
				return err
			}
			plan.Steps[i].Device = &device
			if _, _, err := d.executor.FindRDMA(&plan.Steps[i]); err != nil {
				return err
			}
		}
		plans = append(plans, plan)
	}
	record.Plans = plans
	return nil
}

func (d *draPlugin) takeBaseline(ctx context.Context, device cnichain.Device) (cnichain.Device, error) {
	if err := d.executor.Quarantined(&device); err != nil {
		return device, err
	}
	if err := d.notBusy(ctx, &device); err != nil {
		return device, err
	}
	now, err := d.executor.Host.Snapshot(device)
	if err == nil && now.IfName != device.IfName {
		err = fmt.Errorf("device %s is called %s now, it was %s a moment ago: trying again", device.Name, now.IfName,
			device.IfName)
	}
	if err != nil {
		d.publisher.Trigger() // it is not as discovery has seen it
	}
	return now, err
}

// notBusy refuses to take a link from the node that works with it, whatever policies say: the node could be lost with
// it.
func (d *draPlugin) notBusy(ctx context.Context, device *cnichain.Device) error {
	if !device.Exclusive || device.IfName == "" {
		return nil
	}
	use, err := d.busy(ctx, discovery.IfName(device.IfName))
	if err != nil || use.Reason == "" || use.Restorable && device.AllowInUse {
		return err
	}
	remedy := "free it, or exclude it with a DeviceExposurePolicy, and delete the claim"
	if use.Restorable {
		remedy += "; or set allowInUse in the policy, so that the node is without them while a pod has the device"
	}
	return fmt.Errorf("device %s (%s) cannot be taken from the node: %s; %s", device.Name, device.IfName,
		use.Reason, remedy)
}

func steps(record *claims.Record) int {
	n := 0
	for i := range record.Plans {
		n += len(record.Plans[i].Steps)
	}
	return n
}

// devices is the answer to kubelet: every device with the claim's gate, and what its containers are told of it.
func (d *draPlugin) devices(record *claims.Record) []kubeletplugin.Device {
	steps := d.sandboxes.AttachedSteps(record.Claim.UID)
	devices := make([]kubeletplugin.Device, 0, len(record.Devices))
	for i := range record.Devices {
		held := &record.Devices[i]
		device := kubeletplugin.Device{
			Requests: []string{held.Request}, PoolName: held.Pool, DeviceName: held.Name,
			CDIDeviceIDs: []string{d.gate.DeviceID(attach.PartOf(record, held))}, Metadata: metadataOf(record,
				held, steps),
		}
		if held.ShareID != "" {
			device.ShareID = ptr.To(types.UID(held.ShareID))
		}
		devices = append(devices, device)
	}
	return devices
}

// compile makes the record of a claim.
func (d *draPlugin) compile(ctx context.Context, claim *resourceapi.ResourceClaim) (claims.Record, error) {
	record := claims.Record{Claim: claimOf(claim), PreparedAt: d.clock.Now(), Shareable: shareable(claim)}
	devices, err := claimspec.Devices(claim)
	if err == nil {
		err = claimspec.CheckClasses(claim, devices, d.cluster.allTopologies())
	}
	if err != nil {
		return record, err
	}
	if err := d.addConsumers(ctx, claim, &record, len(devices) > 0); err != nil {
		return record, err
	}
	roots := map[string][]cnichain.RootDevice{}
	for i := range devices {
		held, device, err := d.publisher.Resolve(&devices[i].DeviceRequestAllocationResult)
		if err != nil {
			return record, err
		}
		record.Devices = append(record.Devices, held)
		name := devices[i].Class.NetworkTopologyRef.Name
		roots[name] = append(roots[name], cnichain.RootDevice{
			Step: devices[i].Class.Step, Device: device, Parameters: devices[i].Parameters,
		})
	}
	for _, name := range claimspec.Topologies(devices) {
		plan, err := d.plan(ctx, record.Claim, name, roots[name])
		if err != nil {
			return record, err
		}
		record.Plans = append(record.Plans, *plan)
	}
	return record, nil
}

func (d *draPlugin) plan(
	ctx context.Context, claim cnichain.Claim, name string, roots []cnichain.RootDevice,
) (*cnichain.Plan, error) {
	topology, err := d.cluster.topology(name)
	if err != nil {
		return nil, err
	}
	if err := d.checkNamespace(topology, claim.Namespace); err != nil {
		return nil, err
	}
	plugins, err := d.executor.Probe(ctx, cnichain.Types(topology))
	if err != nil {
		return nil, err
	}
	plan, problems := cnichain.Compile(topology, cnichain.Binding{
		Claim: claim, Node: d.cluster.nodeName, Schemas: d.cluster.PluginSchemas(), Plugins: plugins, Devices: roots,
		Dirs: d.executor.Dirs, DirsHelp: "set cniPlugins.image or paths.cniBin of the chart",
	})
	if len(problems) > 0 {
		texts := make([]string, len(problems))
		for i, problem := range problems {
			texts[i] = problem.Error()
		}
		return nil, fmt.Errorf("NetworkTopology %s: %s", name, strings.Join(texts, "; "))
	}
	return plan, nil
}

func (d *draPlugin) checkNamespace(topology *v1alpha1.NetworkTopology, namespace string) error {
	if topology.Spec.AllowedNamespaces == nil {
		return nil
	}
	labels, err := d.cluster.namespaceLabels(namespace)
	if err != nil {
		return err
	}
	return claimspec.CheckNamespace(topology, namespace, labels)
}

// UnprepareResourceClaims ends when every device is on the host; until then it is an error, and kubelet asks again.
func (d *draPlugin) UnprepareResourceClaims(
	ctx context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	// A kubelet that ends must not end plugins in the middle of a DEL; it asks again when it is back.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unprepareLimit)
	defer cancel()
	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		start := time.Now()
		err := d.unprepareToTheEnd(ctx, string(claim.UID))
		telemetry.Observe(d.metrics.prepared, time.Since(start), err, "release")
		if err != nil {
			err = fmt.Errorf("node %s: cannot release claim %s yet: %w", d.cluster.nodeName, claim, err)
			klog.FromContext(ctx).Error(err, "Cannot release the claim", "claim", claim.String())
		}
		klog.FromContext(ctx).V(telemetry.LevelCalls).Info("Answered NodeUnprepareResources", "claim", claim.String(),
			"duration", time.Since(start).Round(time.Microsecond), "err", err)
		results[claim.UID] = telemetry.WireError(err)
	}
	return results, nil
}

// unprepareToTheEnd keeps a driver that is being stopped from ending in the middle: the gRPC server doesn't wait for
// answers, and a plugin would be killed with the driver.
func (d *draPlugin) unprepareToTheEnd(ctx context.Context, uid string) error {
	result := make(chan error, 1)
	if !d.sandboxes.GoTracked(func() { result <- d.unprepare(ctx, uid) }) {
		return attach.ShutdownError("release the claim")
	}
	return <-result
}

func (d *draPlugin) unprepare(ctx context.Context, uid string) error {
	unlock, err := d.locks.Acquire(ctx, uid)
	if err != nil {
		return fmt.Errorf("another call for the claim takes too long: %w; %s", err, keylock.Remedy)
	}
	defer unlock()
	return d.release(ctx, uid)
}

// rivalsOf judges the claims that have what a claim wants. An earlier claim of the same name has no pods by that name
// any more: kubelet has just read the name's claim from the API server, and it is the other one. Else a pod that waits
// for the new claim would keep the old one, for which it waits.
func (d *draPlugin) rivalsOf(claim cnichain.Claim) claims.Rivals {
	podsNaming := func(holder *claims.Record) []*corev1.Pod {
		if holder.Claim.Namespace == claim.Namespace && holder.Claim.Name == claim.Name {
			return nil
		}
		return d.cluster.podsWithClaim(holder.Claim.Namespace, holder.Claim.Name)
	}
	return claims.Rivals{
		IsLeaving: func(holder *claims.Record) bool { return d.isLeaving(holder, podsNaming(holder)) },
		Evict:     func(holder *claims.Record) { d.evict(holder, podsNaming(holder)) },
	}
}

// isLeaving reports whether a claim is being released or is about to be: its pods, which are its consumers and those
// that name it, are gone. Kubelet releases a claim some time after its pod was deleted by force.
func (d *draPlugin) isLeaving(record *claims.Record, naming []*corev1.Pod) bool {
	if d.sandboxes.IsReleasing(record.Claim.UID) {
		return true
	}
	return !slices.ContainsFunc(record.Consumers, func(consumer claims.Consumer) bool {
		return !d.cluster.podIsLeaving(consumer.PodUID)
	}) && !slices.ContainsFunc(naming, func(pod *corev1.Pod) bool { return !isLeaving(pod) })
}

// evict releases a claim whose device the scheduler has given to another one, if the API server says that it has no
// allocation any more and no pod: its pods were deleted by force. Kubelet would have it released too, some seconds
// later, when it has ended the containers; they lose their interfaces meanwhile, as with any forced deletion.
func (d *draPlugin) evict(record *claims.Record, naming []*corev1.Pod) {
	uid := record.Claim.UID
	if d.sandboxes.IsReleasing(uid) || len(naming) > 0 || !d.isAbandoned(record) {
		return
	}
	if _, begun := d.evicting.LoadOrStore(uid, true); begun {
		return
	}
	begun := d.sandboxes.GoTracked(func() {
		defer d.evicting.Delete(uid)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(d.work), unprepareLimit)
		defer cancel()
		logger := klog.FromContext(d.work).WithValues("claim", record.Claim.String())
		unlock, err := d.locks.Acquire(ctx, uid)
		if err != nil {
			return // somebody prepares or releases it
		}
		defer unlock()
		allocated, err := d.cluster.isAllocated(ctx, record)
		if err != nil || allocated {
			logger.V(2).Info("A claim without pods keeps its devices", "allocated", allocated, "err", err)
			return
		}
		if err := d.release(ctx, uid); err != nil {
			logger.Error(err, "Cannot release a claim of pods that were deleted by force; kubelet asks for it, too")
			return
		}
		logger.V(2).Info("Released a claim of pods that were deleted by force: another claim has its devices")
	})
	if !begun {
		d.evicting.Delete(uid)
	}
}

// isAbandoned reports whether the API server has none of the pods any more that are known to use a claim.
func (d *draPlugin) isAbandoned(record *claims.Record) bool {
	for _, consumer := range record.Consumers {
		if !d.cluster.podUIDIsGone(consumer.PodUID) {
			return false
		}
	}
	return !slices.ContainsFunc(d.sandboxes.Users(record.Claim.UID),
		func(pod executor.Pod) bool { return !d.cluster.podUIDIsGone(pod.UID) })
}

// release ends with every device back on the host. The caller has the claim's lock.
func (d *draPlugin) release(ctx context.Context, uid string) error {
	done, err := d.sandboxes.ReleaseClaim(ctx, uid)
	defer done()
	if err != nil {
		return err
	}
	record, held := d.claims.Get(uid)
	record.Claim.UID = uid
	if held {
		if err := d.executor.VerifyReturned(record.Plans); err != nil {
			return err
		}
	}
	if err := d.claims.Release(uid); err != nil {
		return err
	}
	// Before the record was gone the gate of a driver that is not connected was only suspended.
	if err := d.sandboxes.SyncGate(uid); err != nil {
		return err
	}
	d.health.Released(record.Devices)
	d.statuses.Clear(&record)
	d.publisher.Trigger()
	return nil
}

// HandleError is told about slices that can't be written, and about the end of the gRPC servers.
func (d *draPlugin) HandleError(ctx context.Context, err error, msg string) {
	d.publisher.HandleError(ctx, err, msg)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.fatal(err)
	}
}

// WatchHealthStatus tells kubelet how devices are, and by that wakes it for pods that need not wait any more.
func (d *draPlugin) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	return d.health.Watch(ctx, reports)
}
