package blocks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/conditions"
	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/objects"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// gather is how long changes to claims and nodes are collected, so that a range is reconciled only once for all of
// them.
const gather = 100 * time.Millisecond

// Reconciler assigns blocks from every AddressRange to nodes. All fields are required. When the lease changes hands,
// two processes may briefly run a Reconciler at the same time; no write assumes that there is only one writer.
type Reconciler struct {
	// Client reads through a cache and writes to the API server. For nodes, the cache contains only metadata.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Events records events for ranges.
	Events events.EventRecorder
	// Clock provides the times that are written to objects for users to read. No decision depends on it, so it may be
	// wrong or jump.
	Clock clock.PassiveClock
	// Elapsed returns the monotonic time since the process started.
	Elapsed func() time.Duration

	once     sync.Once
	demand   *demand
	released releases
}

func (r *Reconciler) claims() *demand {
	r.once.Do(func() { r.demand = newDemand(r.Elapsed) })
	return r.demand
}

// SetupWithManager registers the reconciler. A range is reconciled when it changes, or when its blocks, nodes,
// topologies or claims change. For nodes, only the metadata is watched, because only names, UIDs and labels matter; the
// status is the largest part of a Node object, and the kubelet updates it constantly.
//
// ofClaim records claim changes immediately. Package controller-runtime does not start any worker before each handler
// has received the objects from the first list (source.Kind, HasSynced), so the demand is complete before the first
// block can be returned.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	specChanged := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	ofBlock := func(_ context.Context, block client.Object) []reconcile.Request {
		if block, ok := block.(*v1alpha1.AddressBlock); ok {
			return objects.Requests([]string{block.Spec.AddressRange})
		}
		return nil
	}
	nodesChanged := builder.WithPredicates(predicate.Or[client.Object](predicate.LabelChangedPredicate{},
		predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
		}}))
	return ctrl.NewControllerManagedBy(manager).
		Named("addressrange").
		For(&v1alpha1.AddressRange{}, specChanged).
		Watches(&v1alpha1.AddressBlock{}, handler.EnqueueRequestsFromMapFunc(ofBlock)).
		Watches(&v1alpha1.NetworkTopology{}, objects.Later(gather, r.all), specChanged).
		WatchesMetadata(&corev1.Node{}, objects.Later(gather, r.all), nodesChanged).
		Watches(&resourceapi.ResourceClaim{}, objects.Later(gather, r.ofClaim)).
		Complete(r)
}

// all returns the names of all ranges. An event handler cannot return an error, but reading from a synced cache does
// not fail.
func (r *Reconciler) all(ctx context.Context, _ client.Object, _ bool) []string {
	var ranges v1alpha1.AddressRangeList
	if err := r.Client.List(ctx, &ranges, client.UnsafeDisableDeepCopy); err != nil { // read-only
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list AddressRanges; ignoring the change of a node or topology")
		return nil
	}
	var names []string
	for i := range ranges.Items {
		names = append(names, ranges.Items[i].Name)
	}
	return names
}

// ofClaim records a claim's demand, and returns the ranges used by the claim's current and previous topologies.
func (r *Reconciler) ofClaim(ctx context.Context, object client.Object, gone bool) []string {
	claim, ok := object.(*resourceapi.ResourceClaim)
	if !ok {
		return nil
	}
	changed := r.claims().set
	if gone {
		changed = r.claims().forget
	}
	var ranges []string
	// A topology that no longer exists does not use any range; its deletion has already triggered a reconciliation of
	// every range.
	for _, name := range changed(claim) {
		topology := &v1alpha1.NetworkTopology{}
		if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, topology); err == nil {
			ranges = append(ranges, cnichain.Ranges(topology)...)
		}
	}
	return ranges
}

// Reconcile implements reconcile.Reconciler.
//
// It reads the sizes of PodGroups and then everything else, makes a plan, carries it out, and writes the status. If a
// plan fails halfway, it is not resumed: the next reconciliation makes a new plan based on the current state.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var topologies v1alpha1.NetworkTopologyList
	if err := r.Client.List(ctx, &topologies, client.UnsafeDisableDeepCopy); err != nil { // read-only
		return reconcile.Result{}, fmt.Errorf("cannot list NetworkTopologies: %w", err)
	}
	counts := perPod(request.Name, topologies.Items)
	unmeasured := r.measure(ctx, counts) // does not stop the reconciliation
	state, problems, remarks, err := r.read(ctx, request.Name, counts)
	if err != nil {
		return reconcile.Result{}, err
	}
	changes := Plan(*state)
	gone := state.Range.UID == ""
	if err = r.carryOut(ctx, state, &changes); err == nil && !gone {
		err = r.writeStatus(ctx, state.Range, Status(state, &changes, problems, remarks))
	}
	if !objects.IsOutdated(err) {
		err = errors.Join(err, unmeasured)
	}
	return objects.Result(changes.Next, err)
}

// read reads the inputs for a plan. If the range no longer exists, read substitutes a range with a deletion timestamp,
// so that the blocks are returned even if the range's finalizer was removed. The lists are shared with the cache and
// must not be modified; the range, which carryOut modifies, is a copy.
func (r *Reconciler) read(
	ctx context.Context, name string, counts map[string]int,
) (state *State, problems field.ErrorList, remarks []string, err error) {
	var blocks v1alpha1.AddressBlockList
	var ranges v1alpha1.AddressRangeList
	nodes := metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	for _, list := range []client.ObjectList{&blocks, &ranges, &nodes} {
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil { // read-only
			return nil, nil, nil, fmt.Errorf("cannot list %T: %w", list, err)
		}
	}
	state = &State{Nodes: map[string]Node{}, Now: r.Clock.Now()}
	for i := range ranges.Items {
		if ranges.Items[i].Name == name {
			state.Range = ranges.Items[i].DeepCopy()
		}
	}
	if state.Range == nil {
		state.Range = &v1alpha1.AddressRange{ObjectMeta: metav1.ObjectMeta{Name: name,
			DeletionTimestamp: &metav1.Time{Time: state.Now}}}
	}
	for i := range blocks.Items {
		if blocks.Items[i].Spec.AddressRange == name {
			state.Blocks = append(state.Blocks, blocks.Items[i])
		}
	}
	selector, problems := r.validate(state)
	// The block size of an invalid range is unknown. No blocks are assigned from such a range, so its demand does not
	// need to be capped.
	blockSize := math.MaxInt32
	if state.Addresses != nil {
		blockSize = state.Addresses.BlockSize()
	}
	state.Demand, state.Shared = r.claims().ofRange(counts, blockSize), r.claims().sharedOn(counts)
	state.Unused = r.released.observe(name, state.Blocks, r.Elapsed(),
		func(block *v1alpha1.AddressBlock, since time.Duration) bool {
			return r.claims().inUse(block, counts, since)
		})
	for i := range nodes.Items {
		node := &nodes.Items[i]
		state.Nodes[node.Name] = Node{UID: node.UID, Selected: selector.Matches(labels.Set(node.Labels))}
	}
	for _, other := range overlapping(state.Range, ranges.Items) {
		remarks = append(remarks, fmt.Sprintf("its cidrs overlap with AddressRange %s, which is safe only if pods "+
			"with addresses of one range cannot reach pods with addresses of the other", other))
	}
	return state, problems, remarks, nil
}

// measure reads the sizes of the PodGroups whose claims use a range. A group's size is the number of pods that are
// scheduled together. It is read only once; pods that are added later use the remaining addresses. A PodGroup counts as
// one pod if it has no gang size, no longer exists, or belongs to an API that the cluster does not serve, so that such
// a group does not keep nodes from getting blocks.
func (r *Reconciler) measure(ctx context.Context, counts map[string]int) error {
	for _, group := range r.claims().unknown(counts) {
		found := &schedulingapi.PodGroup{}
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: group.Namespace, Name: group.Name}, found)
		if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("cannot read the size of PodGroup %s/%s: %w", group.Namespace, group.Name, err)
		}
		pods := 1
		if gang := found.Spec.SchedulingPolicy.Gang; gang != nil && found.UID == group.UID {
			pods = max(pods, int(gang.MinCount))
		}
		r.claims().resize(group, pods)
	}
	return nil
}

// validate returns a range's node selector and any problems with its spec. It sets state.Addresses if the range is
// valid.
func (r *Reconciler) validate(state *State) (labels.Selector, field.ErrorList) {
	selector := labels.Everything()
	parsed, problems := addresses.Parse(&state.Range.Spec)
	if wanted := state.Range.Spec.NodeSelector; wanted != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(wanted); err != nil {
			selector = labels.Nothing()
			problems = append(problems, field.Invalid(field.NewPath("spec", "nodeSelector"), wanted, err.Error()))
		}
	}
	if len(problems) == 0 {
		state.Addresses = &parsed
	}
	return selector, problems
}

// carryOut applies the changes. Before it releases a block, it reads the node from the API server, because a node that
// has just registered may be missing from the cache.
//
// The finalizer comes first: without it, the range could disappear before its first block is created. The first failure
// stops the reconciliation, because each action assumes that the previous ones have succeeded.
func (r *Reconciler) carryOut(ctx context.Context, state *State, changes *Changes) error {
	if err := r.keepFinalizer(ctx, state); err != nil {
		return err
	}
	for i := range changes.Release {
		if err := r.release(ctx, state, &changes.Release[i]); err != nil {
			return err
		}
	}
	for i := range changes.Return {
		// This is safe even if the node still exists, because the node's driver no longer assigns addresses from a
		// released block.
		if err := objects.Delete(ctx, r.Client, "AddressBlock", &changes.Return[i]); err != nil {
			return err
		}
	}
	for i := range changes.Update {
		if err := r.Client.Update(ctx, &changes.Update[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot update AddressBlock %s: %w", changes.Update[i].Name, err)
		}
	}
	for i := range changes.Create {
		if err := r.Client.Create(ctx, &changes.Create[i]); err != nil {
			return fmt.Errorf("cannot create AddressBlock %s: %w", changes.Create[i].Name, err)
		}
	}
	return nil
}

// keepFinalizer adds the finalizer to a range before the first block is assigned, and removes it after the last block
// is deleted. It lists the blocks from the API server, since a block that was just created may be missing from the
// cache.
func (r *Reconciler) keepFinalizer(ctx context.Context, state *State) error {
	changed := state.Range.DeepCopy()
	switch {
	case state.Range.UID == "":
		return nil
	case state.Range.DeletionTimestamp == nil:
		if !controllerutil.AddFinalizer(changed, v1alpha1.FinalizerBlocks) {
			return nil
		}
	case len(state.Blocks) > 0 || !controllerutil.RemoveFinalizer(changed, v1alpha1.FinalizerBlocks):
		return nil
	default:
		var live v1alpha1.AddressBlockList
		if err := r.Live.List(ctx, &live); err != nil {
			return fmt.Errorf("cannot list AddressBlocks: %w", err)
		}
		if slices.ContainsFunc(live.Items, func(block v1alpha1.AddressBlock) bool {
			return block.Spec.AddressRange == state.Range.Name
		}) {
			return nil // the watch will deliver the block
		}
	}
	patch := client.MergeFromWithOptions(state.Range, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, changed, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot write the finalizer of AddressRange %s: %w", state.Range.Name, err)
	}
	state.Range.Finalizers, state.Range.ResourceVersion = changed.Finalizers, changed.ResourceVersion
	return nil
}

// release marks a block as released after its node has disappeared. The time in the status is only informational: each
// process measures for itself how long the block has been released and unused; see releases. The update includes the
// inspected resource version, so a block that another process has already released keeps its earlier time.
func (r *Reconciler) release(ctx context.Context, state *State, block *v1alpha1.AddressBlock) error {
	if entitled, err := r.entitled(ctx, state, block); err != nil || entitled {
		return err
	}
	if err := r.Client.Status().Update(ctx, block); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot release AddressBlock %s: %w", block.Name, err)
	}
	return nil
}

// entitled reports whether a block must be kept because, according to the API server, its node exists and its range is
// not being deleted. A false result is final, because a UID is never reused. A true result may become outdated.
func (r *Reconciler) entitled(ctx context.Context, state *State, block *v1alpha1.AddressBlock) (bool, error) {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	err := r.Live.Get(ctx, types.NamespacedName{Name: block.Spec.NodeName}, node)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("cannot check whether node %s still exists: %w", block.Spec.NodeName, err)
	case apierrors.IsNotFound(err) || node.UID != block.Spec.NodeUID:
		return false, nil
	}
	if state.Range.DeletionTimestamp == nil {
		return true, nil
	}
	live := &v1alpha1.AddressRange{}
	err = r.Live.Get(ctx, types.NamespacedName{Name: block.Spec.AddressRange}, live)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("cannot check whether AddressRange %s still exists: %w", block.Spec.AddressRange, err)
	}
	return err == nil && live.DeletionTimestamp == nil, nil
}

// writeStatus writes a range's status, except for a deleted range whose finalizer was removed. The API server deletes
// the range when its finalizer is removed, so an update would fail with a conflict or NotFound.
func (r *Reconciler) writeStatus(
	ctx context.Context, old *v1alpha1.AddressRange, status v1alpha1.AddressRangeStatus,
) error {
	if old.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(old, v1alpha1.FinalizerBlocks) {
		return nil
	}
	changed := old.DeepCopy()
	changed.Status = status
	if err := objects.WriteStatus(ctx, r.Client, "AddressRange", old, changed); err != nil {
		return err
	}
	conditions.EmitEvents(r.Events, old, old.Status.Conditions, slices.DeleteFunc(slices.Clone(status.Conditions),
		func(c metav1.Condition) bool { return c.Reason == ReasonDeleted })) // a deletion needs no event
	return nil
}

// Transform reduces a claim to the fields that the controller reads, before the cache stores it. Users control the size
// of a claim: its driver configurations alone may take up 320 KiB. A claim without valid devices from this driver is
// reduced to its identity. Other claims keep only the parts that come from DeviceClasses, the scheduler and the driver.
func Transform(object any) (any, error) {
	claim, ok := object.(*resourceapi.ResourceClaim)
	if !ok {
		return nil, fmt.Errorf("cannot cache a %T as a ResourceClaim; report this as a bug", object)
	}
	kept := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name,
		UID: claim.UID, ResourceVersion: claim.ResourceVersion, CreationTimestamp: claim.CreationTimestamp}}
	if devices, err := claimspec.Devices(claim); err != nil || len(devices) == 0 {
		return kept, nil //nolint:nilerr // the driver rejects such a claim, so it uses no addresses
	}
	kept.Status.ReservedFor = claim.Status.ReservedFor
	kept.Status.Allocation = &resourceapi.AllocationResult{}
	allocated := &kept.Status.Allocation.Devices
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == v1alpha1.DriverName {
			allocated.Results = append(allocated.Results, resourceapi.DeviceRequestAllocationResult{
				Request: result.Request, Driver: result.Driver, Pool: result.Pool, Device: result.Device,
				ShareID: result.ShareID, AdminAccess: result.AdminAccess})
		}
	}
	for _, config := range claim.Status.Allocation.Devices.Config {
		if config.Source == resourceapi.AllocationConfigSourceClass && config.Opaque != nil &&
			config.Opaque.Driver == v1alpha1.DriverName {
			allocated.Config = append(allocated.Config, config)
		}
	}
	for i := range claim.Status.Devices {
		if device := claim.Status.Devices[i]; device.Driver == v1alpha1.DriverName {
			device.Data, device.Conditions = nil, nil
			kept.Status.Devices = append(kept.Status.Devices, device)
		}
	}
	return kept, nil
}
