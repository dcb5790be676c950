package exposure

import (
	"cmp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// ifName is the attribute that two entries of one device have in common.
const ifName resourceapi.QualifiedName = v1alpha1.AttributeDomain + "/ifName"

// Offers is what is published in the name of a policy.
type Offers struct {
	// Devices are counted once, also those with several entries.
	Devices int32
	// Nodes are those with such a device.
	Nodes int32
}

// Transform reduces a ResourceSlice to what Count reads: of a large cluster, the slices are most of what there is to
// remember, and what changes in them is mostly something else.
func Transform(object any) (any, error) {
	slice, ok := object.(*resourceapi.ResourceSlice)
	if !ok {
		return object, nil
	}
	slice.ManagedFields, slice.Labels, slice.Annotations, slice.OwnerReferences = nil, nil, nil, nil
	slice.Spec.SharedCounters = nil
	for i := range slice.Spec.Devices {
		d := &slice.Spec.Devices[i]
		reduced := resourceapi.Device{Name: d.Name}
		reduced.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
		for _, name := range []resourceapi.QualifiedName{ifName, policy.ExposurePolicy} {
			if value, ok := d.Attributes[name]; ok {
				reduced.Attributes[name] = value
			}
		}
		if hasPlugin(d) {
			reduced.Attributes[policy.SupportedCNIs] = resourceapi.DeviceAttribute{}
		}
		if nameOf(d) == "" {
			reduced.Taints = d.Taints
		}
		slice.Spec.Devices[i] = reduced
	}
	return slice, nil
}

// Count returns what the slices of the driver offer by the name of the policy, and how many devices don't name theirs:
// those of drivers that are older than the attribute, those with more attributes than the API takes, and those of
// policies whose name is too long for one. Devices with a taint and no policy are not counted: a claim holds them and
// no policy offers them any more. Nor are devices without a CNI plugin, which no DeviceClass picks: their node has none
// of those that the policy names.
func Count(published []*resourceapi.ResourceSlice) (byPolicy map[string]Offers, unnamed int) {
	published = slices.SortedFunc(slices.Values(published), func(a, b *resourceapi.ResourceSlice) int {
		return cmp.Or(cmp.Compare(nodeOf(a), nodeOf(b)), cmp.Compare(a.Spec.Pool.Name, b.Spec.Pool.Name),
			-cmp.Compare(a.Spec.Pool.Generation, b.Spec.Pool.Generation))
	})
	byPolicy = map[string]Offers{}
	lastNode := map[string]string{}
	type entry struct{ policy, device string }
	var newest *resourceapi.ResourceSlice // of the pool: older generations are on their way out
	var seen map[entry]bool               // of the pool, which has all entries of its devices
	for _, slice := range published {
		if newest == nil || !samePool(newest, slice) {
			newest, seen = slice, map[entry]bool{}
		}
		if slice.Spec.Pool.Generation < newest.Spec.Pool.Generation {
			continue
		}
		for j := range slice.Spec.Devices {
			d := &slice.Spec.Devices[j]
			e := entry{policy: nameOf(d), device: cmp.Or(ptr.Deref(d.Attributes[ifName].StringValue, ""), d.Name)}
			switch {
			case e.policy == "" && len(d.Taints) == 0:
				unnamed++
			case e.policy == "" || seen[e] || !hasPlugin(d):
			default:
				seen[e] = true
				offers := byPolicy[e.policy]
				offers.Devices++
				if node := nodeOf(slice); offers.Nodes == 0 || lastNode[e.policy] != node {
					lastNode[e.policy] = node
					offers.Nodes++
				}
				byPolicy[e.policy] = offers
			}
		}
	}
	return byPolicy, unnamed
}

func samePool(a, b *resourceapi.ResourceSlice) bool {
	return nodeOf(a) == nodeOf(b) && a.Spec.Pool.Name == b.Spec.Pool.Name
}

func nodeOf(slice *resourceapi.ResourceSlice) string { return ptr.Deref(slice.Spec.NodeName, "") }

// hasPlugin reports whether a device is published with a CNI plugin, in either form (slices, addPlugins).
func hasPlugin(d *resourceapi.Device) bool {
	_, listed := d.Attributes[policy.SupportedCNIs]
	for name := range d.Attributes {
		listed = listed || strings.HasPrefix(string(name), v1alpha1.CNIDomain+"/")
	}
	return listed
}

// nameOf returns the policy that a device names; empty if it names none.
func nameOf(d *resourceapi.Device) string {
	return ptr.Deref(d.Attributes[policy.ExposurePolicy].StringValue, "")
}
