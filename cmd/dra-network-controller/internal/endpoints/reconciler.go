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
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/conditions"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
)

// soon is when to look again after a conflict. By then the cache has caught up.
const soon = 200 * time.Millisecond

// later is the delay before another attempt to use a name that a foreign slice has. The cache only has the controller's
// slices, so its deletion causes no event.
const later = time.Minute

// maxEvent is how much of a problem fits into an event, in bytes: the API server refuses longer ones, and annotations
// that a problem cites may be long.
const maxEvent = 1000

// Reconciler keeps the EndpointSlices of every annotated Service as they should be. All fields are required. Use one
// for a process: told is what keeps events from being repeated.
type Reconciler struct {
	// Client reads through a cache and writes to the API server.
	Client client.Client
	// Live reads from the API server: slices of others are not in the cache.
	Live client.Reader
	// Events takes the events of Services.
	Events events.EventRecorder

	mu sync.Mutex
	// told is the last message for the author of a Service.
	told map[types.NamespacedName]string
}

// SetupWithManager has the manager call Reconcile for every annotated Service that changed, or whose pods, claims or
// slices did. Pods and claims change far more often than Services, so their handler decides first which Services are
// concerned.
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

// ofObject returns the annotated Services of an object's namespace whose endpoints it may change: for a pod, the
// Services that select it; for a claim, those with a topology of its devices. An update also calls it with the old
// object. A handler cannot return an error, and reading from a filled cache does not fail.
func (r *Reconciler) ofObject(ctx context.Context, object client.Object) []reconcile.Request {
	concerns := concerns(object)
	if concerns == nil {
		return nil
	}
	var services corev1.ServiceList
	if err := r.Client.List(ctx, &services, client.InNamespace(object.GetNamespace()),
		client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list Services: a change of a pod is not acted upon")
		return nil
	}
	var requests []reconcile.Request
	for i := range services.Items {
		// Of a query that can't be read the author of the Service is told when the Service changes.
		if query, err := ParseQuery(&services.Items[i]); err == nil && query != nil && concerns(query) {
			requests = append(requests,
				reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&services.Items[i])})
		}
	}
	return requests
}

// concerns returns a filter for the queries whose result an object may change; nil if there are none.
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
			return nil // refused by the driver, or without devices of it
		}
		return func(query *Query) bool { return len(ofQuery(devices, query)) > 0 }
	}
	return nil
}

// Reconcile implements reconcile.Reconciler. It is called for every Service of the cluster. One without our annotation
// has no slices and no query, and costs two reads of the cache.
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
	// Without a query no slice is wanted, so slices are removed with the annotation, or when it becomes invalid.
	// Keeping them would send traffic to pods that are no longer selected.
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
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: soon}, nil // a slice has changed since the cache read it
	case errors.As(err, new(*foreignSliceError)):
		r.emitEvent(request.NamespacedName, service, err)
		return reconcile.Result{RequeueAfter: later}, nil
	case err == nil && problem == nil:
		r.emitEvent(request.NamespacedName, service, nil)
	}
	return reconcile.Result{}, err
}

// wanted reads the Service's pods and their claims from the cache, and has the pure function decide. Both lists are of
// one moment each, not of the same: whatever changes in between is reconciled again.
func (r *Reconciler) wanted(
	ctx context.Context, service *corev1.Service, query *Query,
) (map[Group]Endpoints, error) {
	var pods corev1.PodList
	var claims resourceapi.ResourceClaimList
	for _, list := range []client.ObjectList{&pods, &claims} {
		err := r.Client.List(ctx, list, client.InNamespace(service.Namespace), client.UnsafeDisableDeepCopy)
		if err != nil { // they are read only
			return nil, fmt.Errorf("cannot list %T: %w", list, err)
		}
	}
	byName := map[string]*resourceapi.ResourceClaim{}
	for i := range claims.Items {
		byName[claims.Items[i].Name] = &claims.Items[i]
	}
	return Wanted(service, query, pods.Items, byName)
}

// carryOut makes the changes. What goes comes first: pods that died leave at once. A name that somebody else has keeps
// no other slice from being created; the error, one line for each, is about nothing else then.
func (r *Reconciler) carryOut(ctx context.Context, changes *Changes) error {
	for i := range changes.Update {
		if err := r.Client.Update(ctx, &changes.Update[i]); err != nil {
			return fmt.Errorf("cannot update EndpointSlice %s: %w", changes.Update[i].Name, err)
		}
	}
	for i := range changes.Delete {
		slice := &changes.Delete[i]
		exactly := client.Preconditions{UID: ptr.To(slice.UID), ResourceVersion: ptr.To(slice.ResourceVersion)}
		if err := r.Client.Delete(ctx, slice, exactly); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot delete EndpointSlice %s: %w", slice.Name, err)
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

// foreignSliceError is of a slice of somebody else that has the name of one that is to be created. It is for the author
// of the Service.
type foreignSliceError struct{ name string }

func (e *foreignSliceError) Error() string {
	return fmt.Sprintf("cannot create EndpointSlice %q: there is one of this name that is not the controller's; "+
		"delete it, or give the Service another name", e.name)
}

// create makes a slice. If there is one of its name, the cache does not know it yet, which is AlreadyExists, or never
// will, since its labels say that it is not one of this Service's: that is a foreignSliceError.
func (r *Reconciler) create(ctx context.Context, slice *discoveryapi.EndpointSlice) error {
	err := r.Client.Create(ctx, slice)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing := &discoveryapi.EndpointSlice{}
	switch readErr := r.Live.Get(ctx, client.ObjectKeyFromObject(slice), existing); {
	case apierrors.IsNotFound(readErr):
		return err // it has gone since
	case readErr != nil:
		return fmt.Errorf("cannot read the one of this name: %w", readErr)
	}
	for _, label := range []string{discoveryapi.LabelServiceName, discoveryapi.LabelManagedBy} {
		if existing.Labels[label] != slice.Labels[label] {
			return &foreignSliceError{name: slice.Name}
		}
	}
	return err
}

// emitEvent writes an event for a problem that has none yet.
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
