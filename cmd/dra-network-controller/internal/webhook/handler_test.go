package webhook

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	topologyapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	topologycorpus "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1/corpus"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1/corpus"
)

// newReader returns a reader for a cluster with a single schema. If broken is true, reading fails.
func newReader(t *testing.T, broken bool) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(topologyapi.AddToScheme(scheme), resourceapi.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	schema := &topologyapi.CNIPluginSchema{ObjectMeta: metav1.ObjectMeta{Name: "x"},
		Spec: topologyapi.CNIPluginSchemaSpec{
			CNIType: "needy", Input: topologyapi.PluginInput{PrevResult: "required"}}}
	storage := &topologyapi.AddressRange{ObjectMeta: metav1.ObjectMeta{Name: "storage.example"}} // used by a topology
	objects := []client.Object{storage, schema}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			if broken {
				return errors.New("no connection")
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
}

// request returns an admission request for an object in JSON form.
func request(kind string, operation admissionv1.Operation, object, old []byte) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID:       "7",
		Kind:      metav1.GroupVersionKind{Group: "networking.dra.io", Version: "v1alpha1", Kind: kind},
		Operation: operation, Object: runtime.RawExtension{Raw: object}, OldObject: runtime.RawExtension{Raw: old},
	}}
}

// answer formats a response: whether the object is allowed or rejected, and the messages.
func answer(r admission.Response) string {
	if r.Allowed {
		return strings.Join(append([]string{"allowed"}, r.Warnings...), ": ")
	}
	return "refused: " + r.Result.Message
}

func TestEveryRuleIsEnforced(t *testing.T) {
	h := NewHandler(newReader(t, false), nil)
	for _, c := range corpus.Invalid(t) {
		for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
			response := h.Handle(t.Context(),
				request("DeviceExposurePolicy", operation, c.JSON(t), []byte(`{"spec": {"action": "something else"}}`)))
			if response.Allowed || response.Result.Code != 422 || response.Result.Reason != metav1.StatusReasonInvalid {
				t.Errorf("%s, %s: got %s, want a refusal with code 422", c.Name, operation, answer(response))
				continue
			}
			for _, want := range []string{c.Field, c.Reason, c.Fix} {
				if !strings.Contains(response.Result.Message, want) {
					t.Errorf("%s, %s: got %s, want ... %s ...", c.Name, operation, answer(response), want)
				}
			}
		}
	}
}

func TestValidPoliciesPassWithWarnings(t *testing.T) {
	h := NewHandler(newReader(t, false), nil)
	for _, c := range corpus.Valid(t) {
		expectAllowed(t, h.Handle(t.Context(), request("DeviceExposurePolicy", admissionv1.Create, c.JSON(t), nil)),
			c.Name, c.Remarks)
	}
}

// expectAllowed checks that an object is allowed and that the warnings contain the remarks.
func expectAllowed(t *testing.T, response admission.Response, name string, remarks []string) {
	t.Helper()
	if !response.Allowed || len(response.Warnings) != len(remarks) {
		t.Errorf("%s: got %s, want allowed with warnings %q", name, answer(response), remarks)
		return
	}
	for i, want := range remarks {
		if !strings.Contains(response.Warnings[i], want) {
			t.Errorf("%s: got warning %q, want ... %s ...", name, response.Warnings[i], want)
		}
	}
}

func TestTopologiesAndSchemasAreChecked(t *testing.T) {
	h := NewHandler(newReader(t, false), nil)
	for _, c := range topologycorpus.Valid(t) {
		expectAllowed(t, h.Handle(t.Context(), request("NetworkTopology", admissionv1.Create, c.JSON(t), nil)),
			c.Name, c.Remarks)
	}
	for kind, cases := range map[string][]topologycorpus.Case{"NetworkTopology": topologycorpus.Invalid(t),
		"CNIPluginSchema": topologycorpus.InvalidSchemas(t)} {
		for _, c := range cases {
			response := h.Handle(t.Context(), request(kind, admissionv1.Create, c.JSON(t), nil))
			if response.Allowed || !strings.Contains(response.Result.Message, c.Field) ||
				!strings.Contains(response.Result.Message, c.Reason) {
				t.Errorf("%s: got %s, want ... %s: ... %s ...", c.Name, answer(response), c.Field, c.Reason)
			}
		}
	}
}

func TestHandle(t *testing.T) {
	object := func(text string) []byte {
		data, err := yaml.YAMLToJSONStrict([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	const broken = `spec: {priority: -1, action: exclude, selector: {cel: "true"}}`
	valid, invalid := object(`spec: {action: exclude, selector: {cel: "true"}}`), object(broken)
	labelled := object("metadata: {labels: {a: b}, finalizers: []}\n" + broken)
	const refusal = "refused: spec.priority: Invalid value: -1: must be between 0 and 1000"
	topology := func(kind, rest string) []byte {
		return object(`{metadata: {name: net}, spec: {steps: [{name: a, type: ` + kind +
			`, selector: {cel: 'device.attributes["dra.networking"].type == "nic"'}` + rest + `}]}}`)
	}
	policyFor := func(plugin string) []byte {
		return object(`spec: {selector: {cel: 'device.attributes["dra.networking"].type == "nic"'}, ` +
			`exposure: {supportedCNIPlugins: [{name: ` + plugin + `, exclusive: true}]}}`)
	}
	status := request("DeviceExposurePolicy", admissionv1.Update, invalid, valid)
	status.SubResource = "status"
	foreign := request("Pod", admissionv1.Create, []byte("{}"), nil)
	foreign.Kind.Group = ""
	for name, test := range map[string]struct {
		request admission.Request
		broken  bool
		want    string
	}{
		"valid": {request("DeviceExposurePolicy", admissionv1.Create, valid, nil),
			false, "allowed"},
		"invalid": {request("DeviceExposurePolicy", admissionv1.Create, invalid, nil),
			false, refusal},
		"becomes invalid": {request("DeviceExposurePolicy", admissionv1.Update, invalid, valid),
			false, refusal},
		"becomes valid": {request("DeviceExposurePolicy", admissionv1.Update, valid, invalid),
			false, "allowed"},
		"was invalid, only labels change": {request("DeviceExposurePolicy", admissionv1.Update, labelled, invalid),
			false, "allowed"},
		"is deleted": {request("DeviceExposurePolicy", admissionv1.Delete, nil, invalid),
			false, "allowed"},
		"policy with a plugin of their own": {request("DeviceExposurePolicy", admissionv1.Create, policyFor("acme"),
			nil), false, "allowed"},
		"is connected to": {request("DeviceExposurePolicy", admissionv1.Connect, nil, nil),
			false, "allowed"},
		"its status is written": {status, false, "allowed"},
		"no object": {request("DeviceExposurePolicy", admissionv1.Create, nil, nil), false,
			"refused: spec: Invalid value: cannot be decoded: unexpected end of JSON input; " +
				"install the CRDs of the controller's version"},
		"null, with no specification before": {request("DeviceExposurePolicy", admissionv1.Update, []byte("null"),
			[]byte("null")), false, "refused: 2 problems"},
		"another shape": {request("DeviceExposurePolicy", admissionv1.Create,
			[]byte(`{"spec": 7}`), nil), false, "refused: spec: Invalid value: cannot be decoded: json: cannot " +
			"unmarshal number"},
		"of another group": {foreign, false,
			"allowed: not checked: dra-network-controller does not support Pod in "},
		"a kind that there is not": {request("NetworkPlan", admissionv1.Create, valid, nil), false,
			"allowed: not checked: dra-network-controller does not support NetworkPlan in networking.dra.io"},
		"valid schema": {request("CNIPluginSchema", admissionv1.Create,
			object("spec: {cniType: mine, config: {properties: {x: {type: string}}}}"), nil), false, "allowed"},
		"schema that can't be read": {request("CNIPluginSchema", admissionv1.Create, []byte(`{"spec": 7}`),
			nil), false, "refused: spec: Invalid value: cannot be decoded"},
		"invalid in the other version": {withVersion(request("DeviceExposurePolicy", admissionv1.Update, invalid, valid),
			"v1beta1"), false, refusal},
		"valid in the other version": {withVersion(request("DeviceExposurePolicy", admissionv1.Create, valid, nil),
			"v1beta1"), false, "allowed"},
		"topology in the other version": {withVersion(request("NetworkTopology", admissionv1.Create,
			topology("tuning", ""), nil), "v1beta1"), false, "refused: spec.steps[0].dependOn"},
		"schema in the other version": {withVersion(request("CNIPluginSchema", admissionv1.Create, []byte(`{"spec": 7}`),
			nil), "v1beta1"), false, "refused: spec: Invalid value: cannot be decoded"},
		"a kind in another version": {withVersion(request("DeviceExposurePolicy", admissionv1.Create, invalid,
			nil), "v2"), false, "allowed: not checked"},
		"valid topology": {request("NetworkTopology", admissionv1.Create,
			topology("host-device", ""), nil), false, "allowed"},
		"topology against a built-in schema": {request("NetworkTopology", admissionv1.Create, topology("tuning", ""),
			nil), false, "refused: spec.steps[0].dependOn"},
		"topology against the cluster's": {request("NetworkTopology", admissionv1.Create, topology("needy", ""), nil),
			false, "refused: spec.steps[0].dependOn"},
		"topology with a misspelt plugin": {request("NetworkTopology", admissionv1.Create, topology("mcvlan", ""), nil),
			false, "allowed: no schema for plugin mcvlan"},
		"topology that can't be read": {request("NetworkTopology", admissionv1.Create,
			[]byte(`{"spec": {"steps": {}}}`), nil), false, "refused: spec: Invalid value: cannot be decoded"},
		"topology while schemas can't be": {request("NetworkTopology", admissionv1.Create, topology("tuning", ""), nil),
			true, "allowed: not checked: cannot list CNIPluginSchemas: no connection"},
		"topology with an expression that could stop pods": {request("NetworkTopology", admissionv1.Create,
			object(
				`{metadata: {name: net}, spec: {steps: [{name: a, type: host-device, selector: {cel: `+
					`'device.attributes["dra.networking"].vlanID == 7'}}]}}`,
			), nil), false,
			"refused: spec.steps[0].selector.cel: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			got := answer(NewHandler(newReader(t, test.broken), nil).Handle(t.Context(), test.request))
			if exact := test.want == "allowed"; exact && got != test.want || !strings.HasPrefix(got, test.want) {
				t.Errorf("wrong answer (-want +got):\n%s", cmp.Diff(test.want, got))
			}
		})
	}
}

// kubectl prints the details of a rejection: the object, and each problem on a separate line.
func TestRefusalsNameTheObjectAndEachField(t *testing.T) {
	asked := request("DeviceExposurePolicy", admissionv1.Create,
		[]byte(`{"spec": {"priority": -1, "action": "exclude", "selector": {"cel": "device.x = 1"}}}`), nil)
	asked.Name = "mine"
	details := NewHandler(newReader(t, false), nil).Handle(t.Context(), asked).Result.Details
	if details == nil || details.Kind != "DeviceExposurePolicy" || details.Name != "mine" || len(details.Causes) != 2 {
		t.Fatalf("got details %+v, want the object's kind and name and two causes", details)
	}
	if got := details.Causes[0]; got != (metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid,
		Field: "spec.priority", Message: "Invalid value: -1: must be between 0 and 1000"}) {
		t.Errorf("got first cause %+v", got)
	}
	if got := details.Causes[1]; got.Field != "spec.selector.cel" || !strings.Contains(got.Message, "==") {
		t.Errorf("got second cause %+v", got)
	}
}

func withVersion(r admission.Request, version string) admission.Request {
	r.Kind.Version = version
	return r
}
