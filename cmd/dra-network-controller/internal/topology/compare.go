package topology

import (
	"cmp"
	"encoding/json"
	"fmt"
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

// Changes are what makes the classes of the cluster those of a topology. Lists are sorted by name.
type Changes struct {
	// Create are wanted classes that don't exist.
	Create []resourceapi.DeviceClass
	// Repair are wanted classes that exist and differ, with UID and resource version of what exists.
	Repair []resourceapi.DeviceClass
	// Strip are existing classes that have something which they should not have.
	Strip []Strip
	// Delete are existing classes of the topology that aren't wanted.
	Delete []resourceapi.DeviceClass
	// Taken are existing classes of somebody else that have the name of a wanted class.
	Taken []resourceapi.DeviceClass
	// Named are existing classes that have the name of an extended resource which a wanted class was to have. That one
	// does without: Kubernetes would give the resource to the class that was made last, and so to other pods' devices.
	Named []resourceapi.DeviceClass
	// Ready are the names of the wanted classes that exist as they should be.
	Ready []string
}

// Strip is what becomes of a class that has the name of an extended resource, or a description, which it should not
// have. What else differs is repaired later.
type Strip struct {
	Found, Without resourceapi.DeviceClass
}

// Compare returns what is to be done so that the topology has the wanted classes. existing are all classes of the
// cluster.
//
// Its cases, in the order of the switch: ours and not wanted, to be deleted, if the owner reference proves it; not
// wanted and not provably ours, which is left alone; wanted but somebody else's, which is reported and left alone; ours
// and right; ours with something that it may not have; ours and different. What no class of the cluster matches is
// created.
func Compare(topology *v1alpha1.NetworkTopology, wanted, existing []resourceapi.DeviceClass) Changes {
	var changes Changes
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
		case hasMore(found, want):
			changes.Strip = append(changes.Strip, stripOf(found, want))
		default:
			repaired := *want
			repaired.UID, repaired.ResourceVersion = found.UID, found.ResourceVersion
			changes.Repair = append(changes.Repair, repaired)
		}
	}
	for _, missing := range byName {
		changes.Create = append(changes.Create, *missing)
	}
	for _, list := range [][]resourceapi.DeviceClass{
		changes.Create, changes.Repair, changes.Delete, changes.Taken, changes.Named,
	} {
		slices.SortFunc(list, func(a, b resourceapi.DeviceClass) int { return cmp.Compare(a.Name, b.Name) })
	}
	slices.SortFunc(changes.Strip, func(a, b Strip) int { return cmp.Compare(a.Found.Name, b.Found.Name) })
	slices.Sort(changes.Ready)
	return changes
}

// withoutTakenNames returns the wanted classes without the names of extended resources that other classes have, and
// those others. kube-scheduler maps a resource to one class, and of several it takes the one that was made last
// (KEP-5004). Without this check a new topology would take over the pods that ask for the resource of another.
func withoutTakenNames(
	topology *v1alpha1.NetworkTopology, wanted, existing []resourceapi.DeviceClass,
) (free, holders []resourceapi.DeviceClass) {
	free = slices.Clone(wanted)
	isOurs := func(class *resourceapi.DeviceClass) bool {
		// A copy that somebody made of a class of ours has its label, and a name of its own.
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

// holderOfName returns the class that has the name of the extended resource which a wanted class is to have; nil if the
// name is free. A class that nobody made for a topology always comes first. Of two that were made for topologies it is
// the one that has the name, and the older one where both have it: two reconciles at once come to the same end.
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
		if hasName(class) && !isOurs(class) &&
			(mine == nil || topologyOf(class) == nil || isOlder(class, mine)) {
			return class
		}
	}
	return nil
}

// isOlder orders classes by the time at which they were made, which has seconds, and then by name.
func isOlder(a, b *resourceapi.DeviceClass) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// belongsTo reports whether a class was made for this very topology, not for one of the same name that is gone. One of
// the two marks is enough, so that a class that lost the other is repaired. To be deleted it needs the owner reference:
// the label is copied by whoever makes a class of his own from one of ours.
func belongsTo(class *resourceapi.DeviceClass, topology *v1alpha1.NetworkTopology) bool {
	if owner := metav1.GetControllerOf(class); owner != nil {
		return owner.UID == topology.UID
	}
	return topology.UID != "" && class.Labels[v1alpha1.LabelTopologyUID] == string(topology.UID)
}

// isAsWanted reports whether everything that we set is there. Labels and annotations of others are theirs. The lists of
// selectors and configuration must be equal as a whole: a selector more would hide devices, and a configuration more
// would change what the driver attaches.
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

// hasMore reports whether a class has the name of an extended resource, or a description, where the wanted one has
// none.
func hasMore(found, want *resourceapi.DeviceClass) bool {
	_, described := found.Annotations[v1alpha1.AnnotationDescription]
	return found.Spec.ExtendedResourceName != nil && want.Spec.ExtendedResourceName == nil ||
		described && want.Annotations[v1alpha1.AnnotationDescription] == ""
}

func stripOf(found, want *resourceapi.DeviceClass) Strip {
	without := found.DeepCopy()
	if want.Spec.ExtendedResourceName == nil {
		without.Spec.ExtendedResourceName = nil
	}
	if want.Annotations[v1alpha1.AnnotationDescription] == "" {
		delete(without.Annotations, v1alpha1.AnnotationDescription)
	}
	return Strip{Found: *found, Without: *without}
}

// sameConfig compares the parameters as JSON: an API server may write them in another order.
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

// Orphans returns the classes that were made for topologies of a name but not for the one that has it, which has the
// UID; empty if there is none. Those that are deleted already, and held by somebody's finalizer, need nothing more.
//
// The UID decides: a topology that was deleted and made again under its name owns none of the classes of the first,
// although labels and names are the same.
func Orphans(name string, uid types.UID, existing []resourceapi.DeviceClass) []resourceapi.DeviceClass {
	var orphans []resourceapi.DeviceClass
	for i := range existing {
		if owner := topologyOf(&existing[i]); owner != nil && owner.Name == name && owner.UID != uid &&
			existing[i].DeletionTimestamp == nil {
			orphans = append(orphans, existing[i])
		}
	}
	slices.SortFunc(orphans, func(a, b resourceapi.DeviceClass) int { return cmp.Compare(a.Name, b.Name) })
	return orphans
}

// topologyOf is the reference to the topology that a class was made for, nil if it wasn't made for one. The version in
// it is the one that a controller stored by: of two controllers, each knows the classes of the other.
func topologyOf(class metav1.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(class)
	if owner == nil || owner.Kind != deviceclasses.OwnerKind || !v1alpha1.IsServed(owner.APIVersion) {
		return nil
	}
	return owner
}

// concerned returns the names of the topologies that a class is, was or should be of, so that they are looked at again
// when it changes, also when it takes or frees a name that one of them wants, or when its topology is gone. The prefix
// finds classes that nobody owns and that have the name of a wanted class. It may name topologies without need; a look
// that changes nothing costs no request.
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

// holder says whose a class is.
func holder(class *resourceapi.DeviceClass) string {
	if owner := metav1.GetControllerOf(class); owner != nil {
		return fmt.Sprintf("%s %s", owner.Kind, owner.Name)
	}
	return "somebody else"
}
