package publish

import (
	"errors"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// Once a computation has succeeded, its devices can be allocated until a later result no longer contains them, even if
// computations fail in between.
func TestOffers(t *testing.T) {
	t.Parallel()
	var o offers
	wanted := &resourceapi.DeviceRequestAllocationResult{Pool: "n/up0", Device: "up0"}
	expect := func(want string) {
		t.Helper()
		_, err := o.find(wanted)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("error = %v, want %q", err, want)
		}
	}
	expect("is starting")
	o.fail(errors.New("no sysfs"))
	expect("not known yet: no sysfs")
	o.set([]draslices.Entry{
		{Pool: "n/up1", Name: "up1"},
		{Pool: "n/up0", Name: "up0",
			Spec: resourceapi.Device{Name: "up0", Taints: []resourceapi.DeviceTaint{{Key: "k"}}}},
	})
	expect("")
	o.fail(errors.New("no sysfs"))
	expect("")
	listed := o.list()
	if len(listed) != 2 || listed[0].Name != "up0" || len(listed[0].Spec.Taints) != 1 || listed[0].Spec.Name != "" {
		t.Errorf("offers = %+v, want up0 with only its taint, and up1", listed)
	}
	o.set([]draslices.Entry{{Pool: "n/up1", Name: "up1"}})
	expect("is no longer offered")
	o.set(nil)
	expect("is no longer offered") // an empty list of devices is a known list
}
