package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// The kubelet prepares a claim only once. If the journal was lost, running pods keep their claims. However, if such a
// pod gets a new sandbox, its claims must be prepared again, which the kubelet does not request.

// lostLimit limits the duration of a single search for claims whose records were lost with the journal: the search is
// part of a sweep, and the next sweep is due after 30 s.
const lostLimit = 20 * time.Second

// recoverLost prepares and attaches the claims of running pods whose records were lost with the journal. It does not
// touch a claim whose gate shows that the claim is still attached.
//
// It uses the same code path as a call from the kubelet, with the same checks and locks. A pod stays in the list until
// its claims are prepared.
func (d *Driver) recoverLost(ctx context.Context) {
	if !d.journalLost() || !d.nri.runtime.isConnected() || !d.Cluster.hasSynced() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lostLimit)
	defer cancel()
	logger := klog.FromContext(ctx)
	for _, pod := range d.nri.unclaimedSandboxes() {
		lost, err := d.lostClaims(ctx, pod)
		if err == nil && len(lost) > 0 {
			logger.Info("Preparing claims of the lost journal", "pod", podOf(pod).String(), "sandbox", pod.GetId())
			err = d.again(ctx, lost)
		}
		if err != nil {
			logger.Error(err, "Cannot prepare claims of the lost journal", "pod", podOf(pod).String())
			continue
		}
		// This also handles pods whose claims were prepared for another pod or in an attempt that failed later.
		if _, unclaimed := d.nri.unclaimed.LoadAndDelete(pod.GetId()); unclaimed && !d.nri.isAttachedUnrecorded(pod) {
			d.Sandboxes.ExpectAlso(pod.GetId())
			d.Sandboxes.GoTracked(func() { d.nri.attachLate(pod, d.nri.runtime.now().busy[pod.GetId()]) })
		}
	}
}

// unclaimedSandboxes returns, sorted by ID, the sandboxes whose pods have no claims known to the driver.
func (n *nriPlugin) unclaimedSandboxes() (pods []*api.PodSandbox) {
	n.unclaimed.Range(func(_, pod any) bool {
		pods = append(pods, pod.(*api.PodSandbox))
		return true
	})
	slices.SortFunc(pods, func(a, b *api.PodSandbox) int { return cmp.Compare(a.GetId(), b.GetId()) })
	return pods
}

// isAttachedUnrecorded reports whether at least one claim of a pod was attached before the journal was lost and is
// still attached.
func (n *nriPlugin) isAttachedUnrecorded(pod *api.PodSandbox) bool {
	records, err := n.claimsOf(pod)
	return err == nil && slices.ContainsFunc(records, func(record claims.Record) bool {
		return n.isUnrecorded(pod, []attach.Part{{ClaimUID: record.Claim.UID}})
	})
}

// lostClaims returns a pod's claims that have devices from this driver but no record. It omits claims whose devices are
// attached by other components: the pod already has these devices or will get them from those components, and their
// baselines cannot be recorded while they are in the pod.
func (d *Driver) lostClaims(ctx context.Context, pod *api.PodSandbox) ([]*drapb.Claim, error) {
	netns, err := d.nri.Namespaces.pathOf(pod)
	known := d.Cluster.cachedPod(pod.GetNamespace(), pod.GetName(), pod.GetUid())
	if err != nil || netns == "" || known == nil || known.DeletionTimestamp != nil {
		return nil, nil //nolint:nilerr // the sandbox has terminated or is about to terminate
	}
	var lost []*drapb.Claim
	for name := range resourceclaim.PodClaims(known) {
		if _, prepared := d.Claims.Named(pod.GetNamespace(), name); prepared {
			continue
		}
		claim, err := d.client.ResourceV1().ResourceClaims(pod.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue // the pod is about to terminate
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read claim %s/%s: %w", pod.GetNamespace(), name, err)
		}
		uid := string(claim.UID)
		if isForPod(claim, known) && !d.isExternal(claim) && !d.Sandboxes.AdmitsUnrecorded(uid, netns) {
			lost = append(lost, &drapb.Claim{Namespace: claim.Namespace, Name: claim.Name, Uid: uid})
		}
	}
	return lost, nil
}

// isForPod reports whether a claim has been allocated devices from this driver and is reserved for a pod or its
// PodGroup.
func isForPod(claim *resourceapi.ResourceClaim, pod *corev1.Pod) bool {
	return claim.Status.Allocation != nil && resourceclaim.IsReservedForPod(pod, claim, true) &&
		slices.ContainsFunc(claim.Status.Allocation.Devices.Results,
			func(result resourceapi.DeviceRequestAllocationResult) bool {
				return result.Driver == v1alpha1.DriverName
			})
}
