package plugin

import (
	"fmt"
	"slices"

	"github.com/containerd/nri/pkg/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"

	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// claimsOf returns a pod's prepared claims that have something to attach, in the order of the pod's resourceClaims,
// followed by the claim for the pod's extended resources. It does not query the API server.
//
// Any pod may name any claim in its namespace, including claims that were generated for other pods, and the kubelet
// prepares a claim only once. Therefore, a record does not necessarily list all users of its claim, and only the pod's
// spec is authoritative. claimsOf reads it from the pod cache, or uses the claim names from the record of a claim that
// was prepared for this pod. If neither is available and other pods in the namespace use claims, claimsOf returns an
// error, and the kubelet tries to create the sandbox again.
func (n *nriPlugin) claimsOf(pod *api.PodSandbox) ([]claims.Record, error) {
	if isStatic(pod) {
		return nil, nil
	}
	records := attachable(n.Claims.OfPod(pod.GetUid()))
	if !n.Claims.HasOthers(pod.GetNamespace(), pod.GetUid()) {
		return records, nil
	}
	var names []string
	if cached := n.Cluster.cachedPod(pod.GetNamespace(), pod.GetName(), pod.GetUid()); cached != nil {
		var err error
		if names, err = claimNames(cached); err != nil {
			return nil, err
		}
	} else if names = namesAtPrepare(records, pod.GetUid()); names == nil {
		return nil, fmt.Errorf("cannot look up the claims of pod %s: the API server has not reported the pod to the "+
			"driver yet, and its namespace has prepared claims that the pod may name; kubelet retries", podOf(pod))
	}
	named := n.prepared(pod.GetNamespace(), names)
	for _, record := range records { // the cache may lag behind the kubelet's Prepare call
		isNamed := func(other claims.Record) bool { return other.Claim.UID == record.Claim.UID }
		if !slices.ContainsFunc(named, isNamed) {
			named = append(named, record)
		}
	}
	return named, nil
}

// namesAtPrepare returns the names of all of a pod's claims, as recorded when one of the claims was prepared. It
// returns nil if there is no such record.
func namesAtPrepare(records []claims.Record, podUID string) []string {
	for i := range records {
		for _, consumer := range records[i].Consumers {
			if consumer.PodUID == podUID && len(consumer.Claims) > 0 {
				return consumer.Claims
			}
		}
	}
	return nil
}

// attachable returns the claims that the driver has to attach: devices with administrative access are not attached to
// pods, and devices in topologies with attachment External are attached by other components.
func attachable(records []claims.Record) []claims.Record {
	return slices.DeleteFunc(records, func(record claims.Record) bool { return !record.Attaches() })
}

// prepared returns the prepared claims in a namespace that have one of the given names and have something to attach.
func (n *nriPlugin) prepared(namespace string, names []string) []claims.Record {
	var records []claims.Record
	for _, name := range names {
		if record, found := n.Claims.Named(namespace, name); found {
			records = append(records, record)
		}
	}
	return attachable(records)
}

// claimNames returns the names of a pod's claims in the order of its resourceClaims, followed by the name of the claim
// that the scheduler created for its extended resources. It returns an error if a claim has not been generated from its
// template yet.
func claimNames(pod *corev1.Pod) ([]string, error) {
	var names []string
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, fmt.Errorf("cannot look up the claims of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		if name != nil { // nil if no claim has to be generated from the template
			names = append(names, *name)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		names = append(names, extended.ResourceClaimName)
	}
	return names, nil
}

// These messages describe facts that a runtime does not report, and the guarantee that is lost as a result. The driver
// checks for the facts rather than for versions, because distributions patch their runtimes.
const (
	missingClaims = "the container runtime reports neither the CDI devices nor the hooks of containers to NRI plugins: " +
		"containers do not get the limits of their claims, and a running pod may be attached again if the driver has " +
		"lost its records"
	missingNamespaces = "the container runtime reports no namespaces of sandboxes to NRI plugins: claims cannot be " +
		"attached"
)

// checkListed calls checkReported for the listed containers that do not appear to name a claim.
func (n *nriPlugin) checkListed(pods []*api.PodSandbox, containers []*api.Container) {
	byID := make(map[string]*api.PodSandbox, len(pods))
	for _, pod := range pods {
		byID[pod.GetId()] = pod
	}
	for _, container := range containers {
		if pod := byID[container.GetPodSandboxId()]; pod != nil && !namesClaim(container) {
			n.checkReported(pod, container)
		}
	}
}

// checkReported reports that the runtime does not describe containers completely if, according to its pod, a container
// names a claim, but the runtime does not report the claim.
func (n *nriPlugin) checkReported(pod *api.PodSandbox, container *api.Container) {
	cached := n.Cluster.cachedPod(pod.GetNamespace(), pod.GetName(), pod.GetUid())
	if cached == nil {
		return
	}
	for _, specified := range slices.Concat(cached.Spec.InitContainers, cached.Spec.Containers) {
		if specified.Name == container.GetName() && slices.ContainsFunc(specified.Resources.Claims,
			func(named corev1.ResourceClaim) bool { return n.isAttachable(cached, named) }) {
			n.reportMissing(missingClaims)
		}
	}
}

// isAttachable reports whether a container names a whole claim and the claim has devices that the driver attaches.
func (n *nriPlugin) isAttachable(pod *corev1.Pod, named corev1.ResourceClaim) bool {
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if pod.Spec.ResourceClaims[i].Name != named.Name || named.Request != "" || err != nil || name == nil {
			continue
		}
		record, prepared := n.Claims.Named(pod.Namespace, *name)
		return prepared && record.Attaches()
	}
	return false
}

// reportMissing reports a missing fact once per connection: in the log, as an event for the node, and through netdra.
func (n *nriPlugin) reportMissing(fact string) {
	if !n.runtime.addMissing(fact) {
		return
	}
	klog.FromContext(n.Work).Info("The container runtime does not report all required data", "problem", fact)
	n.Statuses.WarnNode("RuntimeReportsTooLittle", fact+"; use a supported container runtime")
}

// addMissing records a missing fact and reports whether it is new.
func (v *runtimeView) addMissing(fact string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if slices.Contains(v.missingFacts, fact) {
		return false
	}
	v.missingFacts = append(slices.Clone(v.missingFacts), fact)
	return true
}
