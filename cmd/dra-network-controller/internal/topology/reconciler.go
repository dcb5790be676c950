package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/conditions"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/deviceclasses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// FieldOwner is the field manager that the controller uses to apply DeviceClasses.
const FieldOwner = "dra-network-controller"

// workers is the number of topologies that are reconciled concurrently. Most of the time is spent waiting for the API
// server's disk.
const workers = 4

// soon is the retry delay after a conflict. By then, the cache has caught up.
const soon = 200 * time.Millisecond

// Reconciler maintains the DeviceClasses and the status of every NetworkTopology. All fields except ListAttributes are
// required.
type Reconciler struct {
	// Client reads through a cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// CheckSelector returns an error if the CEL expression of a root step is invalid.
	CheckSelector func(expression string) error
	// Events records events for topologies.
	Events events.EventRecorder
	// ListAttributes is passed to deviceclasses.Of.
	ListAttributes bool
}

// SetupWithManager registers the reconciler for every topology whose spec or classes change, and for all topologies
// when a CNIPluginSchema or an AddressRange changes. Changes to classes are not filtered: a class that a user edits or
// deletes must be repaired, and the reconciliation after our own write changes nothing.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	specChanged := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(manager).
		Named("networktopology").
		For(&v1alpha1.NetworkTopology{}, specChanged).
		Watches(&v1alpha1.CNIPluginSchema{}, handler.EnqueueRequestsFromMapFunc(r.all), specChanged).
		Watches(&v1alpha1.AddressRange{}, handler.EnqueueRequestsFromMapFunc(r.all), specChanged).
		Watches(&resourceapi.DeviceClass{}, handler.EnqueueRequestsFromMapFunc(r.concerned)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// Reconcile implements reconcile.Reconciler.
//
// It removes orphans first, because a class from an earlier topology with the same name would make create fail. A
// deleted topology is left to the garbage collector. The status is written last and describes the result of the
// changes.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	topology := &v1alpha1.NetworkTopology{}
	err := r.Client.Get(ctx, request.NamespacedName, topology)
	gone := apierrors.IsNotFound(err)
	if err != nil && !gone {
		return reconcile.Result{}, err
	}
	var existing resourceapi.DeviceClassList
	if err := r.Client.List(ctx, &existing, client.UnsafeDisableDeepCopy); err != nil { // read-only
		return reconcile.Result{}, fmt.Errorf("cannot list DeviceClasses: %w", err)
	}
	if orphans := Orphans(request.Name, topology.UID, existing.Items); len(orphans) > 0 {
		return reconcile.Result{RequeueAfter: soon}, r.removeOrphans(ctx, request.NamespacedName, orphans)
	}
	if gone || topology.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	problems, remarks, err := r.evaluate(ctx, topology)
	if err != nil {
		return reconcile.Result{}, err
	}
	var wanted []resourceapi.DeviceClass
	if len(problems) == 0 {
		wanted = deviceclasses.Of(topology, r.ListAttributes)
	}
	outcome := r.carryOut(ctx, Compare(topology, wanted, existing.Items))
	err = outcome.Err
	if !apierrors.IsConflict(err) {
		err = errors.Join(err, r.writeStatus(ctx, topology, Status(topology, problems, remarks, outcome)))
	}
	if apierrors.IsConflict(err) {
		// The object has changed since the cache read it. This is not a failure, so do not report it in the status.
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	return reconcile.Result{}, err
}

// removeOrphans deletes the classes of topologies that no longer exist. The garbage collector does the same, but after
// the CRD for NetworkTopologies is installed, it does not know the kind for up to 30 seconds, and permanently misses
// deletions during that time. removeOrphans reads the topology from the API server, because the caches for topologies
// and classes are filled by separate watches, and the former may lag behind.
func (r *Reconciler) removeOrphans(
	ctx context.Context, name types.NamespacedName, orphans []resourceapi.DeviceClass,
) error {
	topology := &v1alpha1.NetworkTopology{}
	if err := r.Live.Get(ctx, name, topology); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot check whether NetworkTopology %s still exists: %w", name.Name, err)
	}
	var failures []error
	for _, class := range Orphans(name.Name, topology.UID, orphans) {
		failures = append(failures, r.delete(ctx, &class))
	}
	return errors.Join(failures...)
}

// evaluate returns the problems in a topology. If the topology was accepted with the same spec, a violated plugin
// contract is only a remark: contracts change with driver versions and with objects in the cluster, which must not
// remove the classes of a working topology.
func (r *Reconciler) evaluate(
	ctx context.Context, topology *v1alpha1.NetworkTopology,
) (problems field.ErrorList, remarks []string, err error) {
	schemas, err := Schemas(ctx, r.Client)
	if err != nil {
		return nil, nil, err
	}
	problems, breaches := Validate(topology, schemas, r.CheckSelector)
	judged := Remarks(ctx, r.Client, topology, schemas)
	if !wasAccepted(topology) {
		return append(problems, breaches...), judged, nil
	}
	for _, breach := range breaches {
		remarks = append(remarks, breach.Error()+" (accepted before this rule existed)")
	}
	return problems, append(remarks, judged...), nil
}

// wasAccepted reports whether the topology's current generation was accepted. All rules apply to a new generation,
// because an author who changes a topology can also fix it.
func wasAccepted(topology *v1alpha1.NetworkTopology) bool {
	accepted := meta.FindStatusCondition(topology.Status.Conditions, v1alpha1.ConditionAccepted)
	return accepted != nil && accepted.Status == metav1.ConditionTrue &&
		accepted.ObservedGeneration == topology.Generation
}

// Schemas returns the built-in schemas and the schemas in the cluster, which take precedence. If a schema is invalid,
// its parameters are dropped. Its other properties are kept, such as the parameter that contains the device name:
// without them, a typo would remove the classes of every topology that uses the plugin.
func Schemas(ctx context.Context, reader client.Reader) (cnichain.Schemas, error) {
	var schemas v1alpha1.CNIPluginSchemaList
	if err := reader.List(ctx, &schemas); err != nil {
		return cnichain.Schemas{}, fmt.Errorf("cannot list CNIPluginSchemas: %w", err)
	}
	slices.SortFunc(schemas.Items, func(a, b v1alpha1.CNIPluginSchema) int { return cmp.Compare(a.Name, b.Name) })
	for i := range schemas.Items {
		if spec := &schemas.Items[i].Spec; len(cnichain.ValidateSchema(spec)) > 0 {
			spec.Config = nil
		}
	}
	return cnichain.DefaultSchemas().With(schemas.Items...), nil
}

// Remarks returns remarks for the author of a valid topology: about its plugins and selectors, and about AddressRanges
// that do not exist. The validity of a topology does not depend on AddressRanges, so a failure to list them is ignored.
func Remarks(
	ctx context.Context, reader client.Reader, topology *v1alpha1.NetworkTopology, schemas cnichain.Schemas,
) []string {
	remarks := append(cnichain.Remarks(topology, schemas), deviceclasses.Remarks(topology)...)
	var ranges v1alpha1.AddressRangeList
	if len(cnichain.Ranges(topology)) == 0 || reader.List(ctx, &ranges) != nil {
		return remarks
	}
	known := make([]string, len(ranges.Items))
	for i := range ranges.Items {
		known[i] = ranges.Items[i].Name
	}
	return append(remarks, cnichain.RangeRemarks(topology, known)...)
}

// carryOut makes the changes. It continues after a failure, so that one class does not block the others.
func (r *Reconciler) carryOut(ctx context.Context, changes Changes) Outcome {
	outcome := Outcome{Ready: changes.Ready, Taken: changes.Taken, Named: changes.Named}
	var failures []error
	for i := range changes.Delete {
		failures = append(failures, r.delete(ctx, &changes.Delete[i]))
	}
	for i := range changes.Create {
		class := &changes.Create[i]
		if err := r.create(ctx, class); err != nil {
			failures = append(failures, err)
			continue
		}
		outcome.Ready = append(outcome.Ready, class.Name)
	}
	for i := range changes.Strip {
		class := &changes.Strip[i]
		if err := r.strip(ctx, class); err != nil {
			failures = append(failures, err)
			continue
		}
		outcome.Ready = append(outcome.Ready, class.Found.Name)
	}
	for i := range changes.Repair {
		class := &changes.Repair[i]
		if err := r.repair(ctx, class); err != nil {
			failures = append(failures, err)
			continue
		}
		outcome.Ready = append(outcome.Ready, class.Name)
	}
	slices.Sort(outcome.Ready)
	outcome.Err = errors.Join(failures...)
	return outcome
}

// create creates a class that must not exist. The API server guarantees that a class of another owner, or one created
// by a concurrent reconciliation, is not overwritten. If the class exists, the cache does not contain it yet, so create
// reports a conflict.
func (r *Reconciler) create(ctx context.Context, class *resourceapi.DeviceClass) error {
	err := r.Client.Create(ctx, class, client.FieldOwner(FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		return apierrors.NewConflict(resourceapi.Resource("deviceclasses"), class.Name, errors.New("it already exists"))
	}
	return r.explain("create", class.Name, err)
}

// repair sets those fields of a class that the controller owns (server-side apply with force). Fields of other managers
// are kept. The patch contains the resource version of the compared class, so a class that has changed since is
// compared again.
func (r *Reconciler) repair(ctx context.Context, class *resourceapi.DeviceClass) error {
	err := r.Client.Apply(ctx, applyConfiguration(class), client.FieldOwner(FieldOwner), client.ForceOwnership)
	return r.explain("apply", class.Name, err)
}

// strip removes an unwanted extended resource or description from a class. Applying the class without the field would
// not remove it, because the field belongs to the manager that set it: the create request, or another client. Other
// differences are repaired when the watch returns the changed class.
func (r *Reconciler) strip(ctx context.Context, class *Strip) error {
	patch := client.MergeFromWithOptions(&class.Found, client.MergeFromWithOptimisticLock{})
	return r.explain("patch", class.Found.Name,
		r.Client.Patch(ctx, &class.Without, patch, client.FieldOwner(FieldOwner)))
}

// explain wraps an error from the API server. An API server without list attributes rejects a class by naming the
// violated rule, which does not reveal that a controller flag is the cause.
func (r *Reconciler) explain(verb, class string, err error) error {
	switch {
	case err == nil:
		return nil
	case r.ListAttributes && apierrors.IsInvalid(err):
		return fmt.Errorf("cannot %s DeviceClass %s: %w; --list-attributes needs the feature gate "+
			"DRAListTypeAttributes on the API server", verb, class, err)
	}
	return fmt.Errorf("cannot %s DeviceClass %s: %w", verb, class, err)
}

// delete deletes exactly the class that was inspected, not a new one with the same name.
func (r *Reconciler) delete(ctx context.Context, class *resourceapi.DeviceClass) error {
	preconditions := client.Preconditions{UID: ptr.To(class.UID), ResourceVersion: ptr.To(class.ResourceVersion)}
	if err := r.Client.Delete(ctx, class, preconditions); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot delete DeviceClass %s: %w", class.Name, err)
	}
	return nil
}

// writeStatus writes the status only if it differs, because each write wakes up every watcher of topologies, including
// all nodes. Events are emitted after the write, so that a conflict does not cause duplicates.
func (r *Reconciler) writeStatus(
	ctx context.Context, topology *v1alpha1.NetworkTopology, status v1alpha1.NetworkTopologyStatus,
) error {
	if equality.Semantic.DeepEqual(topology.Status, status) {
		return nil
	}
	changed := topology.DeepCopy()
	changed.Status = status
	if err := r.Client.Status().Update(ctx, changed); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot write the status of NetworkTopology %s: %w", topology.Name, err)
	}
	conditions.EmitEvents(r.Events, topology, topology.Status.Conditions, status.Conditions)
	return nil
}

// all returns requests for all topologies. It handles changes that may affect any of them, such as a changed
// CNIPluginSchema; the queue merges equal requests.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return requests(r.names(ctx, func(topologies []v1alpha1.NetworkTopology) []string {
		var names []string
		for i := range topologies {
			names = append(names, topologies[i].Name)
		}
		return names
	}))
}

func (r *Reconciler) concerned(ctx context.Context, class client.Object) []reconcile.Request {
	return requests(r.names(ctx,
		func(topologies []v1alpha1.NetworkTopology) []string { return concerned(class, topologies) }))
}

// names returns the names that pick selects from all topologies. A watch handler cannot return an error, but reading
// from a synced cache does not fail.
func (r *Reconciler) names(ctx context.Context, pick func([]v1alpha1.NetworkTopology) []string) []string {
	var topologies v1alpha1.NetworkTopologyList
	if err := r.Client.List(ctx, &topologies, client.UnsafeDisableDeepCopy); err != nil { // read-only
		ctrl.LoggerFrom(ctx).Error(err,
			"cannot list NetworkTopologies; ignoring the change of a class, schema or range")
		return nil
	}
	return pick(topologies.Items)
}

func requests(names []string) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range names {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
	return requests
}
