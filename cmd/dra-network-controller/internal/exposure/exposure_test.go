package exposure_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/exposure"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// checks refuse the priority 13 and expressions that contain "broken".
func checks() exposure.Checks {
	return exposure.Checks{
		Policy: func(policy *v1alpha1.DeviceExposurePolicy) field.ErrorList {
			if policy.Spec.Priority == 13 {
				return field.ErrorList{field.Invalid(field.NewPath("spec", "priority"), 13, "choose another one")}
			}
			return nil
		},
		Selector: func(expression string) error {
			if strings.Contains(expression, "broken") {
				return errors.New("does not compile at line 1, column 3")
			}
			return nil
		},
	}
}

func newPolicy(generation int64, priority int32, action v1alpha1.Action, cel string) *v1alpha1.DeviceExposurePolicy {
	return &v1alpha1.DeviceExposurePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: generation},
		Spec:       v1alpha1.DeviceExposurePolicySpec{Priority: priority, Action: action, Selector: v1alpha1.DeviceSelector{CEL: cel}},
	}
}

func TestJudge(t *testing.T) {
	tests := map[string]struct {
		policy *v1alpha1.DeviceExposurePolicy
		want   []string
	}{
		"valid": {policy: newPolicy(1, 1, v1alpha1.ActionExpose, "true")},
		"expose that doesn't compile": {
			policy: newPolicy(1, 1, v1alpha1.ActionExpose, "broken"),
			want: []string{`spec.selector.cel: Invalid value: "broken": does not compile at line 1, column 3; ` +
				`until the expression is corrected, the policy exposes nothing`},
		},
		"exclude that doesn't compile, and more": {
			policy: newPolicy(1, 13, v1alpha1.ActionExclude, "broken"),
			want: []string{
				`spec.priority: Invalid value: 13: choose another one`,
				`spec.selector.cel: Invalid value: "broken": does not compile at line 1, column 3; ` +
					`until the expression is corrected, the policy hides every device of the nodes that it selects`,
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, problem := range exposure.Judge(test.policy, checks()) {
				got = append(got, problem.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("wrong problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReconcile(t *testing.T) {
	ctx := context.Background()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	writes := 0
	api := fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.DeviceExposurePolicy{}).
		WithObjects(newPolicy(1, 1, v1alpha1.ActionExclude, "true")).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, object client.Object, options ...client.SubResourceUpdateOption) error {
				writes++
				return c.SubResource(sub).Update(ctx, object, options...)
			},
		}).Build()
	reconciler := &exposure.Reconciler{Client: api, Checks: checks()}
	states := []struct {
		name   string
		policy *v1alpha1.DeviceExposurePolicy
		want   metav1.Condition
		writes int
	}{
		{"valid", nil,
			metav1.Condition{Type: "Accepted", Status: "True", Reason: "Valid", ObservedGeneration: 1, Message: "the policy hides the devices that it selects"}, 1},
		{"nothing changed", nil,
			metav1.Condition{Type: "Accepted", Status: "True", Reason: "Valid", ObservedGeneration: 1, Message: "the policy hides the devices that it selects"}, 1},
		{"invalid", newPolicy(2, 13, v1alpha1.ActionExclude, "true"),
			metav1.Condition{Type: "Accepted", Status: "False", Reason: "Invalid", ObservedGeneration: 2, Message: "spec.priority: Invalid value: 13: choose another one"}, 2},
		{"valid again", newPolicy(3, 2, v1alpha1.ActionExpose, "true"),
			metav1.Condition{Type: "Accepted", Status: "True", Reason: "Valid", ObservedGeneration: 3, Message: "the policy exposes the devices that it selects"}, 3},
	}
	for _, state := range states {
		var got v1alpha1.DeviceExposurePolicy
		key := types.NamespacedName{Name: "p"}
		if state.policy != nil {
			if err := api.Get(ctx, key, &got); err != nil {
				t.Fatal(err)
			}
			got.Generation, got.Spec = state.policy.Generation, state.policy.Spec
			if err := api.Update(ctx, &got); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: key}); err != nil {
			t.Fatalf("%s: %v", state.name, err)
		}
		if err := api.Get(ctx, key, &got); err != nil {
			t.Fatal(err)
		}
		ignoreTime := cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")
		if diff := cmp.Diff([]metav1.Condition{state.want}, got.Status.Conditions, ignoreTime); diff != "" {
			t.Errorf("%s: wrong conditions (-want +got):\n%s", state.name, diff)
		}
		if writes != state.writes {
			t.Errorf("%s: the status was written %d times so far, want %d", state.name, writes, state.writes)
		}
	}
}

func TestReconcileOfAPolicyThatIsGone(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	reconciler := &exposure.Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).Build(), Checks: checks()}
	if _, err := reconciler.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "gone"}}); err != nil {
		t.Errorf("Reconcile of a policy that is gone: %v", err)
	}
}
