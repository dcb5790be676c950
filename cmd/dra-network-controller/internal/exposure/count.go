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

// ifName is the attribute that is the same in all entries for a device.
const ifName resourceapi.QualifiedName = v1alpha1.AttributeDomain + "/ifName"

// Offers is the number of devices published under a policy.
type Offers struct {
	// Devices is the number of devices. A device with several entries is counted once.
	Devices int32
	// Nodes is the number of nodes that have at least one of these devices.
	Nodes int32
}

// Transform reduces a ResourceSlice to the fields that Count uses. In a large cluster, slices account for most of the
// cached data, and most changes to slices affect other fields.
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

// Count returns the offers for each policy, keyed by policy name, and the number of devices that do not name their
// policy. A device does not name its policy if the driver predates the attribute, the device already has the maximum
// number of attributes, or the policy's name is too long for an attribute. Count ignores devices with a taint and no
// policy: a claim still holds them, but they are no longer exposed by any policy. Count also ignores devices without a
// CNI plugin. No DeviceClass selects them, because none of the policy's plugins are installed on their node.
func Count(published []*resourceapi.ResourceSlice) (byPolicy map[string]Offers, unnamed int) {
	published = slices.SortedFunc(slices.Values(published), func(a, b *resourceapi.ResourceSlice) int {
		return cmp.Or(cmp.Compare(nodeOf(a), nodeOf(b)), cmp.Compare(a.Spec.Pool.Name, b.Spec.Pool.Name),
			-cmp.Compare(a.Spec.Pool.Generation, b.Spec.Pool.Generation))
	})
	byPolicy = map[string]Offers{}
	lastNode := map[string]string{}
	type entry struct{ policy, device string }
	var newest *resourceapi.ResourceSlice // a slice from the pool's newest generation; older ones are outdated
	var seen map[entry]bool               // entries seen in the pool, which contains all entries for its devices
	for _, slice := range published {
		if newest == nil || nodeOf(newest) != nodeOf(slice) || newest.Spec.Pool.Name != slice.Spec.Pool.Name {
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

func nodeOf(slice *resourceapi.ResourceSlice) string { return ptr.Deref(slice.Spec.NodeName, "") }

// hasPlugin reports whether a device is published with any CNI plugin, either in a list or as one attribute per plugin.
func hasPlugin(d *resourceapi.Device) bool {
	_, listed := d.Attributes[policy.SupportedCNIs]
	for name := range d.Attributes {
		listed = listed || strings.HasPrefix(string(name), v1alpha1.CNIDomain+"/")
	}
	return listed
}

// nameOf returns the name of the policy that exposes a device, or "" if the device does not name its policy.
func nameOf(d *resourceapi.Device) string {
	return ptr.Deref(d.Attributes[policy.ExposurePolicy].StringValue, "")
}
