package topology

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain/deviceclasses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Changes are the actions that give a topology its desired classes, and the existing classes that conflict with them.
// Lists are sorted by name.
type Changes struct {
	// Create contains desired classes that do not exist yet.
	Create []resourceapi.DeviceClass
	// Repair contains desired classes that exist but have other values.
	Repair []Repair
	// Delete contains existing classes that belong to the topology but are not desired.
	Delete []resourceapi.DeviceClass
	// Taken contains existing classes that have the same name as a desired class but belong to another owner.
	Taken []resourceapi.DeviceClass
	// Named contains existing classes that have the same extendedResourceName as a desired class. The desired class is
	// created without that name; otherwise, Kubernetes would map the resource to the newest class, and pods would get
	// different devices.
	Named []resourceapi.DeviceClass
	// Ready lists the desired classes that already exist with all desired values, by name.
	Ready []string
}

// Repair pairs an existing class with a copy that has the desired values.
type Repair struct {
	Found, Repaired resourceapi.DeviceClass
}

// Compare returns the changes that give the topology its desired classes. existing contains all classes in the cluster.
func Compare(topology *v1alpha1.NetworkTopology, wanted, existing []resourceapi.DeviceClass) Changes {
	var changes Changes
	wanted, existing = sorted(wanted), sorted(existing)
	wanted, changes.Named = withoutTakenNames(topology, wanted, existing)
	byName := map[string]*resourceapi.DeviceClass{}
	for i := range wanted {
		byName[wanted[i].Name] = &wanted[i]
	}
	for i := range existing {
		found := &existing[i]
		want := byName[found.Name]
		delete(byName, found.Name)
		switch ours := belongsTo(found, topology); {
		case want == nil && metav1.GetControllerOf(found) != nil && ours:
			changes.Delete = append(changes.Delete, *found)
		case want == nil:
		case !ours:
			changes.Taken = append(changes.Taken, *found)
		case isAsWanted(found, want):
			changes.Ready = append(changes.Ready, found.Name)
		default:
			changes.Repair = append(changes.Repair, Repair{Found: *found, Repaired: repaired(found, want)})
		}
	}
	for _, missing := range slices.Sorted(maps.Keys(byName)) {
		changes.Create = append(changes.Create, *byName[missing])
	}
	changes.Named = sorted(changes.Named)
	return changes
}

func sorted(classes []resourceapi.DeviceClass) []resourceapi.DeviceClass {
	return slices.SortedFunc(slices.Values(classes),
		func(a, b resourceapi.DeviceClass) int { return cmp.Compare(a.Name, b.Name) })
}

// withoutTakenNames returns the desired classes without the extended resource names that other classes already have. It
// also returns those other classes. kube-scheduler maps a resource to a single class, the newest one (KEP-5004).
// Without this check, a new topology would take over the pods that request another topology's resource.
func withoutTakenNames(
	topology *v1alpha1.NetworkTopology, wanted, existing []resourceapi.DeviceClass,
) (free, holders []resourceapi.DeviceClass) {
	free = slices.Clone(wanted)
	isOurs := func(class *resourceapi.DeviceClass) bool {
		// If a user has copied our class, the copy has our label, but a different name.
		isCopy := metav1.GetControllerOf(class) == nil && !slices.ContainsFunc(wanted,
			func(want resourceapi.DeviceClass) bool { return want.Name == class.Name })
		return belongsTo(class, topology) && !isCopy
	}
	for i := range free {
		if holder := holderOfName(&free[i], existing, isOurs); holder != nil {
			free[i].Spec.ExtendedResourceName = nil
			holders = append(holders, *holder)
		}
	}
	return free, holders
}

// holderOfName returns the class that already has the desired class's extended resource name, or nil if the name is
// free. A class that was not created for a topology always takes precedence. Among classes created for topologies, the
// one that already has the name takes precedence. If both have it, the older one does, so that concurrent
// reconciliations come to the same result.
func holderOfName(
	want *resourceapi.DeviceClass, existing []resourceapi.DeviceClass, isOurs func(*resourceapi.DeviceClass) bool,
) *resourceapi.DeviceClass {
	name := want.Spec.ExtendedResourceName
	if name == nil {
		return nil
	}
	hasName := func(class *resourceapi.DeviceClass) bool {
		return ptr.Deref(class.Spec.ExtendedResourceName, "") == *name
	}
	var mine *resourceapi.DeviceClass
	for i := range existing {
		if class := &existing[i]; class.Name == want.Name && isOurs(class) && hasName(class) {
			mine = class
		}
	}
	for i := range existing {
		class := &existing[i]
		if hasName(class) && !isOurs(class) && (mine == nil || topologyOf(class) == nil || isOlder(class, mine)) {
			return class
		}
	}
	return nil
}

// isOlder compares two classes by creation time, which has a resolution of one second, and then by name.
func isOlder(a, b *resourceapi.DeviceClass) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// belongsTo reports whether a class was created for this topology, rather than for a deleted one with the same name.
// Either the owner reference or the label is sufficient, so that a class that has lost one of them is repaired. To
// delete a class, the owner reference is required, because users who copy a class also copy its label.
func belongsTo(class *resourceapi.DeviceClass, topology *v1alpha1.NetworkTopology) bool {
	if owner := metav1.GetControllerOf(class); owner != nil {
		return owner.UID == topology.UID
	}
	return topology.UID != "" && class.Labels[v1alpha1.LabelTopologyUID] == string(topology.UID)
}

// isAsWanted reports whether a class has all desired values. Labels and annotations from other managers are ignored.
// The selectors and configurations must match exactly: an additional selector would hide devices, and an additional
// configuration would change the attached interfaces.
func isAsWanted(found, want *resourceapi.DeviceClass) bool {
	for key, value := range want.Labels {
		if found.Labels[key] != value {
			return false
		}
	}
	const description = v1alpha1.AnnotationDescription
	return found.Annotations[description] == want.Annotations[description] &&
		equality.Semantic.DeepEqual(metav1.GetControllerOf(found), metav1.GetControllerOf(want)) &&
		ptr.Equal(found.Spec.ExtendedResourceName, want.Spec.ExtendedResourceName) &&
		equality.Semantic.DeepEqual(found.Spec.Selectors, want.Spec.Selectors) &&
		slices.EqualFunc(found.Spec.Config, want.Spec.Config, sameConfig)
}

// repaired returns a copy of found with all desired values. Labels, annotations and owners from other managers are
// kept.
func repaired(found, want *resourceapi.DeviceClass) resourceapi.DeviceClass {
	class := *found.DeepCopy()
	for key, value := range want.Labels {
		metav1.SetMetaDataLabel(&class.ObjectMeta, key, value)
	}
	delete(class.Annotations, v1alpha1.AnnotationDescription)
	for key, value := range want.Annotations {
		metav1.SetMetaDataAnnotation(&class.ObjectMeta, key, value)
	}
	class.OwnerReferences = append(slices.DeleteFunc(class.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return ptr.Deref(owner.Controller, false) || slices.ContainsFunc(want.OwnerReferences,
			func(other metav1.OwnerReference) bool { return other.UID == owner.UID })
	}), want.OwnerReferences...)
	class.Spec.Selectors, class.Spec.Config = want.Spec.Selectors, want.Spec.Config
	class.Spec.ExtendedResourceName = want.Spec.ExtendedResourceName
	return class
}

// sameConfig compares the parameters as JSON values, because the API server may reorder keys.
func sameConfig(a, b resourceapi.DeviceClassConfiguration) bool {
	if a.Opaque == nil || b.Opaque == nil {
		return a.Opaque == b.Opaque
	}
	var left, right any
	if json.Unmarshal(a.Opaque.Parameters.Raw, &left) != nil || json.Unmarshal(b.Opaque.Parameters.Raw, &right) != nil {
		return false
	}
	return a.Opaque.Driver == b.Opaque.Driver && reflect.DeepEqual(left, right)
}

// Orphans returns the classes that were created for topologies with the given name, except the classes of the current
// topology. uid is the UID of the current topology, or empty if it does not exist. Classes that are already being
// deleted and are waiting for a finalizer are omitted.
//
// Ownership is determined by UID: a topology that was deleted and recreated with the same name does not own its
// predecessor's classes, even though labels and names match.
func Orphans(name string, uid types.UID, existing []resourceapi.DeviceClass) []resourceapi.DeviceClass {
	var orphans []resourceapi.DeviceClass
	for i := range existing {
		if owner := topologyOf(&existing[i]); owner != nil && owner.Name == name && owner.UID != uid &&
			existing[i].DeletionTimestamp == nil {
			orphans = append(orphans, existing[i])
		}
	}
	return sorted(orphans)
}

// topologyOf returns the owner reference to the topology that a class was created for, or nil if there is none. It
// accepts all served versions, so that controllers from different releases recognize each other's classes.
func topologyOf(class metav1.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(class)
	if owner == nil || owner.Kind != deviceclasses.OwnerKind || !v1alpha1.IsServed(owner.APIVersion) {
		return nil
	}
	return owner
}

// concerned returns the names of the topologies to reconcile when a class changes: the topologies that own, owned or
// need the class, and topologies that need its name or its extended resource. Matching by name prefix finds classes
// that have no owner but have the same name as a desired class. concerned may return unaffected topologies; a
// reconciliation without changes does not send any requests.
func concerned(class metav1.Object, topologies []v1alpha1.NetworkTopology) []string {
	var names []string
	owner := metav1.GetControllerOf(class)
	extendedResource := ""
	if class, ok := class.(*resourceapi.DeviceClass); ok {
		extendedResource = ptr.Deref(class.Spec.ExtendedResourceName, "")
	}
	for i := range topologies {
		topology := &topologies[i]
		mine := owner != nil && owner.UID == topology.UID ||
			class.GetLabels()[v1alpha1.LabelTopologyUID] == string(topology.UID)
		wantsName := extendedResource != "" && slices.ContainsFunc(topology.Spec.Steps,
			func(step v1alpha1.Step) bool { return step.ExtendedResourceName == extendedResource })
		if mine || wantsName || strings.HasPrefix(class.GetName(), topology.Name+"-") {
			names = append(names, topology.Name)
		}
	}
	if owner := topologyOf(class); owner != nil && !slices.Contains(names, owner.Name) {
		names = append(names, owner.Name)
	}
	slices.Sort(names)
	return names
}

func holder(class *resourceapi.DeviceClass) string {
	if owner := metav1.GetControllerOf(class); owner != nil {
		return fmt.Sprintf("%s %s", owner.Kind, owner.Name)
	}
	return "another owner"
}
