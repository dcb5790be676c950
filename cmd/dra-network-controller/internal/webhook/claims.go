package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	topologyapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// checkClaim judges what a claim asks of its interfaces, by the functions that nodes call when they prepare it. A claim
// that is found wrong there has been allocated already, and keeps devices from others until its pod is deleted.
func (h *Handler) checkClaim(ctx context.Context, raw []byte) assessment {
	var claim resourceapi.ResourceClaim
	if err := json.Unmarshal(raw, &claim); err != nil {
		return assessment{err: err} // the kind is not ours to refuse
	}
	return h.checkClaimSpec(ctx, &claim, field.NewPath("spec"))
}

// checkTemplate judges the claims that will be made of a template.
func (h *Handler) checkTemplate(ctx context.Context, raw []byte) assessment {
	var template resourceapi.ResourceClaimTemplate
	if err := json.Unmarshal(raw, &template); err != nil {
		return assessment{err: err}
	}
	claim := resourceapi.ResourceClaim{ObjectMeta: template.ObjectMeta, Spec: template.Spec.Spec}
	return h.checkClaimSpec(ctx, &claim, field.NewPath("spec", "spec"))
}

// checkClaimSpec asks the cache, and refuses nothing that it has not asked the API server about: who applies a topology
// and a claim together may be ahead of the cache.
func (h *Handler) checkClaimSpec(ctx context.Context, claim *resourceapi.ResourceClaim, path *field.Path) assessment {
	var list topologyapi.NetworkTopologyList
	if err := h.cluster.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // they are read only
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

// asksFor is true for a claim with a request for a DeviceClass that the controller has made of the topology.
func asksFor(claim *resourceapi.ResourceClaim, topology *topologyapi.NetworkTopology) bool {
	return slices.ContainsFunc(claim.Spec.Devices.Requests, func(request resourceapi.DeviceRequest) bool {
		return request.Exactly != nil && slices.Contains(topology.Status.DeviceClasses, request.Exactly.DeviceClassName)
	})
}
