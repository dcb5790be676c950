package exposure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/conditions"
	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/topology"
	"github.com/dra-networking/dra-network-driver/cnichain"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

const (
	// gather is how long changes of slices are gathered, and so the shortest time between two counts: while many nodes
	// start, a policy has one new status in this time, and not one for each of them.
	gather = 5 * time.Second
	// again is when to look although nothing has changed: a definition that was older than the controller has dropped
	// the counts, and nobody says when it is replaced.
	again = 10 * time.Minute
	// soon is when to look again after a conflict. By then the cache has caught up.
	soon = 200 * time.Millisecond
)

// Reasons of the condition DevicesOffered.
const (
	// ReasonOffered is the reason of a policy in whose name devices are published.
	ReasonOffered = "Offered"
	// ReasonNoDevices is the reason of a policy in whose name nothing is published.
	ReasonNoDevices = "NoDevices"
	// ReasonNotAccepted is the reason of a policy that offers nothing because it is not accepted.
	ReasonNotAccepted = "NotAccepted"
	// ReasonNotNamed is the reason where devices are published that don't name their policy.
	ReasonNotNamed = "PoliciesNotNamed"
)

// Counter keeps in the status of every DeviceExposurePolicy how many devices are offered because of it. It counts for
// all policies at once. All fields are required.
type Counter struct {
	// Client reads through a cache, which has the slices of the driver, through Transform, and writes to the API
	// server.
	Client client.Client
}

// SetupWithManager has the manager call Reconcile some time after slices or the specification of a policy changed.
func (c *Counter) SetupWithManager(manager ctrl.Manager) error {
	specChanged := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	devicesChanged := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isSlice := e.ObjectOld.(*resourceapi.ResourceSlice)
		after, isToo := e.ObjectNew.(*resourceapi.ResourceSlice)
		return !isSlice || !isToo || !equality.Semantic.DeepEqual(before.Spec, after.Spec)
	}})
	return ctrl.NewControllerManagedBy(manager).
		Named("offers").
		Watches(&v1alpha1.DeviceExposurePolicy{}, gathered(), specChanged).
		Watches(&resourceapi.ResourceSlice{}, gathered(), devicesChanged).
		Watches(&chainapi.CNIPluginSchema{}, gathered(), specChanged).
		Complete(c)
}

// gathered makes one request, a while later, of all changes until then.
func gathered() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	later := func(q queue) {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: "all"}}, gather)
	}
	return handler.Funcs{
		CreateFunc:  func(_ context.Context, _ event.CreateEvent, q queue) { later(q) },
		UpdateFunc:  func(_ context.Context, _ event.UpdateEvent, q queue) { later(q) },
		DeleteFunc:  func(_ context.Context, _ event.DeleteEvent, q queue) { later(q) },
		GenericFunc: func(_ context.Context, _ event.GenericEvent, q queue) { later(q) },
	}
}

// Reconcile implements reconcile.Reconciler. Whatever the request is for, it is for all policies.
func (c *Counter) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var policies v1alpha1.DeviceExposurePolicyList
	if err := c.Client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil { // they are read only
		return reconcile.Result{}, fmt.Errorf("cannot list DeviceExposurePolicies: %w", err)
	}
	if len(policies.Items) == 0 {
		return reconcile.Result{}, nil
	}
	schemas, err := topology.Schemas(ctx, c.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	var published resourceapi.ResourceSliceList
	if err := c.Client.List(ctx, &published, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("cannot list ResourceSlices: %w", err)
	}
	pointers := make([]*resourceapi.ResourceSlice, len(published.Items))
	for i := range published.Items {
		pointers[i] = &published.Items[i]
	}
	byPolicy, unnamed := Count(pointers)
	var failures []error
	conflict := false
	for i := range policies.Items {
		p := &policies.Items[i]
		misspelt := cnichain.MisspeltPlugins(Plugins(p), schemas)
		err := c.write(ctx, p, Status(p, byPolicy[p.Name], unnamed, misspelt))
		if apierrors.IsConflict(err) {
			conflict = true // the object has changed since the cache read it
			continue
		}
		failures = append(failures, err)
	}
	if err := errors.Join(failures...); err != nil {
		return reconcile.Result{}, err
	}
	if conflict {
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// write writes a status, if it is another one.
func (c *Counter) write(
	ctx context.Context, p *v1alpha1.DeviceExposurePolicy, status v1alpha1.DeviceExposurePolicyStatus,
) error {
	if p.DeletionTimestamp != nil || equality.Semantic.DeepEqual(p.Status, status) {
		return nil
	}
	changed := p.DeepCopy()
	changed.Status = status
	err := c.Client.Status().Update(ctx, changed)
	if apierrors.IsConflict(err) || client.IgnoreNotFound(err) == nil {
		return client.IgnoreNotFound(err)
	}
	return fmt.Errorf("cannot write the status of DeviceExposurePolicy %s: %w", p.Name, err)
}

// Status returns the status of a policy of which so much is offered, beside so many devices that don't name their
// policy. It is equal to the one that the policy has where nothing has changed. One that hides devices has no counts:
// what is hidden is not published. misspelt says which of its plugins are probably other ones: devices are published
// for them, and no topology takes them.
func Status(
	p *v1alpha1.DeviceExposurePolicy, offers Offers, unnamed int, misspelt []string,
) v1alpha1.DeviceExposurePolicyStatus {
	status := *p.Status.DeepCopy()
	if p.Spec.Action == v1alpha1.ActionExclude {
		status.Devices, status.Nodes = nil, nil
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionDevicesOffered)
		return status
	}
	status.Devices, status.Nodes = ptr.To(offers.Devices), ptr.To(offers.Nodes)
	condition := devicesOffered(p, offers, unnamed)
	condition.Message = conditions.Bound(strings.Join(append(misspelt, condition.Message), "; "))
	if condition.Status == metav1.ConditionUnknown {
		status.Devices, status.Nodes = nil, nil
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return status
}

// devicesOffered is the condition of a policy by what the nodes publish because of it. unnamed is how many published
// devices name no policy at all: while there are some, that none names this one proves nothing.
func devicesOffered(p *v1alpha1.DeviceExposurePolicy, offers Offers, unnamed int) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionDevicesOffered, ObservedGeneration: p.Generation,
		Status: metav1.ConditionFalse}
	switch {
	case offers.Devices > 0:
		condition.Status, condition.Reason = metav1.ConditionTrue, ReasonOffered
		condition.Message = fmt.Sprintf("devices: %d, nodes: %d", offers.Devices, offers.Nodes)
	case Accepted(p.DeepCopy()).Status == metav1.ConditionFalse: // p is the cache's, and quantities keep their text
		condition.Reason = ReasonNotAccepted
		condition.Message = "the policy is not accepted, so it offers no devices: see the condition Accepted"
	case unnamed > 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, ReasonNotNamed
		condition.Message = fmt.Sprintf("no device names this policy, but some devices don't name any (%d): "+
			"their driver is older than the controller, the name of their policy has more than %d bytes, or they "+
			"have as many attributes as the API takes", unnamed, policy.MaxString)
	default:
		condition.Reason = ReasonNoDevices
		condition.Message = "no node offers a device because of this policy: nodeSelector and selector match none, " +
			"other policies decide about those that they match, or the nodes lack its CNI plugins"
	}
	shows := "shows what nodes make of it"
	if condition.Reason == ReasonNoDevices {
		shows += ", and names in it that are almost those of devices"
	}
	return conditions.WithHint(condition, fmt.Sprintf("kubectl netdra policies list %s --all-nodes", p.Name), shows)
}
