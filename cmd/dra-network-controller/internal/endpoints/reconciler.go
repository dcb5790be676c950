package endpoints

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryapi "k8s.io/api/discovery/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/conditions"
	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/objects"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
)

// later is the retry delay if a foreign slice has the same name as a desired slice. The cache contains only the
// controller's slices, so deleting the foreign slice does not trigger a reconciliation.
const later = time.Minute

// maxEvent is the maximum size, in bytes, of a problem's text in an event. The API server rejects longer notes, and a
// problem may quote a long annotation.
const maxEvent = 1000

// Reconciler maintains the EndpointSlices for every annotated Service. All exported fields are required. A process must
// use a single Reconciler, because the reconciler remembers which problems it has already reported in events.
type Reconciler struct {
	// Client reads through a cache and writes to the API server.
	Client client.Client
	// Live reads from the API server, because the cache does not contain foreign slices.
	Live client.Reader
	// Events records events for Services.
	Events events.EventRecorder

	mu sync.Mutex
	// told contains the last problem reported for each Service.
	told map[types.NamespacedName]string
}

// SetupWithManager registers the reconciler. A Service is reconciled when it changes, or when its pods, claims or
// slices change. Pods and claims change far more often than Services, so the handler for them first selects the
// affected Services.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	ofObject := handler.EnqueueRequestsFromMapFunc(r.ofObject)
	return ctrl.NewControllerManagedBy(manager).
		Named("serviceendpoints").
		For(&corev1.Service{}).
		Owns(&discoveryapi.EndpointSlice{}).
		Watches(&corev1.Pod{}, ofObject).
		Watches(&resourceapi.ResourceClaim{}, ofObject).
		Complete(r)
}

// ofObject returns requests for the annotated Services in an object's namespace whose endpoints the object may affect:
// for a pod, the Services that select it; for a claim, the Services that use the topology of one of its devices. For an
// update, ofObject is also called with the old object. An event handler cannot return an error, but reading from a
// synced cache does not fail.
func (r *Reconciler) ofObject(ctx context.Context, object client.Object) []reconcile.Request {
	concerns := concerns(object)
	if concerns == nil {
		return nil
	}
	var services corev1.ServiceList
	if err := r.Client.List(ctx, &services, client.InNamespace(object.GetNamespace()),
		client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list Services; ignoring the change of a pod or claim")
		return nil
	}
	var requests []reconcile.Request
	for i := range services.Items {
		// An invalid query is reported when the Service itself changes.
		if query, err := ParseQuery(&services.Items[i]); err == nil && query != nil && concerns(query) {
			requests = append(requests,
				reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&services.Items[i])})
		}
	}
	return requests
}

// concerns returns a filter that selects the queries whose result an object may affect, or nil if there cannot be any.
func concerns(object client.Object) func(*Query) bool {
	switch object := object.(type) {
	case *corev1.Pod:
		if len(object.Spec.ResourceClaims) == 0 && object.Status.ExtendedResourceClaimStatus == nil {
			return nil
		}
		return func(query *Query) bool { return query.Pods.Matches(labels.Set(object.Labels)) }
	case *resourceapi.ResourceClaim:
		devices, err := claimspec.Devices(object)
		if err != nil || len(devices) == 0 {
			return nil // rejected by the driver, or without devices from this driver
		}
		return func(query *Query) bool { return len(ofQuery(devices, query)) > 0 }
	}
	return nil
}

// Reconcile implements reconcile.Reconciler. It is called for every Service in the cluster. A Service without the
// annotation has neither slices nor a query, so it only costs two reads from the cache.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	service := &corev1.Service{}
	if err := r.Client.Get(ctx, request.NamespacedName, service); apierrors.IsNotFound(err) {
		r.emitEvent(request.NamespacedName, service, nil)
		return reconcile.Result{}, nil // the garbage collector removes its slices
	} else if err != nil {
		return reconcile.Result{}, err
	}
	var existing discoveryapi.EndpointSliceList
	err := r.Client.List(ctx, &existing, client.InNamespace(request.Namespace), client.MatchingLabels{
		discoveryapi.LabelServiceName: request.Name, discoveryapi.LabelManagedBy: ManagedBy})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("cannot list EndpointSlices: %w", err)
	}
	query, problem := ParseQuery(service)
	if problem != nil {
		r.emitEvent(request.NamespacedName, service, problem)
	}
	var wanted map[Group]Endpoints
	// Without a query, no slices are desired, so existing slices are removed when the annotation is removed or becomes
	// invalid. Keeping them would send traffic to pods that are no longer selected.
	if query != nil {
		if wanted, err = r.wanted(ctx, service, query); err != nil {
			return reconcile.Result{}, err
		}
	}
	changes, err := Compare(service, wanted, existing.Items)
	if err != nil {
		return reconcile.Result{}, err
	}
	err = r.carryOut(ctx, &changes)
	switch {
	case errors.As(err, new(*foreignSliceError)):
		r.emitEvent(request.NamespacedName, service, err)
		return reconcile.Result{RequeueAfter: later}, nil
	case err == nil && problem == nil:
		r.emitEvent(request.NamespacedName, service, nil)
	}
	return objects.Result(0, err)
}

// wanted reads the Service's pods and claims from the cache and passes them to Wanted. The two lists may reflect
// different points in time; any change in between triggers another reconciliation.
func (r *Reconciler) wanted(ctx context.Context, service *corev1.Service, query *Query) (map[Group]Endpoints, error) {
	var pods corev1.PodList
	var claims resourceapi.ResourceClaimList
	for _, list := range []client.ObjectList{&pods, &claims} {
		err := r.Client.List(ctx, list, client.InNamespace(service.Namespace), client.UnsafeDisableDeepCopy)
		if err != nil { // read-only
			return nil, fmt.Errorf("cannot list %T: %w", list, err)
		}
	}
	byName := map[string]*resourceapi.ResourceClaim{}
	for i := range claims.Items {
		byName[claims.Items[i].Name] = &claims.Items[i]
	}
	return Wanted(service, query, pods.Items, byName)
}

// carryOut applies the changes. Updates and deletions come first, so that terminated pods are removed from the
// endpoints immediately. Even if a foreign slice has the same name as a desired slice, the other slices are still
// created. A returned foreignSliceError has one line for each such name and does not include any other errors.
func (r *Reconciler) carryOut(ctx context.Context, changes *Changes) error {
	for i := range changes.Update {
		if err := r.Client.Update(ctx, &changes.Update[i]); err != nil {
			return fmt.Errorf("cannot update EndpointSlice %s: %w", changes.Update[i].Name, err)
		}
	}
	for i := range changes.Delete {
		if err := objects.Delete(ctx, r.Client, "EndpointSlice", &changes.Delete[i]); err != nil {
			return err
		}
	}
	var taken error
	for i := range changes.Create {
		switch err := r.create(ctx, &changes.Create[i]); {
		case errors.As(err, new(*foreignSliceError)):
			taken = errors.Join(taken, err)
		case err != nil:
			return fmt.Errorf("cannot create EndpointSlice %s: %w", changes.Create[i].Name, err)
		}
	}
	return taken
}

// foreignSliceError means that another owner's slice has the same name as a desired slice. The error is shown to the
// Service's author.
type foreignSliceError struct{ name string }

func (e *foreignSliceError) Error() string {
	return fmt.Sprintf("cannot create EndpointSlice %q: a slice of this name exists that the controller does not "+
		"manage; delete it, or rename the Service", e.name)
}

// create creates a slice. If a slice with the same name already exists, there are two cases. If the existing slice
// belongs to this Service and is just not in the cache yet, create returns AlreadyExists. If the labels differ, the
// existing slice will never be in the cache, and create returns a foreignSliceError.
func (r *Reconciler) create(ctx context.Context, slice *discoveryapi.EndpointSlice) error {
	err := r.Client.Create(ctx, slice)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing := &discoveryapi.EndpointSlice{}
	switch readErr := r.Live.Get(ctx, client.ObjectKeyFromObject(slice), existing); {
	case apierrors.IsNotFound(readErr):
		return err // it was deleted in the meantime
	case readErr != nil:
		return fmt.Errorf("cannot read the existing EndpointSlice of this name: %w", readErr)
	}
	for _, label := range []string{discoveryapi.LabelServiceName, discoveryapi.LabelManagedBy} {
		if existing.Labels[label] != slice.Labels[label] {
			return &foreignSliceError{name: slice.Name}
		}
	}
	return err
}

// emitEvent emits an event for a problem unless the last event for the Service reported the same problem.
func (r *Reconciler) emitEvent(name types.NamespacedName, service *corev1.Service, problem error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if problem == nil {
		delete(r.told, name)
		return
	}
	if r.told[name] == problem.Error() {
		return
	}
	if r.told == nil {
		r.told = map[types.NamespacedName]string{}
	}
	r.told[name] = problem.Error()
	r.Events.Eventf(service, nil, corev1.EventTypeWarning, "NoEndpoints", "Reconcile", "%s",
		conditions.Cut(problem.Error(), maxEvent))
}
