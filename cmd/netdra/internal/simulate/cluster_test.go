package simulate

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMissingClasses(t *testing.T) {
	known := []*resourceapi.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "storage-link"}}}
	const gpu = "DeviceClass gpu does not exist; "
	for _, test := range []struct {
		class string
		live  bool
		want  string
	}{
		{"storage-link", false, ""},
		{"gpu", false, gpu + "pass the NetworkTopology that it belongs to, or the class itself, with -f"},
		{"gpu", true, gpu + "create the NetworkTopology that it belongs to, or the class itself"},
	} {
		request := resourceapi.DeviceRequest{Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: test.class}}
		claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{request, request}}}}
		got := New(Cluster{Classes: known, Live: test.live}).missing([]*resourceapi.ResourceClaim{claim})
		if len(got) > 1 || strings.Join(got, "") != test.want {
			t.Errorf("class %s, live %t: got %q, want %q", test.class, test.live, got, test.want)
		}
	}
}
