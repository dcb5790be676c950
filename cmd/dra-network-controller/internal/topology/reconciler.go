package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/conditions"
	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/objects"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/deviceclasses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// FieldOwner is the name of the field manager for the controller's changes to DeviceClasses.
const FieldOwner = "dra-network-controller"

// workers is the number of topologies that are reconciled concurrently. Most of the time is spent waiting for the API
// server's disk.
const workers = 4

// Reconciler maintains the DeviceClasses and the status of every NetworkTopology. All fields except ListAttributes are
// required.
type Reconciler struct {
	// Client reads through a cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// CheckSelector returns an error if a root step's CEL expression is invalid.
	CheckSelector func(expression string) error
	// Events records events for topologies.
	Events events.EventRecorder
	// ListAttributes is passed to deviceclasses.Of.
	ListAttributes bool
}

// SetupWithManager registers the reconciler. A topology is reconciled when its spec or classes change; all topologies
// are reconciled when a CNIPluginSchema or an AddressRange changes. Changes to classes are not filtered: a class that a
// user edits or deletes must be restored, and the reconciliation triggered by our own write does not change anything.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	specChanged := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	affected := handler.EnqueueRequestsFromMapFunc(r.affected)
	return ctrl.NewControllerManagedBy(manager).
		Named("networktopology").
		For(&v1alpha1.NetworkTopology{}, specChanged).
		Watches(&v1alpha1.CNIPluginSchema{}, affected, specChanged).
		Watches(&v1alpha1.AddressRange{}, affected, specChanged).
		Watches(&resourceapi.DeviceClass{}, affected).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// Reconcile implements reconcile.Reconciler.
//
// It removes orphans first, because a class left over from an earlier topology with the same name would make creation
// fail. The classes of a topology that is being deleted are left to the garbage collector. The status is written last
// and describes the result of the changes.
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
		return reconcile.Result{RequeueAfter: objects.Soon}, r.removeOrphans(ctx, request.NamespacedName, orphans)
	}
	if gone || topology.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	schemas, err := Schemas(ctx, r.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	problems, remarks := r.evaluate(ctx, topology, schemas)
	var wanted []resourceapi.DeviceClass
	if len(problems) == 0 {
		wanted = deviceclasses.Of(topology, schemas.AttachesInterface, r.ListAttributes)
	}
	outcome := r.carryOut(ctx, Compare(topology, wanted, existing.Items))
	err = outcome.Err
	if !objects.IsOutdated(err) { // an outdated cache is not a failure, so do not report it in the status
		err = errors.Join(err, r.writeStatus(ctx, topology, Status(topology, problems, remarks, outcome)))
	}
	return objects.Result(0, err)
}

// removeOrphans deletes the classes of topologies that no longer exist. The garbage collector does the same, but for up
// to 30 seconds after the CRD for NetworkTopologies is installed, it does not recognize the kind, and it never
// processes deletions that happen during that time. removeOrphans reads the topology from the API server, because the
// caches for topologies and classes are filled by separate watches, and the topology cache may lag behind.
func (r *Reconciler) removeOrphans(
	ctx context.Context, name types.NamespacedName, orphans []resourceapi.DeviceClass,
) error {
	topology := &v1alpha1.NetworkTopology{}
	if err := r.Live.Get(ctx, name, topology); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot check whether NetworkTopology %s still exists: %w", name.Name, err)
	}
	var failures []error
	for _, class := range Orphans(name.Name, topology.UID, orphans) {
		failures = append(failures, objects.Delete(ctx, r.Client, "DeviceClass", &class))
	}
	return errors.Join(failures...)
}

// evaluate returns the problems in a topology. If the topology has already been accepted with the same spec, a violated
// plugin contract is only a remark: contracts change when the driver is upgraded or when objects in the cluster change,
// and this must not remove the classes of a working topology.
func (r *Reconciler) evaluate(
	ctx context.Context, topology *v1alpha1.NetworkTopology, schemas cnichain.Schemas,
) (problems field.ErrorList, remarks []string) {
	problems, breaches := Validate(topology, schemas, r.CheckSelector)
	judged := Remarks(ctx, r.Client, topology, schemas)
	if !wasAccepted(topology) {
		return append(problems, breaches...), judged
	}
	for _, breach := range breaches {
		remarks = append(remarks, breach.Error()+" (accepted before this rule existed)")
	}
	return problems, append(remarks, judged...)
}

// wasAccepted reports whether the topology's current generation has been accepted. A new generation is subject to all
// rules, because an author who changes a topology can also fix it.
func wasAccepted(topology *v1alpha1.NetworkTopology) bool {
	accepted := meta.FindStatusCondition(topology.Status.Conditions, v1alpha1.ConditionAccepted)
	return accepted != nil && accepted.Status == metav1.ConditionTrue &&
		accepted.ObservedGeneration == topology.Generation
}

// Schemas returns the schemas in the cluster and the built-in schemas. Those in the cluster take precedence. If a
// schema is invalid, its parameters are dropped. Its other properties, such as the parameter that takes the device
// name, are kept: otherwise, a typo would remove the classes of every topology that uses the plugin.
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

// Remarks returns remarks for the author of a valid topology: about its plugins and selectors, and about missing
// AddressRanges. A topology's validity does not depend on AddressRanges, so a failure to list them is ignored.
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

// carryOut applies the changes. It continues after a failure, so that one class does not block the others.
func (r *Reconciler) carryOut(ctx context.Context, changes Changes) Outcome {
	outcome := Outcome{Ready: changes.Ready, Taken: changes.Taken, Named: changes.Named}
	var failures []error
	for i := range changes.Delete {
		failures = append(failures, objects.Delete(ctx, r.Client, "DeviceClass", &changes.Delete[i]))
	}
	written := func(verb, class string, err error) {
		if err != nil {
			failures = append(failures, r.explain(verb, class, err))
			return
		}
		outcome.Ready = append(outcome.Ready, class)
	}
	for i := range changes.Create {
		// Create never overwrites a class that belongs to another owner or was created by a concurrent reconciliation.
		// If the class already exists, it is just not in the cache yet.
		class := &changes.Create[i]
		written("create", class.Name, r.Client.Create(ctx, class, client.FieldOwner(FieldOwner)))
	}
	for i := range changes.Repair {
		// The patch contains only the differences and the resource version of the class that was compared, so if the
		// class has changed in the meantime, it is compared again. Fields from other managers are kept.
		class := &changes.Repair[i]
		patch := client.MergeFromWithOptions(&class.Found, client.MergeFromWithOptimisticLock{})
		err := r.Client.Patch(ctx, &class.Repaired, patch, client.FieldOwner(FieldOwner))
		if apierrors.IsNotFound(err) { // deleted in the meantime, so it must be created
			err = apierrors.NewConflict(resourceapi.Resource("deviceclasses"), class.Found.Name, err)
		}
		written("patch", class.Found.Name, err)
	}
	slices.Sort(outcome.Ready)
	outcome.Err = errors.Join(failures...)
	return outcome
}

// explain wraps an error from the API server. An API server that does not support list attributes rejects a class and
// names the violated rule, but the error does not reveal that a controller flag is the cause.
func (r *Reconciler) explain(verb, class string, err error) error {
	if r.ListAttributes && apierrors.IsInvalid(err) {
		return fmt.Errorf("cannot %s DeviceClass %s: %w; --list-attributes needs the feature gate "+
			"DRAListTypeAttributes on the API server", verb, class, err)
	}
	return fmt.Errorf("cannot %s DeviceClass %s: %w", verb, class, err)
}

// writeStatus writes the status before it emits events, so that a conflict does not cause duplicate events.
func (r *Reconciler) writeStatus(
	ctx context.Context, topology *v1alpha1.NetworkTopology, status v1alpha1.NetworkTopologyStatus,
) error {
	changed := topology.DeepCopy()
	changed.Status = status
	if err := objects.WriteStatus(ctx, r.Client, "NetworkTopology", topology, changed); err != nil {
		return err
	}
	conditions.EmitEvents(r.Events, topology, topology.Status.Conditions, status.Conditions)
	return nil
}

// affected returns requests for the topologies that a change may affect: for a class, the topologies returned by
// concerned; for a CNIPluginSchema or AddressRange, all topologies. The queue merges identical requests. An event
// handler cannot return an error, but reading from a synced cache does not fail.
func (r *Reconciler) affected(ctx context.Context, changed client.Object) []reconcile.Request {
	var topologies v1alpha1.NetworkTopologyList
	if err := r.Client.List(ctx, &topologies, client.UnsafeDisableDeepCopy); err != nil { // read-only
		ctrl.LoggerFrom(ctx).Error(err,
			"cannot list NetworkTopologies; ignoring the change of a class, schema or range")
		return nil
	}
	if class, isClass := changed.(*resourceapi.DeviceClass); isClass {
		return objects.Requests(concerned(class, topologies.Items))
	}
	var names []string
	for i := range topologies.Items {
		names = append(names, topologies.Items[i].Name)
	}
	return objects.Requests(names)
}

// Validate returns the problems with a topology's structure and with the expressions in its root steps, which
// checkSelector compiles. It returns breaches separately, because the topology may have been accepted earlier despite
// them. Breaches are violations of plugin contracts, and comparisons of attributes with literals of the wrong type. If
// a topology has no problems, the API server accepts its classes, and the scheduler can evaluate them for any device.
func Validate(
	topology *v1alpha1.NetworkTopology, schemas cnichain.Schemas, checkSelector func(string) error,
) (problems, breaches field.ErrorList) {
	// The name becomes a label value on each class. Label values have a lower maximum length than object names.
	if size := len(topology.Name); size > validation.LabelValueMaxLength {
		problems = append(problems,
			field.TooLong(field.NewPath("metadata", "name"), topology.Name, validation.LabelValueMaxLength))
	}
	if allowed := topology.Spec.AllowedNamespaces; allowed != nil {
		if _, err := metav1.LabelSelectorAsSelector(allowed); err != nil {
			problems = append(problems, field.Invalid(field.NewPath("spec", "allowedNamespaces"), allowed, err.Error()))
		}
	}
	problems = append(problems, cnichain.ValidateStored(topology, schemas)...)
	for i := range topology.Spec.Steps {
		problems = append(problems, judgeRoot(field.NewPath("spec", "steps").Index(i), &topology.Spec.Steps[i],
			checkSelector)...)
	}
	return problems, append(cnichain.CheckContracts(topology, schemas), mismatches(topology)...)
}

func mismatches(topology *v1alpha1.NetworkTopology) field.ErrorList {
	var problems field.ErrorList
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		if !isRoot(step) || step.Selector == nil {
			continue
		}
		if err := policy.CheckTypes(step.Selector.CEL); err != nil {
			path := field.NewPath("spec", "steps").Index(i).Child("selector", "cel")
			problems = append(problems, field.Invalid(path, step.Selector.CEL, err.Error()))
		}
	}
	return problems
}

// judgeRoot checks those fields of a root step that its class is built from. The plugin's name becomes the name of a
// device attribute, which must be a C identifier of at most 32 characters. With any other name, no device could match,
// and a pod that uses the class would never be scheduled.
func judgeRoot(path *field.Path, step *v1alpha1.Step, checkSelector func(string) error) field.ErrorList {
	if !isRoot(step) {
		return nil
	}
	var problems field.ErrorList
	if attribute := policyapi.CNIAttribute(step.Type); step.Type != "" &&
		(len(validation.IsCIdentifier(attribute)) > 0 || len(attribute) > resourceapi.DeviceMaxIDLength) {
		problems = append(problems, field.Invalid(path.Child("type"), step.Type,
			"no device can advertise this plugin: the name of a device attribute must start with a letter and have at "+
				"most 32 characters; install the plugin under another name"))
	}
	if step.Selector == nil || strings.TrimSpace(step.Selector.CEL) == "" {
		return problems // the structural check reports a missing selector
	}
	if err := checkSelector(step.Selector.CEL); err != nil {
		problems = append(problems, field.Invalid(path.Child("selector", "cel"), step.Selector.CEL, err.Error()))
	}
	return problems
}

func isRoot(step *v1alpha1.Step) bool { return len(step.DependOn) == 0 }
