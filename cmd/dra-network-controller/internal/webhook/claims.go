package webhook

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	topologyapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// checkClaim checks a claim's parameters with the functions that nodes call when they prepare the claim. An error at
// that point comes too late: the claim is already allocated and blocks its devices until the pod is deleted.
func (h *Handler) checkClaim(ctx context.Context, claim *resourceapi.ResourceClaim) assessment {
	return h.checkClaimSpec(ctx, claim, field.NewPath("spec"))
}

// checkTemplate checks the claims that will be created from a template.
func (h *Handler) checkTemplate(ctx context.Context, template *resourceapi.ResourceClaimTemplate) assessment {
	claim := resourceapi.ResourceClaim{ObjectMeta: template.ObjectMeta, Spec: template.Spec.Spec}
	return h.checkClaimSpec(ctx, &claim, field.NewPath("spec", "spec"))
}

// checkClaimSpec checks against the cached topologies, and confirms a problem with the API server before it rejects the
// claim, because the cache may lag behind a client that applies a topology and a claim together.
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
		return assessment{}
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
