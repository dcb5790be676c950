package classes

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/simulate"
)

// If a class cannot be counted because its selector fails or the class no longer exists, the others are still counted.
func TestBadClassesAreTold(t *testing.T) {
	node := "n1"
	class := func(name, expression string) *resourceapi.DeviceClass {
		return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}}}
	}
	model := simulate.Cluster{
		Classes: []*resourceapi.DeviceClass{class("good", `device.driver == "dra.networking"`),
			class("bad", `device.attributes["dra.networking"].missing == "x"`)},
		Slices: []*resourceapi.ResourceSlice{{ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: resourceapi.ResourceSliceSpec{Driver: "dra.networking", NodeName: &node,
				Devices: []resourceapi.Device{{Name: "a"}, {Name: "b"}},
				Pool:    resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}}}},
	}
	model.Nodes = simulate.NodesOf(model.Slices)
	simulator := simulate.New(model)
	list := []Class{{Name: "bad", Topology: "bad"}, {Name: "gone", Topology: "gone"}, {Name: "good", Topology: "good"}}
	if err := count(t.Context(), simulator, list); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for i := range list {
		texts = append(texts, freeText(&list[i]))
	}
	if diff := cmp.Diff([]string{"unknown", "unknown", "n1: 2"}, texts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var out bytes.Buffer
	warnOfUncounted(printer.New(&out), list)
	if told := out.String(); strings.Count(told, "\n") != 2 || !strings.Contains(told, "no such key: missing") ||
		!strings.Contains(told, "DeviceClass gone does not exist") {
		t.Errorf("told is\n%s", told)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := count(stopped, simulator, list); !errors.Is(err, context.Canceled) {
		t.Errorf("a count that was broken off: %v", err)
	}
}
