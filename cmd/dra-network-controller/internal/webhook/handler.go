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
	// cluster reads the CNIPluginSchemas, NetworkTopologies, AddressRanges, ResourceClaims and the driver's
	// ResourceSlices of the cluster from a cache.
	cluster client.Reader
	// live reads NetworkTopologies from the API server.
	live client.Reader
}

// NewHandler returns a handler that reads CNIPluginSchemas, NetworkTopologies and ResourceClaims through the cluster's
// cache, and before it refuses a claim, NetworkTopologies from the API server (live).
func NewHandler(cluster, live client.Reader) *Handler {
	return &Handler{cluster: cluster, live: live}
}

// Kinds of objects.
const (
	kindPolicy   = "DeviceExposurePolicy"
	kindTopology = "NetworkTopology"
	kindSchema   = "CNIPluginSchema"
	kindClaim    = "ResourceClaim"
	kindTemplate = "ResourceClaimTemplate"
)

// assessment is the result of a check: problems refuse the object, remarks are warnings for its author. err is why the
// object could not be checked; it passes then, since the condition Accepted will say what is wrong.
type assessment struct {
	problems field.ErrorList
	remarks  []string
	err      error
}

// Handle answers one request. An object whose specification is not changed passes even if it is wrong, so that labels
// and finalizers of what was stored before a rule can still be written.
//
// The order matters: deletions first, since they have no new object; then what is none of our business, which passes
// without a word; then kinds that a newer or foreign configuration sends here, which pass with a warning; then objects
// that are to be judged. Answers are deterministic and have no side effects, so the API server may ask twice.
func (h *Handler) Handle(ctx context.Context, request admission.Request) admission.Response {
	if request.Operation == admissionv1.Delete && request.SubResource == "" {
		return admission.Allowed("").WithWarnings(h.deletionWarnings(ctx, request.Kind, request.OldObject.Raw)...)
	}
	if request.Operation != admissionv1.Create && request.Operation != admissionv1.Update || request.SubResource != "" {
		return admission.Allowed("")
	}
	validate := h.checkOf(request.Kind)
	if validate == nil {
		return admission.Allowed("").WithWarnings(fmt.Sprintf("not checked: dra-network-controller knows nothing of "+
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

// checkOf returns the check of a kind; nil if there is none. Our configuration has the API server ask in the stored
// version whatever version somebody writes (matchPolicy Equivalent); one that names other served versions is
// asked in those, which have the same shape.
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

// checkPolicy judges a policy by the function that nodes use, so the two cannot disagree.
func (h *Handler) checkPolicy(ctx context.Context, raw []byte) assessment {
	var p policyapi.DeviceExposurePolicy
	if err := json.Unmarshal(raw, &p); err != nil {
		return unreadable(err)
	}
	problems, remarks := policy.Check(&p)
	if schemas, err := topology.Schemas(ctx, h.cluster); err == nil { // a policy is right or wrong without them
		remarks = append(remarks, cnichain.MisspeltPlugins(exposure.Plugins(&p), schemas)...)
	}
	return assessment{problems: problems, remarks: remarks}
}

// checkTopology refuses broken contracts of plugins, too. The controller accepts those of a topology that was accepted
// before (see Reconciler.evaluate in package topology), but here somebody is changing the specification, and can
// correct it.
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

// unreadable is the assessment of an object that the driver could not read either. The API server has checked it
// against the definition, so this is a definition that is newer or older than this binary.
func unreadable(err error) assessment {
	return assessment{problems: field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{},
		fmt.Sprintf("cannot be read: %v", err))}}
}

// sameSpec reports whether two objects have the same specification. Objects without a specification are never the same:
// nothing would be compared. JSON is compared as values, since the API server may order keys otherwise.
func sameSpec(before, after []byte) bool {
	var old, updated struct {
		Spec any `json:"spec"`
	}
	return json.Unmarshal(before, &old) == nil && json.Unmarshal(after, &updated) == nil && old.Spec != nil &&
		reflect.DeepEqual(old.Spec, updated.Spec)
}

// refused answers as the API server does when the definition of a resource refuses an object. Of the details kubectl
// prints the object, and each problem on a line of its own; the message is for others. Without Details kubectl would
// print the message alone, on one line however many problems there are.
func refused(kind, name string, problems field.ErrorList) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Result: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
			Reason: metav1.StatusReasonInvalid, Message: conditions.Describe(problems),
			Details: &metav1.StatusDetails{Kind: kind, Name: name, Causes: conditions.Causes(problems)}},
	}}
}
