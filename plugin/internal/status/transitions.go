package status

import (
	"context"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// isOf reports whether an entry is for the given device. pool, device and shareID are part of the list's key
// (KEP-4817).
func (d *deviceStatus) isOf(pool, device, shareID string) bool {
	return d.pool == pool && d.device == device && d.shareID == shareID
}

// keepSince copies the transition times from written entries if their condition has not changed.
func keepSince(entries, written []deviceStatus) {
	for i := range entries {
		entry := &entries[i]
		for j := range written {
			if old := &written[j]; entry.isOf(old.pool, old.device, old.shareID) && entry.ready == old.ready {
				entry.since = old.since
			}
		}
	}
}

// setSince sets the transition times of entries that this driver process has not written yet. If an earlier process
// wrote the entries, their times are kept. Since the API server ignores writes that change nothing, restarting the
// driver does not change any claim.
//
// The claim is read only if an earlier driver process may have written its status, that is, if it was already prepared
// when the driver started, or if it has failed.
func (s *Writer) setSince(ctx context.Context, claim cnichain.Claim, entries []deviceStatus, now time.Time) error {
	mayBeOld := func(entry deviceStatus) bool {
		return entry.since.IsZero() && (s.atStart.Has(claim.UID) || !entry.ready)
	}
	if slices.ContainsFunc(entries, mayBeOld) {
		found, err := s.Client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err == nil && string(found.UID) != claim.UID {
			err = apierrors.NewNotFound(schema.GroupResource{Group: resourceapi.GroupName, Resource: "resourceclaims"},
				claim.Name)
		}
		if err != nil {
			return err
		}
		keepSince(entries, s.ownEntries(found))
	}
	for i := range entries {
		if entries[i].since.IsZero() {
			entries[i].since = now
		}
	}
	return nil
}

// ownEntries returns, from a claim's status, the driver's Ready conditions and the devices that they refer to.
func (s *Writer) ownEntries(claim *resourceapi.ResourceClaim) []deviceStatus {
	var entries []deviceStatus
	for i := range claim.Status.Devices {
		device := &claim.Status.Devices[i]
		condition := meta.FindStatusCondition(device.Conditions, conditionReady)
		if device.Driver != v1alpha1.DriverName || condition == nil {
			continue
		}
		entry := deviceStatus{pool: device.Pool, device: device.Device, since: condition.LastTransitionTime.Time,
			ready: condition.Status == metav1.ConditionTrue}
		if device.ShareID != nil {
			entry.shareID = *device.ShareID
		}
		entries = append(entries, entry)
	}
	return entries
}
