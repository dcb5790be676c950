// Package objects contains code shared by the reconcilers: requests, and writes that may conflict with other processes.
//
// Invariant: it does not depend on any kind. If an object has changed between being read and being
// written, this is not a failure: the reconciliation starts over from the current state.
package objects

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Soon is the retry delay after a conflict. By then, the cache should have caught up.
const Soon = 200 * time.Millisecond

// IsOutdated reports whether a write failed because the cache was outdated: the object has changed or been created in
// the meantime.
func IsOutdated(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// Result returns the result of a reconciliation: a retry if the cache was outdated; otherwise the error, if any, or the
// time until the next reconciliation (0 for none).
func Result(again time.Duration, err error) (reconcile.Result, error) {
	switch {
	case IsOutdated(err):
		return reconcile.Result{RequeueAfter: Soon}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// WriteStatus writes the status in changed unless it equals the status in old, because every write wakes up all
// watchers. It returns nil if the object no longer exists.
func WriteStatus(ctx context.Context, api client.Client, kind string, old, changed client.Object) error {
	if equality.Semantic.DeepEqual(old, changed) {
		return nil
	}
	if err := api.Status().Update(ctx, changed); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot write the status of %s %s: %w", kind, old.GetName(), err)
	}
	return nil
}

// Delete deletes an object only if it is exactly the version that was inspected, and never a new object with the same
// name. It returns nil if the object no longer exists.
func Delete(ctx context.Context, api client.Client, kind string, object client.Object) error {
	exactly := client.Preconditions{UID: ptr.To(object.GetUID()), ResourceVersion: ptr.To(object.GetResourceVersion())}
	if err := api.Delete(ctx, object, exactly); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot delete %s %s: %w", kind, object.GetName(), err)
	}
	return nil
}

// Requests returns requests for cluster-wide objects with these names.
func Requests(names []string) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range names {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
	return requests
}

// Later returns a handler that calls names immediately for every change, with gone set for deletions. The handler
// delays the reconciliation of the returned names, so that several changes cause a single reconciliation.
func Later(
	delay time.Duration, names func(ctx context.Context, object client.Object, gone bool) []string,
) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, object client.Object, gone bool, q queue) {
		for _, request := range Requests(names(ctx, object, gone)) {
			q.AddAfter(request, delay)
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, e.Object, false, q) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, e.ObjectNew, false, q) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, true, q) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { add(ctx, e.Object, false, q) },
	}
}
