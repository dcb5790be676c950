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
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/conditions"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

const (
	// soon is when to look again after a conflict. By then the cache has caught up.
	soon = 200 * time.Millisecond
	// gather is how long changes of claims and nodes are collected: a range is reconciled once for all of them.
	gather = 100 * time.Millisecond
)

// Reconciler gives nodes blocks of every AddressRange. All fields are required. It may be running in two processes for
// a moment, when a lease changes hands: nothing that is written depends on being alone.
type Reconciler struct {
	// Client reads through a cache and writes to the API server. It has only the metadata of nodes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Events takes the events of ranges.
	Events events.EventRecorder
	// Clock is for people: its time is written to objects and decides nothing. It may be wrong, and jump.
	Clock clock.PassiveClock
	// Elapsed returns how long the process has been running, by a clock that never jumps.
	Elapsed func() time.Duration

	once     sync.Once
	demand   *demand
	released releases
}

// claims returns the demand of claims.
func (r *Reconciler) claims() *demand {
	r.once.Do(func() { r.demand = newDemand(r.Elapsed) })
	return r.demand
}

// SetupWithManager has the manager call Reconcile for every range that changed, or whose blocks, nodes, topologies or
// claims did. Nodes are watched by their metadata: their status is most of them, and what kubelet writes all the time,
// while only names, UIDs and labels count here.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	specChanged := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	ofBlock := func(_ context.Context, block client.Object) []reconcile.Request {
		if block, ok := block.(*v1alpha1.AddressBlock); ok {
			return requests([]string{block.Spec.AddressRange})
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
		Watches(&v1alpha1.NetworkTopology{}, r.later(r.all), specChanged).
		WatchesMetadata(&corev1.Node{}, r.later(r.all), nodesChanged).
		Watches(&resourceapi.ResourceClaim{}, r.later(r.ofClaim)).
		Complete(r)
}

// later delays reconciliations. The change of an object, or its deletion, is recorded immediately, including all
// objects that exist at the start before any range is reconciled. Package controller-runtime starts no worker before
// each handler has received the objects of the first list (source.Kind, HasSynced), so demand is complete when the
// first block could be returned.
func (r *Reconciler) later(
	ranges func(ctx context.Context, object client.Object, gone bool) []string,
) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, object client.Object, gone bool, q queue) {
		for _, request := range requests(ranges(ctx, object, gone)) {
			q.AddAfter(request, gather)
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, e.Object, false, q) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, e.ObjectNew, false, q) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, true, q) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { add(ctx, e.Object, false, q) },
	}
}

// all returns the names of all ranges. A handler cannot return an error, and reading from a filled cache does not fail.
func (r *Reconciler) all(ctx context.Context, _ client.Object, _ bool) []string {
	var ranges v1alpha1.AddressRangeList
	if err := r.Client.List(ctx, &ranges, client.UnsafeDisableDeepCopy); err != nil { // they are read only
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list AddressRanges: a change of a node is not acted upon")
		return nil
	}
	var names []string
	for i := range ranges.Items {
		names = append(names, ranges.Items[i].Name)
	}
	return names
}

// ofClaim records the demand of a claim, and returns the ranges of its current and previous addresses.
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
	// A deleted topology has no ranges any longer; its change has woken all of them.
	for _, name := range changed(claim) {
		topology := &v1alpha1.NetworkTopology{}
		if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, topology); err == nil {
			ranges = append(ranges, cnichain.Ranges(topology)...)
		}
	}
	return ranges
}

func requests(names []string) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range names {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
	return requests
}

// Reconcile implements reconcile.Reconciler.
//
// Phases: the sizes of PodGroups are read, then everything else, the plan is made and carried out, the status is
// written. A partially carried out plan is not continued: the next reconciliation makes a new one from the current
// state.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	unmeasured := r.measure(ctx, request.Name) // nobody has to wait for that
	state, problems, remarks, err := r.read(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	changes := Plan(*state)
	gone := state.Range.UID == ""
	if err = r.carryOut(ctx, state, &changes); err == nil && !gone {
		err = r.writeStatus(ctx, state.Range, Status(state, &changes, problems, remarks))
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		// an object has changed since the cache read it: no failure of the controller, so the status stays
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	if err = errors.Join(err, unmeasured); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: changes.Next}, nil
}

// read reads the inputs of a plan. A deleted range is replaced by one with a deletion timestamp: blocks of a range
// whose finalizer was removed are returned, too. The lists are shared with the cache and must not be changed; the
// range, which carryOut changes, is a copy.
func (r *Reconciler) read(
	ctx context.Context, name string,
) (state *State, problems field.ErrorList, remarks []string, err error) {
	var blocks v1alpha1.AddressBlockList
	var ranges v1alpha1.AddressRangeList
	var topologies v1alpha1.NetworkTopologyList
	nodes := metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	for _, list := range []client.ObjectList{&blocks, &ranges, &topologies, &nodes} {
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil { // they are read only
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
	// Of an invalid range no size is known, and nothing is given, so demand need not be bounded.
	counts, blockSize := perPod(name, topologies.Items), math.MaxInt32
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
		remarks = append(remarks, fmt.Sprintf("its cidrs have addresses of AddressRange %s, too, which is right only "+
			"if no pod of one can reach a pod of the other", other))
	}
	return state, problems, remarks, nil
}

// measure reads the number of pods of PodGroups whose claims take addresses of a range: the number that is scheduled
// together. It is read once; later pods take the remaining addresses. The size of a group without such a number is
// unknown. A PodGroup that is gone, or whose API the cluster does not serve, counts as one pod: its absence must not
// keep nodes from blocks.
func (r *Reconciler) measure(ctx context.Context, name string) error {
	var topologies v1alpha1.NetworkTopologyList
	if err := r.Client.List(ctx, &topologies, client.UnsafeDisableDeepCopy); err != nil { // they are read only
		return fmt.Errorf("cannot list NetworkTopologies: %w", err)
	}
	for _, group := range r.claims().unknown(perPod(name, topologies.Items)) {
		found := &schedulingapi.PodGroup{}
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: group.Namespace, Name: group.Name}, found)
		if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("cannot find out how many pods PodGroup %s/%s has: %w", group.Namespace, group.Name, err)
		}
		pods := 1
		if gang := found.Spec.SchedulingPolicy.Gang; gang != nil && found.UID == group.UID {
			pods = max(pods, int(gang.MinCount))
		}
		r.claims().resize(group, pods)
	}
	return nil
}

// validate reports what is wrong with a range, and reads it if nothing is.
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

// carryOut makes the changes. Before a block is released the API server itself is asked: a cache may lack a node that
// has just registered.
//
// The finalizer comes first: without it a range could vanish between this look and the creation of its block. The first
// failure ends the look, since the rest of the plan was made on the assumption that it succeeds.
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
		if err := r.giveBack(ctx, &changes.Return[i]); err != nil {
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

// keepFinalizer adds the finalizer to a range before the first block is assigned, and removes it when the API server
// has no block of it any longer. It asks the API server, since the cache may lack a block that was just created.
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
			return nil // the cache hears of it
		}
	}
	patch := client.MergeFromWithOptions(state.Range, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, changed, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot write the finalizer of AddressRange %s: %w", state.Range.Name, err)
	}
	state.Range.Finalizers, state.Range.ResourceVersion = changed.Finalizers, changed.ResourceVersion
	return nil
}

// release notes that the node of a block was found to be gone. The time in the object is for people: each process
// counts for itself since when it has seen the block released and without use, see releases. The update carries the
// version that was looked at: a block that was released by another process keeps its earlier time.
func (r *Reconciler) release(ctx context.Context, state *State, block *v1alpha1.AddressBlock) error {
	if entitled, err := r.entitled(ctx, state, block); err != nil || entitled {
		return err
	}
	if err := r.Client.Status().Update(ctx, block); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot release AddressBlock %s: %w", block.Name, err)
	}
	return nil
}

// giveBack deletes a released block in the version that was inspected. This is final even if the node still exists: it
// assigns no address of the block any longer.
func (r *Reconciler) giveBack(ctx context.Context, block *v1alpha1.AddressBlock) error {
	exactly := client.Preconditions{UID: ptr.To(block.UID), ResourceVersion: ptr.To(block.ResourceVersion)}
	if err := r.Client.Delete(ctx, block, exactly); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot delete AddressBlock %s: %w", block.Name, err)
	}
	return nil
}

// entitled reports whether the API server still has the node of a block, and the range, which is not being deleted. A
// UID that is gone never returns, so the answer false needs no lock and no repetition, while the answer true may become
// outdated.
func (r *Reconciler) entitled(ctx context.Context, state *State, block *v1alpha1.AddressBlock) (bool, error) {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	err := r.Live.Get(ctx, types.NamespacedName{Name: block.Spec.NodeName}, node)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("cannot find out whether node %s is gone: %w", block.Spec.NodeName, err)
	case apierrors.IsNotFound(err) || node.UID != block.Spec.NodeUID:
		return false, nil
	}
	if state.Range.DeletionTimestamp == nil {
		return true, nil
	}
	live := &v1alpha1.AddressRange{}
	err = r.Live.Get(ctx, types.NamespacedName{Name: block.Spec.AddressRange}, live)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("cannot find out whether AddressRange %s is gone: %w", block.Spec.AddressRange, err)
	}
	return err == nil && live.DeletionTimestamp == nil, nil
}

// writeStatus skips a range whose finalizer is gone: the API server deletes it with that write, and an update would
// only be answered with a conflict or that it is not there.
func (r *Reconciler) writeStatus(
	ctx context.Context, old *v1alpha1.AddressRange, status v1alpha1.AddressRangeStatus,
) error {
	if equality.Semantic.DeepEqual(old.Status, status) ||
		old.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(old, v1alpha1.FinalizerBlocks) {
		return nil
	}
	changed := old.DeepCopy()
	changed.Status = status
	if err := r.Client.Status().Update(ctx, changed); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot write the status of AddressRange %s: %w", old.Name, err)
	}
	conditions.EmitEvents(r.Events, old, old.Status.Conditions, slices.DeleteFunc(slices.Clone(status.Conditions),
		func(c metav1.Condition) bool { return c.Reason == ReasonDeleted })) // who deletes it knows
	return nil
}

// Transform reduces a claim to the fields that the controller reads, before the cache stores it. Users decide how large
// a claim is: its configurations alone may have 320 KiB, for any driver. So a claim without valid devices of this
// driver keeps its identity only, and of others the parts that DeviceClasses, scheduler and driver have written stay.
func Transform(object any) (any, error) {
	claim, ok := object.(*resourceapi.ResourceClaim)
	if !ok {
		return nil, fmt.Errorf("cannot cache a %T as a ResourceClaim; report this as a bug", object)
	}
	kept := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name,
		UID: claim.UID, ResourceVersion: claim.ResourceVersion, CreationTimestamp: claim.CreationTimestamp}}
	if devices, err := claimspec.Devices(claim); err != nil || len(devices) == 0 {
		return kept, nil //nolint:nilerr // the driver refuses such a claim, so it takes nothing
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
