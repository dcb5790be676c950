package conditions

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/objects"
)

// Keeper maintains the condition Accepted on every object of a kind. All fields are required. Keeper is only suitable
// for kinds whose condition depends solely on the object itself. If other objects matter, write a reconciler that
// watches them.
type Keeper[T client.Object] struct {
	// Client reads through a cache and writes to the API server.
	Client client.Client
	// Kind is the name of the kind.
	Kind string
	// New returns an empty object.
	New func() T
	// Conditions returns a pointer to the conditions in an object's status.
	Conditions func(T) *[]metav1.Condition
	// Accepted returns the desired condition for an object. It must be pure.
	Accepted func(T) metav1.Condition
}

// SetupWithManager registers the keeper for changes to an object's spec. Writing the status does not change the
// generation, so the keeper does not trigger itself.
func (k *Keeper[T]) SetupWithManager(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).
		Named(strings.ToLower(k.Kind)).
		For(k.New(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(k)
}

// Reconcile implements reconcile.Reconciler. An update includes the resource version that was read, so the result for
// an older spec never overwrites the result for a newer one.
func (k *Keeper[T]) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object := k.New()
	if err := k.Client.Get(ctx, request.NamespacedName, object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if object.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil
	}
	changed := object.DeepCopyObject().(T)
	meta.SetStatusCondition(k.Conditions(changed), k.Accepted(object))
	return objects.Result(0, objects.WriteStatus(ctx, k.Client, k.Kind, object, changed))
}
