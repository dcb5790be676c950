package contract_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/contract"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

func TestReconcile(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	device := []v1alpha1.DeviceParameter{{Parameter: "master", Attribute: "ifName"}}
	for name, test := range map[string]struct {
		spec    v1alpha1.CNIPluginSchemaSpec
		status  metav1.ConditionStatus
		message string
	}{
		"valid": {v1alpha1.CNIPluginSchemaSpec{CNIType: "mine", DeviceParameters: device}, metav1.ConditionTrue,
			"topologies are checked against this contract of mine"},
		"built in": {v1alpha1.CNIPluginSchemaSpec{CNIType: "macvlan", DeviceParameters: device}, metav1.ConditionTrue,
			"it overrides the built-in schema of macvlan"},
		"invalid": {v1alpha1.CNIPluginSchemaSpec{CNIType: "mine",
			Config: &v1alpha1.PluginConfig{Properties: map[string]v1alpha1.Parameter{"a": {Type: "string",
				Pattern: "("}}}}, metav1.ConditionFalse,
			"spec.config.properties[a].pattern"},
	} {
		t.Run(name, func(t *testing.T) {
			schema := &v1alpha1.CNIPluginSchema{ObjectMeta: metav1.ObjectMeta{Name: "s", Generation: 3},
				Spec: test.spec}
			api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(schema).WithObjects(schema).Build()
			if _, err := contract.Reconciler(api).Reconcile(t.Context(),
				reconcile.Request{NamespacedName: types.NamespacedName{Name: "s"}}); err != nil {
				t.Fatal(err)
			}
			if err := api.Get(t.Context(), types.NamespacedName{Name: "s"}, schema); err != nil {
				t.Fatal(err)
			}
			if len(schema.Status.Conditions) != 1 {
				t.Fatalf("got %d conditions, want 1", len(schema.Status.Conditions))
			}
			if got := schema.Status.Conditions[0]; got.Type != v1alpha1.ConditionAccepted ||
				got.Status != test.status || got.ObservedGeneration != 3 ||
				!strings.Contains(got.Message, test.message) {
				t.Errorf("got condition %+v, want status %s and message %q", got, test.status, test.message)
			}
		})
	}
}
