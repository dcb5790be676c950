package exposure

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// soon is when to look again after a conflict. By then the cache has caught up.
const soon = 200 * time.Millisecond

// Reconciler keeps the condition Accepted of every DeviceExposurePolicy.
type Reconciler struct {
	// Client reads through a cache and writes to the API server. It is required.
	Client client.Client
}

// SetupWithManager has the manager call Reconcile for every policy whose specification changed.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).
		Named("deviceexposurepolicy").
		For(&v1alpha1.DeviceExposurePolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	exposurePolicy := &v1alpha1.DeviceExposurePolicy{}
	if err := r.Client.Get(ctx, request.NamespacedName, exposurePolicy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if exposurePolicy.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	changed := exposurePolicy.DeepCopy()
	meta.SetStatusCondition(&changed.Status.Conditions, Accepted(exposurePolicy))
	if equality.Semantic.DeepEqual(exposurePolicy.Status, changed.Status) {
		return reconcile.Result{}, nil
	}
	err := r.Client.Status().Update(ctx, changed)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: soon}, nil // the cache is behind, which is no failure
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("cannot write the status of DeviceExposurePolicy %s: %w", exposurePolicy.Name, err)
	}
	return reconcile.Result{}, nil
}
