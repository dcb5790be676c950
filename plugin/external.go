package plugin

import (
	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/external"
)

func hasExternal(record *claims.Record) bool {
	for i := range record.Plans {
		if len(record.Plans[i].External) > 0 {
			return true
		}
	}
	return false
}

func (d *Driver) isExternal(claim *resourceapi.ResourceClaim) bool {
	devices, err := claimspec.Devices(claim)
	for _, name := range claimspec.Topologies(devices) {
		topology, unknown := d.Cluster.topology(name)
		if unknown != nil || topology.Spec.Attachment != v1alpha1.AttachmentExternal {
			return false
		}
	}
	return err == nil && len(devices) > 0
}

// deviceIDs returns the CDI device IDs for a device that another component attaches. They include the gate if the
// driver attaches other devices of the same claim: a container that names the claim must not start before the driver
// has attached those devices.
func deviceIDs(record *claims.Record, step *cnichain.PlanStep, gate []string) []string {
	ids := []string{external.DeviceID(record.Claim, step)}
	if record.Attaches() {
		ids = append(ids, gate...)
	}
	return ids
}

// mayBeInPod returns a function that reports whether a claimed device that is not on the host may be in a pod. For a
// device that another component attaches, the function relies on the state of the host: hardware that exists must be in
// some network namespace, but a virtual link cannot be located.
func mayBeInPod(
	store *claims.Store, sandboxes *attach.Sandboxes, node host.Host,
) func(string, *claims.HeldDevice) bool {
	return func(claimUID string, held *claims.HeldDevice) bool {
		if record, found := store.Get(claimUID); found {
			if step := record.ExternalStep(held); step != nil {
				return !node.Gone(*step.Device)
			}
		}
		return sandboxes.MayBeInPod(claimUID, held)
	}
}
