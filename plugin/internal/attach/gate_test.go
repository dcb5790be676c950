package attach

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// What the runtime reads of an open gate is the device nodes of the claim's own steps, and nothing once it is closed.
func TestGateHasDeviceNodes(t *testing.T) {
	g := Gate{dir: t.TempDir(), helper: "/plugins/bin/dra-network-cni"}
	steps := []executor.StepRecord{
		{Claim: cnichain.Claim{UID: "a"}, DeviceNodes: []string{"/dev/vfio/7", "/dev/vfio/vfio"}},
		{Claim: cnichain.Claim{UID: "other"}, DeviceNodes: []string{"/dev/vfio/9", "/dev/vfio/vfio"}},
		{Claim: cnichain.Claim{UID: "a"}, DeviceNodes: []string{"/dev/vfio/12", "/dev/vfio/vfio"}},
		{Claim: cnichain.Claim{UID: "a"}},
	}
	if err := g.open(cnichain.Claim{Namespace: "ns", Name: "a", UID: "a"}, edits{nodes: deviceNodes(steps, "a")},
		[]string{"/run/netns/dra-a.1"}); err != nil {
		t.Fatal(err)
	}
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(g.dir))
	if err != nil {
		t.Fatal(err)
	}
	device := cache.GetDevice(g.DeviceID("a"))
	if device == nil {
		t.Fatal("the runtime finds no device")
	}
	var paths []string
	for _, node := range device.ContainerEdits.DeviceNodes {
		paths = append(paths, node.Path+" "+node.Permissions)
	}
	if diff := cmp.Diff([]string{"/dev/vfio/12 rw", "/dev/vfio/7 rw", "/dev/vfio/vfio rw"}, paths); diff != "" {
		t.Errorf("device nodes (-want +have):\n%s", diff)
	}
	if err := g.close("a"); err != nil {
		t.Fatal(err)
	}
	if err := cache.Refresh(); err != nil || cache.GetDevice(g.DeviceID("a")) != nil {
		t.Errorf("the gate is still open: %v", err)
	}
}
