package exposure_test

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/exposure"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

func newPolicy(t *testing.T, generation int64, spec string) *v1alpha1.DeviceExposurePolicy {
	t.Helper()
	p := &v1alpha1.DeviceExposurePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: generation}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestReconcile(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	writes := 0
	api := fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.DeviceExposurePolicy{}).
		WithObjects(newPolicy(t, 1, `{action: exclude, selector: {cel: "true"}}`)).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, object client.Object,
				options ...client.SubResourceUpdateOption) error {
				writes++
				return c.SubResource(sub).Update(ctx, object, options...)
			},
		}).Build()
	reconciler := exposure.Reconciler(api)
	states := []struct {
		name, spec     string // no spec: unchanged
		status, reason string
		message        []string // the parts that it must contain
		writes         int      // total so far
	}{
		{"valid", "", "True", "Valid", []string{"the policy hides the devices that it selects"}, 1},
		{"nothing changed", "", "True", "Valid", []string{"the policy hides the devices that it selects"}, 1},
		{"two problems", `{priority: -1, action: exclude, selector: {cel: "true &&"}}`, "False", "Invalid", []string{
			"2 problems: (1) spec.priority: Invalid value: -1: must be between 0 and 1000; ",
			`(2) spec.selector.cel: Invalid value: "true &&": cannot compile the expression: compilation failed: ` +
				`ERROR: <input>:1:8: Syntax error`}, 2},
		{"still wrong", "", "False", "Invalid", []string{"2 problems"}, 2},
		{"a remark", `{selector: {cel: "true"}, exposure: {supportedCNIPlugins: [{name: sriov, exclusive: true}]}}`,
			"True", "ValidWithRemarks",
			[]string{"the policy exposes the devices that it selects; but the expression selects links of every type"},
			3},
		{"no remark", `{action: exclude, selector: {cel: "false"}}`, "True", "Valid", []string{"the policy hides"}, 4},
	}
	for i, state := range states {
		t.Run(state.name, func(t *testing.T) {
			var p v1alpha1.DeviceExposurePolicy
			key := types.NamespacedName{Name: "p"}
			if err := api.Get(t.Context(), key, &p); err != nil {
				t.Fatal(err)
			}
			if state.spec != "" {
				p.Generation, p.Spec = int64(i+1), newPolicy(t, 0, state.spec).Spec
				if err := api.Update(t.Context(), &p); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
			if err := api.Get(t.Context(), key, &p); err != nil {
				t.Fatal(err)
			}
			if len(p.Status.Conditions) != 1 {
				t.Fatalf("got %d conditions, want 1", len(p.Status.Conditions))
			}
			got := p.Status.Conditions[0]
			if got.Type != "Accepted" || string(got.Status) != state.status || got.Reason != state.reason ||
				got.ObservedGeneration != p.Generation {
				t.Errorf("got %s=%s %s of generation %d, want Accepted=%s %s of %d",
					got.Type, got.Status, got.Reason, got.ObservedGeneration, state.status, state.reason, p.Generation)
			}
			for _, part := range state.message {
				if !strings.Contains(got.Message, part) {
					t.Errorf("got message %q, want ... %s ...", got.Message, part)
				}
			}
			if writes != state.writes {
				t.Errorf("%d status writes so far, want %d", writes, state.writes)
			}
		})
	}
}

func TestReconcileOfAPolicyThatIsGone(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	reconciler := exposure.Reconciler(fake.NewClientBuilder().WithScheme(scheme).Build())
	if _, err := reconciler.Reconcile(t.Context(),
		reconcile.Request{NamespacedName: types.NamespacedName{Name: "gone"}}); err != nil {
		t.Errorf("Reconcile of a deleted policy: %v", err)
	}
}
