package publish

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
)

// Topologies can use attributes of every type that a policy can assign; attributes in other domains have a prefix.
func TestAttributesForTemplates(t *testing.T) {
	got := plainAttributes(map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"dra.networking/plane":    {StringValue: new("a")},
		"dra.networking/rail":     {IntValue: new(int64(7))},
		"dra.networking/spare":    {BoolValue: new(false)},
		"dra.networking/firmware": {VersionValue: new("1.2.3")},
		"example.com/rail":        {IntValue: new(int64(8))},
	})
	want := map[string]any{"plane": "a", "rail": int64(7), "spare": false, "firmware": "1.2.3",
		"example.com/rail": int64(8)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
