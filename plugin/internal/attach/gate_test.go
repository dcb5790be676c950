package attach

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// If the gate is open, the runtime adds the device nodes from the claim's own steps; for containers that name a
// request, it adds only the device nodes for that request. If the gate is closed, it adds nothing.
func TestGateHasDeviceNodes(t *testing.T) {
	g := Gate{dir: t.TempDir(), helper: "/plugins/bin/dra-network-cni"}
	step := func(claim, device string, parents []int, nodes ...string) executor.StepRecord {
		planned := cnichain.PlanStep{DependsOn: parents}
		if device != "" {
			planned.Device = &cnichain.Device{Pool: "n/" + device, Name: device}
		}
		return executor.StepRecord{Claim: cnichain.Claim{UID: claim}, Step: planned, DeviceNodes: nodes}
	}
	steps := []executor.StepRecord{
		step("a", "up0", nil, "/dev/vfio/7", "/dev/vfio/vfio"),
		step("other", "up1", nil, "/dev/vfio/9", "/dev/vfio/vfio"),
		step("a", "up2", nil, "/dev/vfio/12", "/dev/vfio/vfio"),
		step("a", "", []int{2}, "/dev/derived"),
	}
	record := claims.Record{Claim: cnichain.Claim{Namespace: "ns", Name: "a", UID: "a"}, Devices: []claims.HeldDevice{
		{Request: "one", Pool: "n/up0", Name: "up0"}, {Request: "two/first", Pool: "n/up2", Name: "up2"},
	}}
	if err := g.open(&record, [][]executor.StepRecord{steps}, []string{"/run/netns/dra-a.1"}); err != nil {
		t.Fatal(err)
	}
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(g.dir))
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string][]string{
		"":    {"/dev/derived rw", "/dev/vfio/12 rw", "/dev/vfio/7 rw", "/dev/vfio/vfio rw"},
		"one": {"/dev/vfio/7 rw", "/dev/vfio/vfio rw"},
		"two": {"/dev/derived rw", "/dev/vfio/12 rw", "/dev/vfio/vfio rw"},
	} {
		part := Part{"a", request}
		device, other := cache.GetDevice(g.DeviceID(part)), cache.GetDevice(gateKind+"="+partName(notAttachedYet, part))
		if device == nil || other == nil {
			t.Fatalf("for request %q, the CDI cache contains %v and %v, want a device under either name",
				request, device, other)
		}
		if diff := cmp.Diff(device.ContainerEdits, other.ContainerEdits); diff != "" {
			t.Errorf("devices under the two names of request %q differ (-first +second):\n%s", request, diff)
		}
		var paths []string
		for _, node := range device.ContainerEdits.DeviceNodes {
			paths = append(paths, node.Path+" "+node.Permissions)
		}
		if hooks := device.GetSpec().ContainerEdits.Hooks; len(hooks) != 1 || len(device.ContainerEdits.Hooks) > 0 {
			t.Errorf("request %q has hooks %v, and the spec has %v; want one hook for any number of requests", request,
				device.ContainerEdits.Hooks, hooks)
		}
		if diff := cmp.Diff(want, paths); diff != "" {
			t.Errorf("wrong device nodes of request %q (-want +got):\n%s", request, diff)
		}
	}
	if err := g.close("a"); err != nil {
		t.Fatal(err)
	}
	if err := cache.Refresh(); err != nil || cache.GetDevice(g.DeviceID(Part{ClaimUID: "a"})) != nil {
		t.Errorf("the gate is still open: %v", err)
	}
}

// A claim with a single request has a single CDI device, which is the same in all driver versions; other claims have
// one CDI device for each request.
func TestPartsOfClaims(t *testing.T) {
	record := claims.Record{Claim: cnichain.Claim{UID: "a"}, Devices: []claims.HeldDevice{
		{Request: "r/first", Name: "x"}, {Request: "r/first", Name: "y"}}}
	if part := PartOf(&record, &record.Devices[1]); part != (Part{ClaimUID: "a"}) {
		t.Errorf("the only request has the part %v, want the claim without a request", part)
	}
	record.Devices = append(record.Devices, claims.HeldDevice{Request: "container-0-request-1", Name: "z"})
	for i, want := range []Part{{"a", "r"}, {"a", "r"}, {"a", "container-0-request-1"}} {
		part := PartOf(&record, &record.Devices[i])
		parsed, ours := PartOfDevice(Gate{}.DeviceID(part))
		if part != want || parsed != want || !ours {
			t.Errorf("device %d belongs to part %v, and its CDI device to %v, ours: %v; want %v",
				i, part, parsed, ours, want)
		}
		if parsed, ours = PartOfDevice(gateKind + "=" + partName(notAttachedYet, part)); parsed != want || !ours {
			t.Errorf("under its other name, the CDI device belongs to part %v, ours: %v; want %v", parsed, ours, want)
		}
	}
	for _, foreign := range []string{
		"", "when-attached.a", "vendor.com/nic=when-attached.a", gateKind + "=attached.a",
	} {
		if part, ours := PartOfDevice(foreign); ours || part != (Part{}) {
			t.Errorf("%q belongs to part %v, ours: %v; want none of our parts", foreign, part, ours)
		}
	}
}
