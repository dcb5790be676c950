package slices_test

import (
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// If an entry has too many attributes, attributes from files on the node are dropped first, and only then is the entry
// withheld. The entry keeps the attributes from its policy, even if attributes from files have the same names.
func TestAttributesFromFilesFitIntoEntries(t *testing.T) {
	device := discovery.Device{Name: "eth1", Interface: "eth1", Type: discovery.TypeNIC, MTU: 1500,
		NUMANode: discovery.None, VFIndex: discovery.None, VLANID: discovery.None, SFNumber: discovery.None,
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}}
	for i := range 40 {
		device.Attributes[resourceapi.QualifiedName(fmt.Sprintf("example.com/a%02d", i))] =
			resourceapi.DeviceAttribute{IntValue: new(int64(i))}
	}
	decision := policy.Resolve(discovery.Facts{Devices: []discovery.Device{device}}, policies(t, `
selector: {cel: 'device.attributes["example.com"].?a39.orValue(0) == 39'}
exposure:
  supportedCNIPlugins: [{name: macvlan, exclusive: true}]
  additionalAttributes: {example.com/a39: 139}`), policy.Node{Name: "worker-1"})
	result, err := draslices.Build("worker-1", decision, features())
	if err != nil || len(result.Entries) != 1 {
		t.Fatalf("entries = %v, %v, want one entry", result.Entries, err)
	}
	published := result.Entries[0].Spec.Attributes
	if limit := resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice; len(published) != limit {
		t.Errorf("published %d attributes, want %d", len(published), limit)
	}
	if value := published["example.com/a39"].IntValue; value == nil || *value != 139 {
		t.Errorf("example.com/a39 = %v, want 139, the value from the policy", published["example.com/a39"])
	}
	if _, first := published["example.com/a00"]; !first {
		t.Error("the first attribute is missing")
	}
	want := "its entry eth1 is published without example.com/a38, example.com/a37, "
	if len(result.Problems) != 1 || !result.Problems[0].Remark || !strings.Contains(result.Problems[0].Message, want) {
		t.Errorf("problems = %v, want one remark that lists the omitted attributes", result.Problems)
	}
}
