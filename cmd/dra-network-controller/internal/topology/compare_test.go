package topology

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain/deviceclasses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// classesOf returns the classes for a topology in which every step attaches an interface.
func classesOf(topology *v1alpha1.NetworkTopology, listAttributes bool) []resourceapi.DeviceClass {
	return deviceclasses.Of(topology, func(string) bool { return true }, listAttributes)
}

func TestCompare(t *testing.T) {
	topology := parse(t, bonded)
	topology.Spec.Description = "two functions, bonded"
	// Each test changes vf0, an existing class that is also one of the topology's desired classes.
	tests := map[string]struct {
		change func(class *resourceapi.DeviceClass)
		gone   bool
		want   string
	}{
		"as wanted":             {want: "ready"},
		"missing":               {gone: true, want: "create"},
		"label of others added": {change: func(c *resourceapi.DeviceClass) { c.Labels["other"] = "x" }, want: "ready"},
		"parameters in other order": {change: func(c *resourceapi.DeviceClass) {
			c.Spec.Config[0].Opaque.Parameters.Raw = []byte(`{"step": "vf0", "networkTopologyRef": {"name": ` +
				`"bonded"}, "kind": "StepParameters", "apiVersion": "networking.dra.io/v1alpha1"}`)
		}, want: "ready"},
		"label lost": {change: func(c *resourceapi.DeviceClass) { delete(c.Labels, v1alpha1.LabelTopologyUID) },
			want: "repair"},
		"description of the topology lost": {change: func(c *resourceapi.DeviceClass) { c.Annotations = nil },
			want: "repair"},
		"annotation of others added": {change: func(c *resourceapi.DeviceClass) { c.Annotations["other"] = "x" },
			want: "ready"},
		"owner in the other version": {change: func(c *resourceapi.DeviceClass) {
			c.OwnerReferences[0].APIVersion = "networking.dra.io/v1beta1"
		}, want: "repair"},
		"owner lost": {change: func(c *resourceapi.DeviceClass) { c.OwnerReferences = nil }, want: "repair"},
		"selector lost": {change: func(c *resourceapi.DeviceClass) { c.Spec.Selectors = c.Spec.Selectors[1:] },
			want: "repair"},
		"selector added": {change: func(c *resourceapi.DeviceClass) {
			c.Spec.Selectors = append(c.Spec.Selectors,
				resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: "false"}})
		}, want: "repair"},
		"config of another driver added": {change: func(c *resourceapi.DeviceClass) {
			c.Spec.Config = append(c.Spec.Config, resourceapi.DeviceClassConfiguration{})
		}, want: "repair"},
		"an extended resource added by a user": {change: func(c *resourceapi.DeviceClass) {
			c.Spec.ExtendedResourceName = ptr.To("example.com/x")
		}, want: "repair"},
		"parameters changed": {change: func(c *resourceapi.DeviceClass) {
			c.Spec.Config[0].Opaque.Parameters = runtime.RawExtension{Raw: []byte(`{"step": "vf1"}`)}
		}, want: "repair"},
		"created by a user": {change: func(c *resourceapi.DeviceClass) { c.Labels, c.OwnerReferences = nil, nil },
			want: "taken"},
		"of a topology of the same name that is gone": {change: func(c *resourceapi.DeviceClass) {
			c.Labels[v1alpha1.LabelTopologyUID], c.OwnerReferences[0].UID = "uid-0", "uid-0"
		}, want: "taken"},
		"owned by another, with our label": {change: func(c *resourceapi.DeviceClass) { c.OwnerReferences[0].UID = "uid-0" }, want: "taken"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			existing := classesOf(topology, false)
			existing[0].UID, existing[0].ResourceVersion = "class-uid", "42"
			if test.change != nil {
				test.change(&existing[0])
			}
			if test.gone {
				existing = existing[1:]
			}
			if diff := cmp.Diff(test.want, verb(Compare(topology, classesOf(topology, false), existing),
				"bonded-vf0")); diff != "" {
				t.Errorf("wrong change (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompareRepairsTheVersionThatItSaw(t *testing.T) {
	topology := parse(t, bonded)
	existing := classesOf(topology, false)
	existing[1].Spec.Selectors, existing[1].UID, existing[1].ResourceVersion = nil, "class-uid", "42"
	changes := Compare(topology, classesOf(topology, false), existing)
	want := classesOf(topology, false)[1]
	want.UID, want.ResourceVersion = "class-uid", "42"
	if diff := cmp.Diff(Changes{Repair: []Repair{{Found: existing[1], Repaired: want}}, Ready: []string{"bonded-vf0"}},
		changes); diff != "" {
		t.Errorf("wrong changes (-want +got):\n%s", diff)
	}
}

// A repair replaces the topology's owner reference and keeps the owner references of other objects.
func TestRepairedOwners(t *testing.T) {
	want := classesOf(parse(t, bonded), true)[0]
	found := *want.DeepCopy()
	found.OwnerReferences[0].Controller = ptr.To(false)
	found.OwnerReferences = append(found.OwnerReferences, metav1.OwnerReference{UID: "other"})
	var owners []string
	for _, owner := range repaired(&found, &want).OwnerReferences {
		owners = append(owners, fmt.Sprintf("%s %t", owner.UID, ptr.Deref(owner.Controller, false)))
	}
	if diff := cmp.Diff([]string{"other false", string(want.OwnerReferences[0].UID) + " true"}, owners); diff != "" {
		t.Errorf("wrong owners (-want +got):\n%s", diff)
	}
}

func TestCompareDeletesOnlyItsOwn(t *testing.T) {
	topology := parse(t, bonded)
	existing := append(classesOf(topology, false),
		resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu.example.com"}},
		// A copy made by a user has our labels, but no owner.
		resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "copied",
			Labels: map[string]string{v1alpha1.LabelTopologyUID: "uid-1"}}})
	changes := Compare(topology, nil, existing)
	var deleted []string
	for _, class := range changes.Delete {
		deleted = append(deleted, class.Name)
	}
	if diff := cmp.Diff([]string{"bonded-vf0", "bonded-vf1"}, deleted); diff != "" {
		t.Errorf("wrong deletions (-want +got):\n%s", diff)
	}
	if len(changes.Create)+len(changes.Repair)+len(changes.Taken)+len(changes.Ready) > 0 {
		t.Errorf("a topology that is not accepted has changes other than deletions: %+v", changes)
	}
}

// verb returns what the changes do with the named class (create, repair, delete...), or "nothing".
func verb(changes Changes, name string) string {
	for verb, classes := range map[string][]resourceapi.DeviceClass{
		"create": changes.Create, "delete": changes.Delete, "taken": changes.Taken,
	} {
		for _, class := range classes {
			if class.Name == name {
				return verb
			}
		}
	}
	for i := range changes.Repair {
		if changes.Repair[i].Found.Name == name {
			return "repair"
		}
	}
	for _, ready := range changes.Ready {
		if ready == name {
			return "ready"
		}
	}
	return "nothing"
}

func TestConcerned(t *testing.T) {
	topologies := []v1alpha1.NetworkTopology{
		{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "uid-b"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "a-b", UID: "uid-ab"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid-n"}, Spec: v1alpha1.NetworkTopologySpec{
			Steps: []v1alpha1.Step{{Name: "s", ExtendedResourceName: "example.com/x"}}}},
	}
	tests := map[string]struct {
		class metav1.ObjectMeta
		want  []string
	}{
		"by name, also of two": {metav1.ObjectMeta{Name: "a-b-c"}, []string{"a", "a-b"}},
		"by label, under another name": {metav1.ObjectMeta{Name: "x",
			Labels: map[string]string{v1alpha1.LabelTopologyUID: "uid-b"}}, []string{"b"}},
		"by owner": {classesOf(
			&v1alpha1.NetworkTopology{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "uid-b"},
				Spec: v1alpha1.NetworkTopologySpec{Steps: []v1alpha1.Step{{Name: "s"}}}}, false,
		)[0].ObjectMeta, []string{"b"}},
		"by owner that is gone": {classesOf(
			&v1alpha1.NetworkTopology{ObjectMeta: metav1.ObjectMeta{Name: "z", UID: "uid-z"},
				Spec: v1alpha1.NetworkTopologySpec{Steps: []v1alpha1.Step{{Name: "s"}}}}, false,
		)[0].ObjectMeta, []string{"z"}},
		"by owner that is gone, of the other version": {metav1.ObjectMeta{Name: "q",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "networking.dra.io/v1beta1", Kind: "NetworkTopology",
				Name: "z", UID: "uid-z", Controller: ptr.To(true)}}}, []string{"z"}},
		"by owner of that kind elsewhere": {metav1.ObjectMeta{Name: "q",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "NetworkTopology", Name: "q",
				Controller: ptr.To(true)}}}, nil},
		"of another driver": {metav1.ObjectMeta{Name: "gpu.example.com"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, concerned(&test.class, topologies)); diff != "" {
				t.Errorf("wrong topologies (-want +got):\n%s", diff)
			}
		})
	}
	named := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu.example.com"},
		Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: ptr.To("example.com/x")}}
	if diff := cmp.Diff([]string{"n"}, concerned(named, topologies)); diff != "" {
		t.Errorf("wrong topologies of an extended resource (-want +got):\n%s", diff)
	}
}

// If several classes have the same extended resource name, Kubernetes uses the newest one. Therefore, only one class
// gets the name, regardless of which of two topologies is reconciled first. Otherwise, pods that already use the name
// would suddenly get other devices.
func TestOneClassHasAnExtendedResource(t *testing.T) {
	const name = "example.com/vf"
	topology := parse(t, netSteps)
	topology.Spec.Steps[0].ExtendedResourceName = name
	mine := classesOf(topology, false)
	other := parse(t, netSteps)
	other.Name, other.UID = "other", "uid-2"
	other.Spec.Steps[1].ExtendedResourceName = name
	theirs := classesOf(other, false)[1]
	aged := func(class resourceapi.DeviceClass, seconds int64) resourceapi.DeviceClass {
		class.CreationTimestamp = metav1.Unix(seconds, 0)
		return class
	}
	unnamed := mine[0]
	unnamed.Spec.ExtendedResourceName = nil
	foreign := resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "theirs"},
		Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: ptr.To(name)}}
	copied, orphaned := mine[0], mine[0]
	copied.Name, copied.OwnerReferences, orphaned.OwnerReferences = "copied", nil, nil
	tests := map[string]struct {
		existing []resourceapi.DeviceClass
		want     string // what happens to net-a
		named    string // the class that already has the name
	}{
		"free":  {nil, "create", ""},
		"ours":  {[]resourceapi.DeviceClass{aged(mine[0], 5)}, "ready", ""},
		"taken": {[]resourceapi.DeviceClass{aged(theirs, 5)}, "create", "other-b"},
		"taken, and ours exists": {[]resourceapi.DeviceClass{aged(unnamed, 5), aged(theirs, 9)},
			"ready", "other-b"},
		"both have it, ours is older": {[]resourceapi.DeviceClass{aged(mine[0], 5), aged(theirs, 9)},
			"ready", ""},
		"both have it, ours is younger": {[]resourceapi.DeviceClass{aged(mine[0], 9), aged(theirs, 5)},
			"repair", "other-b"},
		"both have it since the same second": {[]resourceapi.DeviceClass{aged(mine[0], 5), aged(theirs, 5)},
			"ready", ""},
		"a user's, which is younger": {[]resourceapi.DeviceClass{aged(mine[0], 5), aged(foreign, 9)},
			"repair", "theirs"},
		"a user's copy of ours": {[]resourceapi.DeviceClass{aged(mine[0], 5), aged(copied, 9)},
			"repair", "copied"},
		"ours has lost its owner": {[]resourceapi.DeviceClass{aged(orphaned, 5)}, "repair", ""},
		"free again":              {[]resourceapi.DeviceClass{aged(unnamed, 5)}, "repair", ""},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			changes := Compare(topology, mine, test.existing)
			var named string
			for _, class := range changes.Named {
				named += class.Name
			}
			if got := verb(changes, "net-a"); got != test.want || named != test.named {
				t.Errorf("net-a: got %s, extended resource name at %q; want %s, %q", got, named, test.want, test.named)
			}
			for _, class := range changes.Create {
				if class.Name == "net-a" && (class.Spec.ExtendedResourceName == nil) != (test.named != "") {
					t.Errorf("net-a is created with an unexpected extended resource name: %v",
						class.Spec.ExtendedResourceName)
				}
			}
		})
	}
}
