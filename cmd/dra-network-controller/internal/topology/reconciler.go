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

// FieldOwner is the name under which the controller applies DeviceClasses.
const FieldOwner = "dra-network-controller"

// workers is how many topologies are looked at at a time. Most of that time is spent on the API server's disk.
const workers = 4

// soon is when to look again after a conflict. By then the cache has caught up.
const soon = 200 * time.Millisecond

// Reconciler keeps the DeviceClasses and the status of every NetworkTopology as they should be. All fields but
// ListAttributes are required.
type Reconciler struct {
	// Client reads through a cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// CheckSelector returns what is wrong with the CEL expression of a root step.
	CheckSelector func(expression string) error
	// Events takes the events of topologies.
	Events events.EventRecorder
	// ListAttributes is as in deviceclasses.Of.
	ListAttributes bool
}

// SetupWithManager has the manager call Reconcile for every topology whose specification changed, whose classes
// changed, and for all when a CNIPluginSchema changed. Changes of classes have no predicate: a class that somebody
// edits or deletes must be put right, and the next look at it, after our own write, finds nothing to do.
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
// Orphans are removed before anything is made: a class of an earlier topology of the same name would be in the way of
// create. A topology that is being deleted is left to the garbage collector. The status is written last, and describes
// what the changes above have come to.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	topology := &v1alpha1.NetworkTopology{}
	err := r.Client.Get(ctx, request.NamespacedName, topology)
	gone := apierrors.IsNotFound(err)
	if err != nil && !gone {
		return reconcile.Result{}, err
	}
	var existing resourceapi.DeviceClassList
	if err := r.Client.List(ctx, &existing, client.UnsafeDisableDeepCopy); err != nil { // they are read only
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
		// the object has changed since the cache read it: no failure of the controller, so the status stays
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	return reconcile.Result{}, err
}

// removeOrphans deletes classes of topologies that are gone, unless only our cache says so. The garbage collector does
// this as well, but for up to 30 seconds after the definition of NetworkTopologies was made it doesn't know the kind,
// and what is deleted then it misses for good. The API server is asked since the cache of topologies may be behind that
// of classes: both are filled by watches of their own.
func (r *Reconciler) removeOrphans(
	ctx context.Context, name types.NamespacedName, orphans []resourceapi.DeviceClass,
) error {
	topology := &v1alpha1.NetworkTopology{}
	if err := r.Live.Get(ctx, name, topology); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot find out whether NetworkTopology %s is gone: %w", name.Name, err)
	}
	var failures []error
	for _, class := range Orphans(name.Name, topology.UID, orphans) {
		failures = append(failures, r.delete(ctx, &class))
	}
	return errors.Join(failures...)
}

// evaluate returns the problems of a topology. A broken contract of a plugin is no problem of a topology that was
// accepted with the same specification: contracts come with new versions of the driver and with objects of the cluster,
// and must not remove the classes of a topology that works.
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
		remarks = append(remarks, breach.Error()+" (it was accepted before this was known)")
	}
	return problems, append(remarks, judged...), nil
}

// wasAccepted reports whether the topology was accepted as it is now. A new generation is judged by all rules: whoever
// changes a topology can also correct it.
func wasAccepted(topology *v1alpha1.NetworkTopology) bool {
	accepted := meta.FindStatusCondition(topology.Status.Conditions, v1alpha1.ConditionAccepted)
	return accepted != nil && accepted.Status == metav1.ConditionTrue &&
		accepted.ObservedGeneration == topology.Generation
}

// Schemas returns the built-in schemas and those of the cluster, which go before them. What one that is invalid says of
// parameters is left out. An invalid schema keeps what it says beside parameters, such as which parameter names the
// device: without that, every topology with the plugin would lose its classes for a spelling mistake.
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

// Remarks says of a topology that Judge has no problems with what its author should know of its plugins and selectors,
// and of AddressRanges that the cluster does not have. A topology is right or wrong without these, so nothing is said
// of them where they can't be read.
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

// carryOut makes the changes. It goes on after a failure, so that one class doesn't hold up the others.
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

// create makes a class that must not exist: the API server sees to it that none of somebody else, or of a topology that
// is looked at in this very moment, is overwritten. If there is one, the cache doesn't know yet, and that is a
// conflict.
func (r *Reconciler) create(ctx context.Context, class *resourceapi.DeviceClass) error {
	err := r.Client.Create(ctx, class, client.FieldOwner(FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		return apierrors.NewConflict(resourceapi.Resource("deviceclasses"), class.Name, errors.New("it exists already"))
	}
	return r.explain("create", class.Name, err)
}

// repair sets the fields of a class that the controller owns (server-side apply, by force). Fields of other managers
// stay as they are. The patch has the resource version of the class that was compared, so a class that has changed
// since is compared again.
func (r *Reconciler) repair(ctx context.Context, class *resourceapi.DeviceClass) error {
	err := r.Client.Apply(ctx, applyConfiguration(class), client.FieldOwner(FieldOwner), client.ForceOwnership)
	return r.explain("apply", class.Name, err)
}

// strip takes from a class what it should not have. To apply the class without it would leave it there: a field belongs
// to whoever set it, and that was the request that made the class, or somebody else. What else differs is repaired when
// the class comes back from the API server.
func (r *Reconciler) strip(ctx context.Context, class *Strip) error {
	patch := client.MergeFromWithOptions(&class.Found, client.MergeFromWithOptimisticLock{})
	return r.explain("patch", class.Found.Name,
		r.Client.Patch(ctx, &class.Without, patch, client.FieldOwner(FieldOwner)))
}

// explain says what failed. An API server without lists in attributes refuses a class with the rule that it broke,
// which tells nobody that a flag of the controller is the reason.
func (r *Reconciler) explain(verb, class string, err error) error {
	switch {
	case err == nil:
		return nil
	case r.ListAttributes && apierrors.IsInvalid(err):
		return fmt.Errorf("cannot %s DeviceClass %s: %w; --list-attributes needs the feature DRAListTypeAttributes "+
			"on the API server", verb, class, err)
	}
	return fmt.Errorf("cannot %s DeviceClass %s: %w", verb, class, err)
}

// delete removes just the class that was looked at, not one that took its name since.
func (r *Reconciler) delete(ctx context.Context, class *resourceapi.DeviceClass) error {
	preconditions := client.Preconditions{UID: ptr.To(class.UID), ResourceVersion: ptr.To(class.ResourceVersion)}
	if err := r.Client.Delete(ctx, class, preconditions); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot delete DeviceClass %s: %w", class.Name, err)
	}
	return nil
}

// writeStatus writes only what differs: an unchanged status that is written wakes every watch of topologies, among them
// those of all nodes. The events come after the write, so that a conflict tells nothing twice.
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

// all asks for every topology to be reconciled. It is for changes that may concern any of them, such as that of a
// CNIPluginSchema; the queue takes equal requests for one.
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

// names returns the names that pick chooses. A watch's handler can't return an error, and the cache, which is what is
// read here, has none to give once it is filled.
func (r *Reconciler) names(ctx context.Context, pick func([]v1alpha1.NetworkTopology) []string) []string {
	var topologies v1alpha1.NetworkTopologyList
	if err := r.Client.List(ctx, &topologies, client.UnsafeDisableDeepCopy); err != nil { // they are read only
		ctrl.LoggerFrom(ctx).Error(err,
			"cannot list NetworkTopologies: a change of a class or schema is not acted upon")
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
