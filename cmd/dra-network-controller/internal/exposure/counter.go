package exposure

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/conditions"
	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/objects"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

const (
	// gather is how long changes to slices are collected, and thus the minimum time between two counts. While many
	// nodes are starting, a policy's status changes only once in this time instead of once per node.
	gather = 5 * time.Second
	// again is the interval between counts if nothing changes. A recount restores counts that were dropped because the
	// CRD was older than the controller, since replacing the CRD does not cause an event.
	again = 10 * time.Minute
)

// Reasons for the condition DevicesOffered.
const (
	// ReasonOffered means that devices are published for the policy.
	ReasonOffered = "Offered"
	// ReasonNoDevices means that no device is published for the policy.
	ReasonNoDevices = "NoDevices"
	// ReasonNotAccepted means that no devices are offered because the policy is not accepted.
	ReasonNotAccepted = "NotAccepted"
	// ReasonNotNamed means that no device names the policy, but some devices do not name any policy.
	ReasonNotNamed = "PoliciesNotNamed"
)

// Counter keeps the number of offered devices in the status of every DeviceExposurePolicy up to date. Each
// reconciliation updates the counts for all policies. All fields are required.
type Counter struct {
	// Client reads through a cache and writes to the API server. The cache contains the driver's slices, reduced by
	// Transform.
	Client client.Client
}

// SetupWithManager registers the counter for changes to slices and to policy specs.
func (c *Counter) SetupWithManager(manager ctrl.Manager) error {
	specChanged := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	devicesChanged := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isSlice := e.ObjectOld.(*resourceapi.ResourceSlice)
		after, isToo := e.ObjectNew.(*resourceapi.ResourceSlice)
		return !isSlice || !isToo || !equality.Semantic.DeepEqual(before.Spec, after.Spec)
	}})
	gathered := objects.Later(gather, func(context.Context, client.Object, bool) []string { return []string{"all"} })
	return ctrl.NewControllerManagedBy(manager).
		Named("offers").
		Watches(&v1alpha1.DeviceExposurePolicy{}, gathered, specChanged).
		Watches(&resourceapi.ResourceSlice{}, gathered, devicesChanged).
		Complete(c)
}

// Reconcile implements reconcile.Reconciler. It ignores the request and updates all policies.
func (c *Counter) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var policies v1alpha1.DeviceExposurePolicyList
	if err := c.Client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil { // read-only
		return reconcile.Result{}, fmt.Errorf("cannot list DeviceExposurePolicies: %w", err)
	}
	if len(policies.Items) == 0 {
		return reconcile.Result{}, nil
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
	var conflict error
	for i := range policies.Items {
		p := &policies.Items[i]
		if p.DeletionTimestamp != nil {
			continue
		}
		changed := p.DeepCopy()
		changed.Status = Status(p, byPolicy[p.Name], unnamed)
		err := objects.WriteStatus(ctx, c.Client, "DeviceExposurePolicy", p, changed)
		if objects.IsOutdated(err) {
			conflict = err
			continue
		}
		failures = append(failures, err)
	}
	if err := errors.Join(failures...); err != nil {
		return reconcile.Result{}, err
	}
	return objects.Result(again, conflict)
}

// Status returns a policy's status for the given offers. unnamed is the number of published devices that do not name
// their policy. If nothing has changed, the result is the current status. A policy that hides devices has no counts,
// because hidden devices are not published.
func Status(p *v1alpha1.DeviceExposurePolicy, offers Offers, unnamed int) v1alpha1.DeviceExposurePolicyStatus {
	status := *p.Status.DeepCopy()
	if p.Spec.Action == v1alpha1.ActionExclude {
		status.Devices, status.Nodes = nil, nil
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionDevicesOffered)
		return status
	}
	status.Devices, status.Nodes = ptr.To(offers.Devices), ptr.To(offers.Nodes)
	condition := devicesOffered(p, offers, unnamed)
	if condition.Status == metav1.ConditionUnknown {
		status.Devices, status.Nodes = nil, nil
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return status
}

// devicesOffered returns the condition for a policy. unnamed is the number of published devices that do not name a
// policy. If there are any, the absence of devices that name this policy proves nothing.
func devicesOffered(p *v1alpha1.DeviceExposurePolicy, offers Offers, unnamed int) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionDevicesOffered, ObservedGeneration: p.Generation,
		Status: metav1.ConditionFalse}
	switch {
	case offers.Devices > 0:
		condition.Status, condition.Reason = metav1.ConditionTrue, ReasonOffered
		condition.Message = fmt.Sprintf("devices: %d, nodes: %d", offers.Devices, offers.Nodes)
	case Accepted(p.DeepCopy()).Status == metav1.ConditionFalse: // formatting a quantity caches its text in the object
		condition.Reason = ReasonNotAccepted
		condition.Message = "the policy is not accepted, so it offers no devices: see the condition Accepted"
	case unnamed > 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, ReasonNotNamed
		condition.Message = fmt.Sprintf("no device names this policy, but some devices do not name their policy (%d): "+
			"their driver is older than the controller, the name of their policy has more than %d bytes, or they "+
			"already have the maximum number of attributes", unnamed, policy.MaxString)
	default:
		condition.Reason = ReasonNoDevices
		condition.Message = "no node offers a device because of this policy: nodeSelector and selector match none, " +
			"other policies take precedence for the matching devices, or the nodes lack its CNI plugins"
	}
	return conditions.WithHint(condition, fmt.Sprintf("kubectl netdra policies list %s --all-nodes", p.Name),
		"shows its effect on each node")
}

// Accepted returns the condition for a policy, with the policy's problems or with its effect and remarks.
func Accepted(p *v1alpha1.DeviceExposurePolicy) metav1.Condition {
	summary := "the policy exposes the devices that it selects"
	if p.Spec.Action == v1alpha1.ActionExclude {
		summary = "the policy hides the devices that it selects"
	}
	problems, remarks := policy.Check(p)
	condition := conditions.Of(p.Generation, summary, problems, remarks...)
	return conditions.WithHint(condition,
		fmt.Sprintf("kubectl netdra policies list %s --all-nodes", p.Name), "shows its effect on each node")
}

// Reconciler returns a keeper for the condition Accepted on every DeviceExposurePolicy. The client reads through a
// cache.
func Reconciler(api client.Client) *conditions.Keeper[*v1alpha1.DeviceExposurePolicy] {
	return &conditions.Keeper[*v1alpha1.DeviceExposurePolicy]{
		Client: api, Kind: "DeviceExposurePolicy", Accepted: Accepted,
		New:        func() *v1alpha1.DeviceExposurePolicy { return &v1alpha1.DeviceExposurePolicy{} },
		Conditions: func(p *v1alpha1.DeviceExposurePolicy) *[]metav1.Condition { return &p.Status.Conditions },
	}
}
