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

// The scheduler keeps mutually exclusive uses apart. Prepare checks it again, since schedulers can be bypassed, forget
// (before Kubernetes 1.36.2) or work on slices that have just changed, and here is where it would hurt.

// findConflict says beside which other claim one may not be prepared, and why.
func findConflict(record *Record, records map[string]Record) (holder Record, reason error) {
	for _, uid := range slices.Sorted(maps.Keys(records)) {
		other := records[uid]
		if uid == record.Claim.UID {
			continue
		}
		if other.Claim.Namespace == record.Claim.Namespace && other.Claim.Name == record.Claim.Name {
			return other, fmt.Errorf("an earlier claim of the same name (UID %s) is not released yet: wait until it is",
				uid)
		}
		for i := range record.Devices {
			for j := range other.Devices {
				wanted, held := &record.Devices[i], &other.Devices[j]
				if reason := exclusionReason(wanted, held); reason != "" {
					return other, fmt.Errorf("device %s of pool %s can't be used while claim %s holds %s: %s; wait "+
						"until that claim is released",
						wanted.Name, wanted.Pool, other.Claim, held.Name, reason)
				}
			}
		}
		if left, two := clash(record.Plans, other.Plans); left != nil {
			return other, fmt.Errorf("step %q needs %s on device %s, where claim %s runs %s, and their schemas say "+
				"that they can't share one; wait until that claim is released",
				left.Name, left.Type, left.Device.Name, other.Claim, two.Type)
		}
	}
	return Record{}, nil
}

// clash finds steps of two claims whose plugins can't work on the device that both are given; nil if there are none.
func clash(mine, other []cnichain.Plan) (ours, theirs *cnichain.PlanStep) {
	for i := range mine {
		for j := range mine[i].Steps {
			for k := range other {
				for l := range other[k].Steps {
					if ours, theirs = &mine[i].Steps[j], &other[k].Steps[l]; ours != theirs && ours.Clashes(theirs) {
						return ours, theirs
					}
				}
			}
		}
	}
	return nil, nil
}

// selfConflict says whether a claim was given devices that exclude each other.
func selfConflict(record *Record) error {
	for i := range record.Devices {
		for j := range record.Devices[:i] {
			left, other := &record.Devices[j], &record.Devices[i]
			if reason := exclusionReason(left, other); reason != "" {
				return fmt.Errorf("requests %s and %s were given %s and %s: %s; delete the claim to have others "+
					"allocated",
					left.Request, other.Request, left.Name, other.Name, reason)
			}
		}
	}
	if left, other := clash(record.Plans, record.Plans); left != nil {
		return fmt.Errorf("steps %q and %q were given one device, %s, and the schemas of %s and %s say that they "+
			"can't share one; delete the claim to have others allocated",
			left.Name, other.Name, left.Device.Name, left.Type, other.Type)
	}
	return nil
}

// exclusionReason says why two devices may not be held at once; empty if they may.
func exclusionReason(left, other *HeldDevice) string {
	switch {
	case Identity(left.Facts) == Identity(other.Facts):
		return exclusionReasonOnDevice(left, other)
	case isFunctionOf(left, other) && other.Exclusive:
		return fmt.Sprintf("%s takes the whole physical function, with its virtual functions", other.Name)
	case isFunctionOf(other, left) && left.Exclusive:
		return fmt.Sprintf("%s takes the whole physical function, with its virtual functions", left.Name)
	}
	return ""
}

// exclusionReasonOnDevice is apart for two entries of one device.
func exclusionReasonOnDevice(left, other *HeldDevice) string {
	for _, held := range []*HeldDevice{left, other} {
		if held.Exclusive {
			return fmt.Sprintf("%s takes the whole device", held.Name)
		}
	}
	if left.Persona == nil || other.Persona == nil || left.Name == other.Name {
		return ""
	}
	if group := left.Persona.ExclusionGroup; group != "" && group == other.Persona.ExclusionGroup {
		return fmt.Sprintf("both are of the exclusion group %s", group)
	}
	return ""
}

// isFunctionOf says whether a device is a virtual function of another one.
func isFunctionOf(function, physical *HeldDevice) bool {
	return function.Facts.PFAddress != "" && function.Facts.PFAddress == physical.Facts.PCIAddress
}

// capacityExceeded says whether a claim takes more of a device that is shared than is left of it, or less than its
// policy says that a claim takes. Held are all other claims.
func capacityExceeded(record *Record, held ...map[string]Record) error {
	for i := range record.Devices {
		device := &record.Devices[i]
		if device.Exclusive || device.Persona == nil {
			continue
		}
		for _, counter := range slices.Sorted(maps.Keys(device.Persona.ConsumePerAllocation)) {
			least, taken := device.Persona.ConsumePerAllocation[counter], consumes(device, counter)
			if taken.Cmp(least) < 0 {
				return fmt.Errorf("the claim was given %s of %s of device %s, and policy %s says that it takes %s: "+
					"delete the claim to have it allocated anew",
					taken.String(), counter, device.Name, device.Persona.Policy, least.String())
			}
		}
		for _, capacity := range device.Persona.Capacity {
			total := consumed(device, capacity.Name, record, held...)
			if total.Cmp(capacity.Value) > 0 {
				return fmt.Errorf("device %s of pool %s has %s of %s, and with this claim %s would be taken: wait "+
					"until others are released",
					device.Name, device.Pool, capacity.Value.String(), capacity.Name, total.String())
			}
		}
	}
	return nil
}

// consumed is what a claim and all others take of a counter of a device.
func consumed(
	device *HeldDevice, counter string, record *Record, held ...map[string]Record,
) resource.Quantity {
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

// consumes is what the claim takes of one of the device's counters.
func consumes(h *HeldDevice, counter string) resource.Quantity {
	return h.Consumed[resourceapi.QualifiedName(policyapi.QualifiedName(counter))]
}
