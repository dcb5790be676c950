package claims

import (
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/cnichain"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// The scheduler keeps mutually exclusive uses apart. Prepare checks for conflicts again, because the scheduler can be
// bypassed, can forget allocations (before Kubernetes 1.36.2) or can use slices that have just changed, and this node
// would suffer the consequences of a conflict.

// findConflict returns an existing claim that excludes the new one, together with the reason. The reason is nil if
// there is no such claim.
//
// It checks records in order of UID, so that the error message refers to the same claim on each attempt.
func findConflict(record *Record, records map[string]Record) (holder Record, reason error) {
	for _, uid := range slices.Sorted(maps.Keys(records)) {
		other := records[uid]
		if uid == record.Claim.UID {
			continue
		}
		if other.Claim.Namespace == record.Claim.Namespace && other.Claim.Name == record.Claim.Name {
			// The kubelet and users identify a claim by its name, so two records with the same name could not be
			// distinguished.
			return other, fmt.Errorf("an earlier claim with the same name (UID %s) is not released yet; wait for "+
				"its release", uid)
		}
		for i := range record.Devices {
			for j := range other.Devices {
				wanted, held := &record.Devices[i], &other.Devices[j]
				if reason := exclusionReason(wanted, held); reason != "" {
					return other, fmt.Errorf("cannot use device %s of pool %s while claim %s holds %s: %s; wait until "+
						"that claim is released", wanted.Name, wanted.Pool, other.Claim, held.Name, reason)
				}
			}
		}
		if wanted, held := findClash(record.Plans, other.Plans); wanted != nil {
			return other, fmt.Errorf("cannot run step %q (%s) on device %s while claim %s runs %s on it: their "+
				"schemas exclude each other; wait until that claim is released",
				wanted.Name, wanted.Type, wanted.Device.Name, other.Claim, held.Type)
		}
	}
	return Record{}, nil
}

// findStacked returns a claim with a device that excludes a device of the new claim because both devices are the same
// link or one is stacked on the other. The reason is nil if there is no such claim. The records must have their
// baselines.
//
// It is not sufficient to compare names and addresses, as findConflict does: a link that is not a PCI function is
// identified by its name, which may change, and the lower device of a VLAN in a pod is not visible on the host.
func findStacked(record *Record, records map[string]Record) (holder Record, reason error) {
	for _, uid := range slices.Sorted(maps.Keys(records)) {
		other := records[uid]
		if uid == record.Claim.UID {
			continue
		}
		for _, wanted := range stepsOf(record.Plans) {
			for _, held := range stepsOf(other.Plans) {
				if reason := stackingReason(wanted.Device, held.Device); reason != "" {
					return other, fmt.Errorf("cannot use device %s of pool %s while claim %s holds %s: %s; wait until "+
						"that claim is released", wanted.Device.Name, wanted.Device.Pool, other.Claim, held.Device.Name,
						reason)
				}
			}
		}
	}
	return Record{}, nil
}

// stackingReason returns the reason why the links of two devices must not be held at the same time, or "" if they may
// be. It compares link indexes only if both are from the same boot.
//
// If its lower device is moved to another namespace, a virtual link stays in its own namespace and continues to send
// through the lower device.
func stackingReason(a, b *cnichain.Device) string {
	switch {
	case a == nil || b == nil || a.BootID == "" || a.BootID != b.BootID:
		return ""
	case a.Pool != b.Pool && a.Index != 0 && a.Index == b.Index && a.Kind == b.Kind && a.MAC == b.MAC:
		return "both are the same link, which was renamed"
	case b.Exclusive && isAbove(a, b):
		return fmt.Sprintf("%s is on top of %s, which is allocated as a whole", a.Name, b.Name)
	case a.Exclusive && isAbove(b, a):
		return fmt.Sprintf("%s is on top of %s, which is allocated as a whole", b.Name, a.Name)
	}
	return ""
}

// isAbove reports whether a device is stacked on another device or on one of that device's virtual functions.
func isAbove(upper, lower *cnichain.Device) bool {
	below := upper.StandsOn
	return below != nil && (below.Index == lower.Index || below.PF != "" && below.PF == lower.PCIAddress)
}

// findClash returns a step from each of two claims if the steps' plugins cannot both work on a device that the steps
// share, or nil if there are no such steps. A plan may be compared with itself, since a step does not clash with
// itself.
func findClash(wanted, held []cnichain.Plan) (wantedStep, heldStep *cnichain.PlanStep) {
	heldSteps := stepsOf(held)
	for _, first := range stepsOf(wanted) {
		for _, second := range heldSteps {
			if first != second && first.Clashes(second) {
				return first, second
			}
		}
	}
	return nil, nil
}

// stepsOf returns all steps that may have a device, including the steps for devices that other components attach.
func stepsOf(plans []cnichain.Plan) []*cnichain.PlanStep {
	var steps []*cnichain.PlanStep
	for i := range plans {
		for j := range plans[i].Steps {
			steps = append(steps, &plans[i].Steps[j])
		}
		for j := range plans[i].External {
			steps = append(steps, &plans[i].External[j])
		}
	}
	return steps
}

func selfConflict(record *Record) error {
	for i := range record.Devices {
		for j := range record.Devices[:i] {
			earlier, later := &record.Devices[j], &record.Devices[i]
			if reason := exclusionReason(earlier, later); reason != "" {
				return fmt.Errorf("cannot prepare requests %q and %q: their devices %s and %s exclude each other "+
					"(%s); delete the pod and its claim to get a new allocation",
					earlier.Request, later.Request, earlier.Name, later.Name, reason)
			}
		}
	}
	if first, second := findClash(record.Plans, record.Plans); first != nil {
		return fmt.Errorf("cannot run steps %q (%s) and %q (%s) on device %s: their schemas exclude each other; "+
			"delete the pod and its claim, or change the topology",
			first.Name, first.Type, second.Name, second.Type, first.Device.Name)
	}
	return nil
}

// exclusionReason returns the reason why two devices must not be held at the same time, or "" if they may be. It is
// symmetric.
func exclusionReason(a, b *HeldDevice) string {
	switch {
	case Identity(a.Facts) == Identity(b.Facts):
		return exclusionReasonOnDevice(a, b)
	case isFunctionOf(a, b) && b.Exclusive:
		return fmt.Sprintf("%s takes the whole physical function, with its virtual functions", b.Name)
	case isFunctionOf(b, a) && a.Exclusive:
		return fmt.Sprintf("%s takes the whole physical function, with its virtual functions", a.Name)
	}
	return ""
}

// exclusionReasonOnDevice is like exclusionReason, but for two entries that refer to the same device.
func exclusionReasonOnDevice(a, b *HeldDevice) string {
	for _, held := range []*HeldDevice{a, b} {
		if held.Exclusive {
			return fmt.Sprintf("%s takes the whole device", held.Name)
		}
	}
	// A shared entry does not exclude itself: capacityExceeded counts the amounts that its users consume.
	if a.Persona == nil || b.Persona == nil || a.Name == b.Name {
		return ""
	}
	if group := a.Persona.ExclusionGroup; group != "" && group == b.Persona.ExclusionGroup {
		return fmt.Sprintf("both belong to the exclusion group %s", group)
	}
	return ""
}

func isFunctionOf(function, physical *HeldDevice) bool {
	return function.Facts.PFAddress != "" && function.Facts.PFAddress == physical.Facts.PCIAddress
}

// capacityExceeded returns an error if a claim consumes more of a shared device than the other claims have left
// available, or less than the consumePerAllocation in the device's policy. held contains all other claims.
func capacityExceeded(record *Record, held ...map[string]Record) error {
	for i := range record.Devices {
		device := &record.Devices[i]
		if device.Exclusive || device.Persona == nil {
			continue
		}
		for _, counter := range slices.Sorted(maps.Keys(device.Persona.ConsumePerAllocation)) {
			least, taken := device.Persona.ConsumePerAllocation[counter], consumes(device, counter)
			if taken.Cmp(least) < 0 {
				return fmt.Errorf("cannot prepare device %s: the claim was allocated %s %s, but policy %s now "+
					"requires at least %s per claim; delete the pod and its claim to get a new allocation",
					device.Name, taken.String(), counter, device.Persona.Policy, least.String())
			}
		}
		for _, capacity := range device.Persona.Capacity {
			total := consumed(device, capacity.Name, record, held...)
			if total.Cmp(capacity.Value) > 0 {
				return fmt.Errorf("cannot prepare device %s of pool %s: it has %s of %s, and with this claim %s "+
					"would be in use; wait until other claims are released",
					device.Name, device.Pool, capacity.Value.String(), capacity.Name, total.String())
			}
		}
	}
	return nil
}

// consumed returns the total amount of a device's counter that the claim and all other claims consume.
func consumed(device *HeldDevice, counter string, record *Record, held ...map[string]Record) resource.Quantity {
	var total resource.Quantity
	count := func(devices []HeldDevice) {
		for i := range devices {
			if devices[i].Pool == device.Pool && devices[i].Name == device.Name {
				total.Add(consumes(&devices[i], counter))
			}
		}
	}
	count(record.Devices)
	for _, records := range held {
		for uid, other := range records {
			if uid != record.Claim.UID {
				count(other.Devices)
			}
		}
	}
	return total
}

func consumes(h *HeldDevice, counter string) resource.Quantity {
	return h.Consumed[resourceapi.QualifiedName(policyapi.QualifiedName(counter))]
}
