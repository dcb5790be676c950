package plugin

import (
	"fmt"
	"slices"

	"github.com/containerd/nri/pkg/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// podClaims finds the prepared claims of pods.
type podClaims struct {
	cluster *cluster
	claims  *claims.Store
}

// find returns the prepared claims of a pod that are to be attached, in the order of its resourceClaims and with
// that of its extended resources last, without asking the API server. A pod of which that can't be said yet is an
// error: the runtime tries again.
func (p podClaims) find(pod *api.PodSandbox) ([]claims.Record, error) {
	if isStatic(pod) {
		return nil, nil
	}
	// Claims of templates have one consumer, which kubelet's Prepare has named. Only shared claims need the cache.
	records := attachable(p.claims.OfPod(pod.GetUid()))
	if !p.claims.HasShareable(pod.GetNamespace()) {
		return records, nil
	}
	// Claims that a user made may have got this pod after they were prepared.
	known := p.cluster.cachedPod(pod.GetNamespace(), pod.GetName(), pod.GetUid())
	if known == nil {
		if len(records) > 0 {
			return nil, fmt.Errorf("the claims of pod %s are not known yet: try again", podOf(pod))
		}
		return nil, fmt.Errorf("pod %s is not known yet, and its namespace has claims that it may share: try again",
			podOf(pod))
	}
	named, err := p.named(known)
	if err != nil {
		return nil, err
	}
	for _, record := range records { // the cache may be older than what kubelet has had prepared
		isNamed := func(other claims.Record) bool { return other.Claim.UID == record.Claim.UID }
		if !slices.ContainsFunc(named, isNamed) {
			named = append(named, record)
		}
	}
	return named, nil
}

// attachable are the claims with something to attach: devices for administrative access are not given to pods, and
// others attach those of topologies with attachment External.
func attachable(records []claims.Record) []claims.Record {
	return slices.DeleteFunc(records, func(record claims.Record) bool { return !record.Attaches() })
}

// named returns the prepared claims that a pod names, or that the scheduler has made for its extended resources.
func (p podClaims) named(pod *corev1.Pod) ([]claims.Record, error) {
	var records []claims.Record
	add := func(name string) {
		if record, found := p.claims.Named(pod.Namespace, name); found {
			records = append(records, record)
		}
	}
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, fmt.Errorf("the claims of pod %s/%s are not known yet: %w", pod.Namespace, pod.Name, err)
		}
		if name != nil { // else no claim is needed
			add(*name)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		add(extended.ResourceClaimName)
	}
	return attachable(records), nil
}
