package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/conditions"
	"github.com/dra-networking/dra-network-driver/cmd/dra-network-controller/internal/topology"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
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

// NewHandler returns a handler that reads objects from the cache (cluster) and, before it rejects a claim,
// NetworkTopologies from the API server (live).
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

// assessment is the result of a check. Problems cause the object to be rejected; remarks become warnings for its
// author. err is set if the object could not be checked. Such an object is allowed, since the condition Accepted
// reports its problems.
type assessment struct {
	problems field.ErrorList
	remarks  []string
	err      error
}

// Handle handles a single request. An update that does not change the spec is allowed even if the object is invalid, so
// that labels and finalizers can still be changed on objects that predate a rule.
//
// The order matters: irrelevant operations, such as deletions, which have no new object, are handled first; next,
// unknown kinds from a newer or foreign webhook configuration are allowed with a warning; the check itself comes last.
// Handle is deterministic and has no side effects, so the API server may send a request twice.
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

// checkOf returns the check for a kind, or nil if the kind is not supported. With the default configuration, the API
// server converts objects to the stored version before it calls the webhook (matchPolicy Equivalent). If the
// configuration lists other served versions, the webhook receives objects in those versions, which have the same
// schema.
func (h *Handler) checkOf(kind metav1.GroupVersionKind) func(context.Context, []byte) assessment {
	version := schema.GroupVersionKind(kind).GroupVersion()
	ours := topologyapi.IsServed(version.String())
	switch {
	case version == resourceapi.SchemeGroupVersion && kind.Kind == kindClaim:
		return decoded(h.checkClaim, undecided)
	case version == resourceapi.SchemeGroupVersion && kind.Kind == kindTemplate:
		return decoded(h.checkTemplate, undecided)
	case ours && kind.Kind == kindPolicy:
		return decoded(h.checkPolicy, unreadable)
	case ours && kind.Kind == kindTopology:
		return decoded(h.checkTopology, unreadable)
	case ours && kind.Kind == kindSchema:
		return decoded(checkSchema, unreadable)
	}
	return nil
}

// decoded returns a check that first decodes the request into an object of type T. failed assesses an object that
// cannot be decoded.
func decoded[T any](
	check func(context.Context, *T) assessment, failed func(error) assessment,
) func(context.Context, []byte) assessment {
	return func(ctx context.Context, raw []byte) assessment {
		object := new(T)
		if err := json.Unmarshal(raw, object); err != nil {
			return failed(err)
		}
		return check(ctx, object)
	}
}

// checkPolicy checks a policy with the same function that nodes use, so that the webhook and the nodes always agree.
func (h *Handler) checkPolicy(_ context.Context, p *policyapi.DeviceExposurePolicy) assessment {
	problems, remarks := policy.Check(p)
	return assessment{problems: problems, remarks: remarks}
}

// checkTopology also rejects violations of plugin contracts. The controller tolerates violations in a topology that was
// accepted earlier (see Reconciler.evaluate in package topology), but here, an author is changing the spec and can fix
// them.
func (h *Handler) checkTopology(ctx context.Context, t *topologyapi.NetworkTopology) assessment {
	schemas, err := topology.Schemas(ctx, h.cluster)
	if err != nil {
		return undecided(err)
	}
	problems, breaches := topology.Validate(t, schemas, policy.CheckClassSelector)
	return assessment{problems: append(problems, breaches...), remarks: topology.Remarks(ctx, h.cluster, t, schemas)}
}

func checkSchema(_ context.Context, s *topologyapi.CNIPluginSchema) assessment {
	return assessment{problems: cnichain.ValidateSchema(&s.Spec)}
}

// unreadable is the assessment for an object that neither the webhook nor the driver can decode. Since the API server
// has already validated the object against the CRD, the CRD must be newer or older than this binary.
func unreadable(err error) assessment {
	return assessment{problems: field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{},
		fmt.Sprintf("cannot be decoded: %v; install the CRDs of the controller's version", err))}}
}

// undecided is the assessment for an object that cannot be checked, or for a claim that cannot be decoded.
// ResourceClaim is not the driver's API, so such a claim is not rejected.
func undecided(err error) assessment { return assessment{err: err} }

// sameSpec reports whether two objects have the same spec. It returns false for objects without a spec, because there
// is nothing to compare. JSON is compared by value, because the API server may reorder keys.
func sameSpec(before, after []byte) bool {
	var old, updated struct {
		Spec any `json:"spec"`
	}
	return json.Unmarshal(before, &old) == nil && json.Unmarshal(after, &updated) == nil && old.Spec != nil &&
		reflect.DeepEqual(old.Spec, updated.Spec)
}

// refused returns the response that the API server itself would return for an object that violates the CRD. kubectl
// prints the object and then each cause in Details on a separate line; other clients print the message. Without
// Details, kubectl would print only the message, with all problems on one line.
func refused(kind, name string, problems field.ErrorList) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Result: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
			Reason: metav1.StatusReasonInvalid, Message: conditions.Describe(problems),
			Details: &metav1.StatusDetails{Kind: kind, Name: name, Causes: conditions.Causes(problems)}},
	}}
}

// checkClaim checks a claim's parameters with the functions that nodes use when they prepare the claim. An error during
// preparation comes too late: by then, the claim has been allocated and blocks its devices until the pod is deleted.
func (h *Handler) checkClaim(ctx context.Context, claim *resourceapi.ResourceClaim) assessment {
	return h.checkClaimSpec(ctx, claim, field.NewPath("spec"))
}

func (h *Handler) checkTemplate(ctx context.Context, template *resourceapi.ResourceClaimTemplate) assessment {
	claim := resourceapi.ResourceClaim{ObjectMeta: template.ObjectMeta, Spec: template.Spec.Spec}
	return h.checkClaimSpec(ctx, &claim, field.NewPath("spec", "spec"))
}

// checkClaimSpec checks a claim against the cached topologies. Before it rejects the claim, it confirms the problem
// with the API server, because the cache may lag behind if a client applies a topology and a claim together.
func (h *Handler) checkClaimSpec(ctx context.Context, claim *resourceapi.ResourceClaim, path *field.Path) assessment {
	var list topologyapi.NetworkTopologyList
	if err := h.cluster.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // read-only
		return assessment{err: fmt.Errorf("cannot list NetworkTopologies: %w", err)}
	}
	var asked []*topologyapi.NetworkTopology
	for i := range list.Items {
		if asksFor(claim, &list.Items[i]) {
			asked = append(asked, &list.Items[i])
		}
	}
	slices.SortFunc(asked, func(a, b *topologyapi.NetworkTopology) int { return cmp.Compare(a.Name, b.Name) })
	if len(claimspec.CheckWritten(claim, asked, path)) == 0 {
		return assessment{remarks: claimspec.UnusedBandwidth(claim, asked)}
	}
	current := make([]*topologyapi.NetworkTopology, len(asked))
	for i := range asked {
		current[i] = &topologyapi.NetworkTopology{}
		if err := h.live.Get(ctx, client.ObjectKeyFromObject(asked[i]), current[i]); err != nil {
			return assessment{err: fmt.Errorf("cannot read NetworkTopology %s: %w", asked[i].Name, err)}
		}
	}
	return assessment{problems: claimspec.CheckWritten(claim, current, path)}
}

// asksFor reports whether the claim requests a DeviceClass that the controller created for the topology.
func asksFor(claim *resourceapi.ResourceClaim, topology *topologyapi.NetworkTopology) bool {
	return slices.ContainsFunc(claim.Spec.Devices.Requests, func(request resourceapi.DeviceRequest) bool {
		return request.Exactly != nil && slices.Contains(topology.Status.DeviceClasses, request.Exactly.DeviceClassName)
	})
}
