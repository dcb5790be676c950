package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	topologyapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// maxNamed is the maximum number of claims that a warning names.
const maxNamed = 5

// deletionWarnings describes the effect of a deletion on claims that use the object. The deletion is never rejected,
// because running pods keep their interfaces. Read errors produce no warning, since a deletion must not depend on
// reads. Claims are read from the cache, so no request is sent to the API server.
func (h *Handler) deletionWarnings(ctx context.Context, kind metav1.GroupVersionKind, raw []byte) []string {
	var deleted metav1.PartialObjectMetadata
	known := kind.Kind == kindTopology && kind.Group == topologyapi.GroupVersion().Group ||
		kind.Kind == kindPolicy && kind.Group == policyapi.GroupVersion().Group
	if !known || json.Unmarshal(raw, &deleted) != nil {
		return nil
	}
	var list resourceapi.ResourceClaimList
	if h.cluster.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil { // read-only
		return nil
	}
	var users, holders []string
	exposes := "exposes"
	var exposing map[publishedDevice]string
	if kind.Kind == kindPolicy {
		var err error
		if exposing, err = h.exposingPolicies(ctx); err != nil {
			return nil
		}
	}
	for i := range list.Items {
		claim := &list.Items[i]
		devices, err := claimspec.Devices(claim)
		if err != nil || len(devices) == 0 {
			continue
		}
		name := claim.Namespace + "/" + claim.Name
		if slices.ContainsFunc(devices, func(d claimspec.Device) bool {
			exposer, known := exposing[publishedDevice{d.Pool, d.Device}]
			if !known {
				exposes = "may expose"
			}
			return !known || exposer == deleted.Name
		}) {
			holders = append(holders, name)
		}
		if slices.ContainsFunc(devices, func(d claimspec.Device) bool {
			return d.Class.NetworkTopologyRef.Name == deleted.Name
		}) {
			users = append(users, name)
		}
	}
	switch {
	case kind.Kind == kindTopology && len(users) > 0:
		return []string{fmt.Sprintf("NetworkTopology %s is used by %s: their pods keep their interfaces, and "+
			"claims that are not prepared yet get none", deleted.Name, naming(users))}
	case kind.Kind == kindPolicy && len(holders) > 0:
		return []string{fmt.Sprintf("DeviceExposurePolicy %s %s devices that are held by %s: the claims keep these "+
			"devices, but a device that no other policy exposes cannot be allocated again; \"kubectl netdra devices "+
			"--all-nodes -o wide\" lists the devices",
			deleted.Name, exposes, counted(holders))}
	}
	return nil
}

// publishedDevice identifies a device in allocations.
type publishedDevice struct{ pool, name string }

// exposingPolicies returns the policy of each published device, if the device names it. Drivers that predate the
// attribute do not publish a policy name.
func (h *Handler) exposingPolicies(ctx context.Context) (map[publishedDevice]string, error) {
	var list resourceapi.ResourceSliceList
	if err := h.cluster.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // read-only
		return nil, err
	}
	policies := map[publishedDevice]string{}
	for i := range list.Items {
		spec := &list.Items[i].Spec
		for j := range spec.Devices {
			if name := spec.Devices[j].Attributes[policy.ExposurePolicy].StringValue; name != nil {
				policies[publishedDevice{spec.Pool.Name, spec.Devices[j].Name}] = *name
			}
		}
	}
	return policies, nil
}

func counted(claims []string) string {
	if len(claims) == 1 {
		return "1 claim"
	}
	return fmt.Sprintf("%d claims", len(claims))
}

// naming returns a text with the number of claims and the names of the first maxNamed ones.
func naming(claims []string) string {
	count, more := counted(claims), ""
	slices.Sort(claims)
	if len(claims) > maxNamed {
		claims, more = claims[:maxNamed], " and others"
	}
	return fmt.Sprintf("%s (%s%s)", count, strings.Join(claims, ", "), more)
}
