package slices_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// In place of booleans and a string, there is one list: of what is installed, in the order of the policy.
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
			t.Errorf("there is also %s", name)
		}
	}
}

// The API refuses empty lists.
func TestNoPluginIsNoList(t *testing.T) {
	result := buildWith(t, draslices.Features{ListAttributes: true}, nics(), passthroughPolicy)
	if value, ok := result.Entries[0].Spec.Attributes[policy.SupportedCNIs]; ok {
		t.Errorf("supportedCNIs is %v", value)
	}
}

// Classes read the list, so it is not what is left out of an entry that has too many attributes. The limit for an entry
// with a list is the limit for one with a boolean: its string is left out first.
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
		11: "32 attributes, list true, pcieRoot true",
		12: "32 attributes, list true, pcieRoot false",
		13: "policy policy-0: device eth1: its entry eth1 is not published: it has 33 attributes and capacities, 14 " +
			"of them from the policy, and the limit is 32: remove additional attributes, plugins or counters",
	} {
		if diff := cmp.Diff(want, has(n)); diff != "" {
			t.Errorf("%d additional attributes (-want +got):\n%s", n, diff)
		}
	}
}

// The API also limits the values of all attributes, lists included: as many plugins and attributes as a policy can have
// keep that limit.
func TestManyPluginsInAList(t *testing.T) {
	lists := draslices.Features{CNIBinaries: sets.New[string](), ListAttributes: true}
	var plugins []string
	for i := range 16 {
		name := fmt.Sprintf("plugin-%d", i)
		lists.CNIBinaries.Insert(name)
		plugins = append(plugins, fmt.Sprintf("{name: %s, exclusive: true}", name))
	}
	spec := strings.Replace(budget(12), "{name: host-device, exclusive: true}", strings.Join(plugins, ", "), 1)
	result := buildWith(t, lists, nics(), spec) // which checks
	if e := result.Entries[0].Spec; len(e.Attributes) != 32 ||
		len(e.Attributes[policy.SupportedCNIs].StringValues) != 16 {
		t.Errorf("%d attributes, plugins %v", len(e.Attributes), e.Attributes[policy.SupportedCNIs])
	}
}
