package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/conditions"
	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/exposure"
	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/topology"
	"github.com/dra-networking/dra-network-driver/cnichain"
	topologyapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// Handler answers admission requests. It implements admission.Handler.
type Handler struct {
	// cluster reads the CNIPluginSchemas, NetworkTopologies and AddressRanges from a cache.
	cluster client.Reader
	// live reads NetworkTopologies from the API server.
	live client.Reader
}

// NewHandler returns a handler. It reads objects from the cache (cluster), and NetworkTopologies from the API server
// (live) before it rejects a claim.
func NewHandler(cluster, live client.Reader) *Handler {
	return &Handler{cluster: cluster, live: live}
}

// Kinds that the webhook checks.
const (
	kindPolicy   = "DeviceExposurePolicy"
	kindTopology = "NetworkTopology"
	kindSchema   = "CNIPluginSchema"
	kindClaim    = "ResourceClaim"
	kindTemplate = "ResourceClaimTemplate"
)

// assessment is the result of a check. Problems lead to the rejection of the object; remarks become warnings for its
// author. err is set if the object could not be checked. Such an object is allowed, since the condition Accepted
// reports its problems.
type assessment struct {
	problems field.ErrorList
	remarks  []string
	err      error
}

// Handle answers one request. An update that does not change the spec is allowed even if the object is invalid, so that
// labels and finalizers can still be written to objects that predate a rule.
//
// The order matters: unrelated operations first, such as deletions, which have no new object; then unknown kinds from a
// newer or foreign webhook configuration, which are allowed with a warning; then the check itself. Responses are
// deterministic and have no side effects, so the API server may send a request twice.
func (h *Handler) Handle(ctx context.Context, request admission.Request) admission.Response {
	if request.Operation != admissionv1.Create && request.Operation != admissionv1.Update || request.SubResource != "" {
		return admission.Allowed("")
	}
	validate := h.checkOf(request.Kind)
	if validate == nil {
		return admission.Allowed("").WithWarnings(fmt.Sprintf("not checked: dra-network-controller does not support "+
			"%s in %s", request.Kind.Kind, request.Kind.Group))
	}
	if request.Operation == admissionv1.Update && sameSpec(request.OldObject.Raw, request.Object.Raw) {
		return admission.Allowed("")
	}
	switch o := validate(ctx, request.Object.Raw); {
	case o.err != nil:
		return admission.Allowed("").WithWarnings(fmt.Sprintf("not checked: %v", o.err))
	case len(o.problems) > 0:
		return refused(request.Kind.Kind, request.Name, o.problems)
	default:
		return admission.Allowed("").WithWarnings(o.remarks...)
	}
}

// checkOf returns the check for a kind, or nil if the kind is not supported. With the shipped configuration, the API
// server converts objects to the stored version before it calls the webhook (matchPolicy Equivalent). A configuration
// that lists other served versions receives those, which have the same schema.
func (h *Handler) checkOf(kind metav1.GroupVersionKind) func(context.Context, []byte) assessment {
	version := schema.GroupVersionKind(kind).GroupVersion()
	switch {
	case version == resourceapi.SchemeGroupVersion && kind.Kind == kindClaim:
		return h.checkClaim
	case version == resourceapi.SchemeGroupVersion && kind.Kind == kindTemplate:
		return h.checkTemplate
	case !topologyapi.IsServed(version.String()):
		return nil
	}
	switch kind.Kind {
	case kindPolicy:
		return h.checkPolicy
	case kindTopology:
		return h.checkTopology
	case kindSchema:
		return checkSchema
	}
	return nil
}

// checkPolicy checks a policy with the same function as nodes, so that both always agree.
func (h *Handler) checkPolicy(ctx context.Context, raw []byte) assessment {
	var p policyapi.DeviceExposurePolicy
	if err := json.Unmarshal(raw, &p); err != nil {
		return unreadable(err)
	}
	problems, remarks := policy.Check(&p)
	if schemas, err := topology.Schemas(ctx, h.cluster); err == nil { // schemas only add remarks
		remarks = append(remarks, cnichain.MisspeltPlugins(exposure.Plugins(&p), schemas)...)
	}
	return assessment{problems: problems, remarks: remarks}
}

// checkTopology also rejects violated plugin contracts. The controller tolerates them in a topology that was accepted
// earlier (see Reconciler.evaluate in package topology), but in this case an author is changing the spec and can fix
// it.
func (h *Handler) checkTopology(ctx context.Context, raw []byte) assessment {
	var t topologyapi.NetworkTopology
	if err := json.Unmarshal(raw, &t); err != nil {
		return unreadable(err)
	}
	schemas, err := topology.Schemas(ctx, h.cluster)
	if err != nil {
		return assessment{err: err}
	}
	problems, breaches := topology.Validate(&t, schemas, policy.CheckClassSelector)
	return assessment{problems: append(problems, breaches...), remarks: topology.Remarks(ctx, h.cluster, &t, schemas)}
}

func checkSchema(_ context.Context, raw []byte) assessment {
	var s topologyapi.CNIPluginSchema
	if err := json.Unmarshal(raw, &s); err != nil {
		return unreadable(err)
	}
	return assessment{problems: cnichain.ValidateSchema(&s.Spec)}
}

// unreadable is the assessment of an object that the driver cannot decode either. The API server has validated the
// object against the CRD, so the CRD must be newer or older than this binary.
func unreadable(err error) assessment {
	return assessment{problems: field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{},
		fmt.Sprintf("cannot be decoded: %v; install the CRDs of the controller's version", err))}}
}

// sameSpec reports whether two objects have the same spec. It returns false for objects without a spec, because there
// is nothing to compare. JSON is compared by value, because the API server may change the order of keys.
func sameSpec(before, after []byte) bool {
	var old, updated struct {
		Spec any `json:"spec"`
	}
	return json.Unmarshal(before, &old) == nil && json.Unmarshal(after, &updated) == nil && old.Spec != nil &&
		reflect.DeepEqual(old.Spec, updated.Spec)
}

// refused returns the response that the API server itself would return for an object that violates the CRD. kubectl
// prints the object and each cause in Details on its own line; other clients print the message. Without Details,
// kubectl would print only the message, with all problems on one line.
func refused(kind, name string, problems field.ErrorList) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Result: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
			Reason: metav1.StatusReasonInvalid, Message: conditions.Describe(problems),
			Details: &metav1.StatusDetails{Kind: kind, Name: name, Causes: conditions.Causes(problems)}},
	}}
}
