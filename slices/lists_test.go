package slices_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// With list attributes, a list replaces the booleans and the string. It contains the installed plugins in policy order.
func TestListAttributes(t *testing.T) {
	features := draslices.Features{CNIBinaries: sets.New("sriov", "host-device"), ListAttributes: true}
	result := buildWith(t, features, pf("enp3s0f0", 1),
		vf(
			`{supportedCNIPlugins: [{name: sriov, exclusive: true}, {name: macvlan, exclusive: true}, {name: `+
				`host-device, exclusive: true}]}`,
		))
	attributes := result.Entries[0].Spec.Attributes
	want := resourceapi.DeviceAttribute{StringValues: []string{"sriov", "host-device"}}
	if diff := cmp.Diff(want, attributes[policy.SupportedCNIs]); diff != "" {
		t.Errorf("supportedCNIs (-want +got):\n%s", diff)
	}
	for name := range attributes {
		if strings.HasPrefix(string(name), v1alpha1.CNIDomain+"/") {
			t.Errorf("unexpected attribute %s", name)
		}
	}
}

// An empty list must not be published, since the API rejects it.
func TestNoPluginIsNoList(t *testing.T) {
	result := buildWith(t, draslices.Features{ListAttributes: true}, nics(), passthroughPolicy)
	if value, ok := result.Entries[0].Spec.Attributes[policy.SupportedCNIs]; ok {
		t.Errorf("supportedCNIs = %v, want no such attribute", value)
	}
}

// Classes read the list, so an entry with too many attributes keeps it. An entry with a list has the same limit as an
// entry with booleans, which loses its string first.
func TestAttributeBudgetWithLists(t *testing.T) {
	lists := features()
	lists.ListAttributes = true
	has := func(n int) string {
		result := buildWith(t, lists, nics(), budget(n))
		var got []string
		for _, e := range result.Entries {
			got = append(got, fmt.Sprintf("%d attributes, list %t, pcieRoot %t",
				len(e.Spec.Attributes), e.Spec.Attributes[policy.SupportedCNIs].StringValues != nil,
				e.Spec.Attributes[policy.LegacyPCIeRoot].StringValue != nil))
		}
		for _, p := range result.Problems {
			got = append(got, p.String())
		}
		return strings.Join(got, "\n")
	}
	for n, want := range map[int]string{
		14: "32 attributes, list true, pcieRoot true",
		15: "32 attributes, list true, pcieRoot false",
		16: "policy policy-0: device eth1: its entry eth1 is not published: it has 33 attributes and capacities, 17 " +
			"of them from the policy, and the limit is 32: remove additional or requested attributes, plugins or " +
			"counters",
	} {
		if diff := cmp.Diff(want, has(n)); diff != "" {
			t.Errorf("%d additional attributes (-want +got):\n%s", n, diff)
		}
	}
}

// The API also limits the number of values in all attributes, including lists. A policy with the maximum number of
// plugins and attributes stays within this limit.
func TestManyPluginsInAList(t *testing.T) {
	lists := draslices.Features{CNIBinaries: sets.New[string](), ListAttributes: true}
	var plugins []string
	for i := range 16 {
		name := fmt.Sprintf("plugin-%d", i)
		lists.CNIBinaries.Insert(name)
		plugins = append(plugins, fmt.Sprintf("{name: %s, exclusive: true}", name))
	}
	spec := strings.Replace(budget(15), "{name: host-device, exclusive: true}", strings.Join(plugins, ", "), 1)
	result := buildWith(t, lists, nics(), spec) // also validates the result
	if e := result.Entries[0].Spec; len(e.Attributes) != 32 ||
		len(e.Attributes[policy.SupportedCNIs].StringValues) != 16 {
		t.Errorf("got %d attributes, want 32; plugins: %v", len(e.Attributes), e.Attributes[policy.SupportedCNIs])
	}
}

// With list attributes, the standard NUMA node attribute is also a list: the device's own node comes first, followed by
// equally near nodes.
func TestNUMANodesInAList(t *testing.T) {
	near := nic("eth1")
	near.NUMANode, near.NUMANodes = 1, []int{1, 0}
	alone, none := nic("eth2"), nic("eth3")
	alone.NUMANode, none.NUMANode = 3, discovery.None
	lists := features()
	lists.ListAttributes = true
	for _, test := range []struct {
		features draslices.Features
		want     []resourceapi.DeviceAttribute
	}{
		{lists, []resourceapi.DeviceAttribute{{IntValues: []int64{1, 0}}, {IntValues: []int64{3}}, {}}},
		{features(), []resourceapi.DeviceAttribute{{IntValue: ptr.To(int64(1))}, {IntValue: ptr.To(int64(3))}, {}}},
	} {
		result := buildWith(t, test.features, []discovery.Device{near, alone, none}, passthroughPolicy)
		var got []resourceapi.DeviceAttribute
		for _, e := range result.Entries {
			got = append(got, e.Spec.Attributes["resource.kubernetes.io/numaNode"])
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("with lists %t (-want +got):\n%s", test.features.ListAttributes, diff)
		}
	}
	near.NUMANodes = []int{1, 0, 2, 3, 4, 5} // together with the plugins, more values than the API allows
	var plugins []string
	for i := range 16 {
		lists.CNIBinaries.Insert(fmt.Sprintf("plugin-%d", i))
		plugins = append(plugins, fmt.Sprintf("{name: plugin-%d, exclusive: true}", i))
	}
	many := strings.Replace(budget(15), "{name: host-device, exclusive: true}", strings.Join(plugins, ", "), 1)
	result := buildWith(t, lists, []discovery.Device{near}, many) // also validates the result
	got := result.Entries[0].Spec.Attributes["resource.kubernetes.io/numaNode"].IntValues
	if diff := cmp.Diff([]int64{1}, got); diff != "" {
		t.Errorf("with many values (-want +got):\n%s", diff)
	}
}
