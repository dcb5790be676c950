package plugin

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cnichain"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/internal/external"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// external offers the devices up0 (a PCI function) and up1 (a link) under a resource name, and adds a topology for
// devices that another component attaches.
func (f *fixture) external() {
	f.Helper()
	topology := &chainapi.NetworkTopology{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	topology.Spec.Attachment = chainapi.AttachmentExternal
	topology.Spec.Steps = []chainapi.Step{{Name: "link", Type: "host-device",
		Selector: &chainapi.StepSelector{CEL: "true"}}}
	f.must(f.cluster.topologies.GetStore().Replace([]any{topology}, ""))
	policy := f.cluster.policies.GetStore().List()[0].(*policyapi.DeviceExposurePolicy)
	policy.Spec.Exposure.ResourceName = "example.com/vf"
	f.setPublisher(f.newPublisher(func(context.Context, []netip.Addr) (facts discovery.Facts, err error) {
		return discovery.Facts{Devices: []discovery.Device{
			{Name: "up0", Interface: "up0", PCIAddress: "0000:01:00.1", PFAddress: "0000:01:00.0",
				RDMADevices: []string{"mlx5_1", "mlx5_2"}},
			{Name: "up1", Interface: "up1"},
		}}, nil
	}))
	f.must(f.dra.Publisher.Refresh(context.Background()))
}

// prepareNow prepares a claim in the same way as a call from the kubelet and returns the claim's CDI devices.
func (f *fixture) prepareNow(claim *resourceapi.ResourceClaim) ([]string, error) {
	f.Helper()
	results, err := f.dra.PrepareResourceClaims(context.Background(), []*resourceapi.ResourceClaim{claim})
	f.must(err)
	var ids []string
	for _, device := range results[claim.UID].Devices {
		ids = append(ids, device.CDIDeviceIDs...)
	}
	return ids, results[claim.UID].Err
}

func (f *fixture) files(dir string) string {
	f.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	f.must(err)
	for i := range paths {
		paths[i] = filepath.Base(paths[i])
	}
	return strings.Join(paths, " ")
}

// The driver reserves and describes a device that another component attaches. No gate waits for the device, and it is
// released once it is back on the host unchanged, no matter when the driver is killed.
func TestDevicesThatOthersAttach(t *testing.T) {
	f := newFixture(t)
	f.external()
	f.node.AddHostLink("up0")
	f.nri.runtime.setConnected(false) // external devices do not need the runtime
	claim := allocatedClaim("c", "up0", "a")
	ids, err := f.prepareNow(claim)
	if err != nil || strings.Join(ids, " ") != "dra.networking/external-c=0000:01:00.1" {
		t.Fatalf("got CDI devices %q, error %v", ids, err)
	}
	const infos = "c-0000:01:00.1-device.json example.com-vf-0000:01:00.1-device.json"
	described := func(when string) {
		t.Helper()
		if got := f.files(f.cdiDir()); got != "dra.networking_external_c.json" {
			t.Errorf("%s: got CDI specs %q", when, got)
		}
		if got := f.files(f.infoDir()); got != infos {
			t.Errorf("%s: got device information files %q", when, got)
		}
	}
	described("after Prepare")
	info, err := os.ReadFile(filepath.Join(f.infoDir(), "example.com-vf-0000:01:00.1-device.json"))
	if want := `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:00.1","pf-pci-address":"0000:01:00.0",` +
		`"rdma-device":"mlx5_1,mlx5_2"},"dra.networking/writtenBy":"dra.networking"}`; err != nil ||
		string(info) != want {
		t.Errorf("got device information %s, error %v", info, err)
	}
	if records, err := f.nri.claimsOf(f.sandbox("a-0")); err != nil || len(records) > 0 {
		t.Errorf("got claims to attach %v, error %v, want none", records, err)
	}
	rival, err := f.dra.compile(t.Context(), allocatedClaim("rival", "up0", "b"))
	f.must(err)
	if err := f.claims.Hold(rival, asItIs); err == nil || !strings.Contains(err.Error(), "takes the whole device") {
		t.Errorf("error for a rival claim = %v, want \"takes the whole device\"", err)
	}

	f.crash()
	f.must(os.RemoveAll(f.infoDir()))
	f.must(os.RemoveAll(f.cdiDir()))
	f.start("boot-1")
	f.external()
	f.must(f.dra.External.Sync(""))
	described("after a crash that has lost all files")

	record, _ := f.claims.Get("c")
	f.node.RemoveHostLink("up0") // another component has attached it
	if !mayBeInPod(f.claims, f.boxes, f.node)("c", &record.Devices[0]) {
		t.Error("a device that another component has attached is treated as gone")
	}
	if err := f.dra.unprepare(context.Background(), "c"); err == nil || !strings.Contains(err.Error(), "up0") {
		t.Errorf("error = %v, want the release of a device in a pod to fail", err)
	}
	described("while the device is in a pod")
	f.node.AddHostLink("up0")
	f.must(f.dra.unprepare(context.Background(), "c"))
	if got := f.files(f.cdiDir()) + f.files(f.infoDir()); got != "" {
		t.Errorf("a released claim left files %q", got)
	}
}

// If the driver and another component attach devices of the same claim, every container waits for the driver, even a
// container that names only devices attached by the other component.
func TestClaimThatOthersAttachInPart(t *testing.T) {
	f := newFixture(t)
	f.external()
	mine := testTopology()
	mine.Name = "mine"
	f.must(f.cluster.topologies.GetStore().Add(mine))
	f.node.AddHostLink("up0")
	claim := allocatedClaim("c", "up0", "a")
	other := allocatedClaim("c", "up1", "a").Status.Allocation.Devices
	other.Results[0].Request, other.Config[0].Requests = "s", []string{"s"}
	other.Config[0].Opaque.Parameters.Raw = []byte(`{"networkTopologyRef":{"name":"mine"},"step":"link"}`)
	devices := &claim.Status.Allocation.Devices
	devices.Results = append(devices.Results, other.Results...)
	devices.Config = append(devices.Config, other.Config...)
	ids, err := f.prepareNow(claim)
	const gate = "dra.networking/interfaces=when-attached.c."
	if want := "dra.networking/external-c=0000:01:00.1 " + gate + "r " + gate + "s"; err != nil ||
		strings.Join(ids, " ") != want {
		t.Fatalf("got CDI devices %q, error %v, want %q", ids, err, want)
	}
	f.runs("a-0")
	f.must(f.nri.RunPodSandbox(t.Context(), f.sandbox("a-0")))
	spec, err := os.ReadFile(filepath.Join(f.cdiDir(), "dra.networking-c.json"))
	if err != nil || !strings.Contains(string(spec), "when-attached.c.r") {
		t.Errorf("the gate of an attached claim contains %s, error %v", spec, err)
	}
}

// Files that a killed driver left behind for deleted claims are removed at the next start. Files from other components
// are kept.
func TestFilesOfOthersAreLeftAlone(t *testing.T) {
	f := newFixture(t)
	f.external()
	f.must(os.MkdirAll(f.infoDir(), 0o755))
	theirs := filepath.Join(f.infoDir(), "example.com-vf-0000:01:00.1-device.json")
	f.must(os.WriteFile(theirs, []byte(`{"type":"pci","version":"1.1.0"}`), 0o600))
	for _, path := range []string{
		filepath.Join(f.infoDir(), "example.com-vf-0000:09:00.1-device.json"),
		filepath.Join(f.infoDir(), ".dra.networking-1.tmp"),
		filepath.Join(f.cdiDir(), "dra.networking_external_x.json"),
	} {
		f.must(os.WriteFile(path, []byte(`{"dra.networking/writtenBy":"dra.networking"}`), 0o600))
	}
	_, err := f.prepareNow(allocatedClaim("c", "up0", "a"))
	if err == nil || !strings.Contains(err.Error(), "belongs to another owner of the device") {
		t.Errorf("error = %v, want an error about another owner", err)
	}
	if got := f.files(f.infoDir()); got != "c-0000:01:00.1-device.json example.com-vf-0000:01:00.1-device.json" {
		t.Errorf("got device information files %q", got)
	}
	if _, err := f.prepareNow(allocatedClaim("d", "up1", "b")); err != nil {
		t.Errorf("cannot prepare another claim: %v", err)
	}
	f.must(f.dra.unprepare(context.Background(), "c"))
	f.must(f.dra.unprepare(context.Background(), "d"))
	data, err := os.ReadFile(theirs)
	if got := f.files(f.infoDir()) + f.files(f.cdiDir()); err != nil || got != filepath.Base(theirs) ||
		strings.Contains(string(data), "dra.networking") {
		t.Errorf("remaining files: %q with content %s, error %v", got, data, err)
	}
}

// If another component has written a file for a device, the driver reports it for each claim that shares the device,
// and for no other claim.
func TestFilesOfOthersAreToldToAllWhoNeedThem(t *testing.T) {
	f := newFixture(t)
	for uid, address := range map[string]string{"a": "0000:01:00.0", "b": "0000:01:00.0", "c": "0000:02:00.0"} {
		device := cnichain.Device{Pool: "n/" + address, Name: address, ShareID: uid, Request: "r", PCIAddress: address,
			NetworkID: address, NetworkResource: "example.com/nic"}
		record := claims.Record{Claim: cnichain.Claim{Namespace: "ns", Name: uid, UID: uid},
			Devices: []claims.HeldDevice{{Request: "r", Pool: device.Pool, Name: device.Name, ShareID: uid}},
			Plans:   []cnichain.Plan{{External: []cnichain.PlanStep{{Name: "link", Device: &device}}}}}
		f.must(f.claims.Hold(record, asItIs))
	}
	dir := t.TempDir()
	files := external.New(filepath.Join(dir, "cdi"), filepath.Join(dir, "info"), f.claims, func() bool { return false })
	f.must(files.Sync("c"))
	shared, err := filepath.Glob(filepath.Join(dir, "info", "example.com-nic-0000:01:00.0*"))
	if err != nil || len(shared) != 1 {
		t.Fatalf("got files %q, error %v, want one file", shared, err)
	}
	f.must(os.WriteFile(shared[0], []byte(`{"type": "pci"}`), 0o600))
	for uid, refused := range map[string]bool{"a": true, "b": true, "c": false} {
		err := files.Sync(uid)
		if (err != nil) != refused || err != nil && (!strings.Contains(err.Error(), "belongs to another owner") ||
			!strings.Contains(err.Error(), "claim ns/"+uid)) {
			t.Errorf("claim %s: error = %v", uid, err)
		}
	}
}

// A claim whose name is too long for a file name is still prepared, but lookups by claim name find no file.
func TestExternalClaimWithALongName(t *testing.T) {
	f := newFixture(t)
	f.external()
	claim := allocatedClaim("c", "up0", "a")
	claim.Name = strings.Repeat("long.", 50) + "c"
	if _, err := f.prepareNow(claim); err != nil {
		t.Error(err)
	}
	if got := f.files(f.infoDir()); got != "example.com-vf-0000:01:00.1-device.json" {
		t.Errorf("got device information files %q", got)
	}
}

// The driver rejects device names that CDI would reject, before another component starts waiting for the device.
func TestExternalDeviceThatCannotBeNamed(t *testing.T) {
	f := newFixture(t)
	f.external()
	policy := f.cluster.policies.GetStore().List()[0].(*policyapi.DeviceExposurePolicy)
	policy.Spec.Exposure.ResourceName = ""
	bad := "a b"
	policy.Spec.Exposure.AdditionalAttributes = map[string]policyapi.AttributeValue{
		policyapi.AttributeDeviceID: {String: &bad}}
	f.must(f.dra.Publisher.Refresh(context.Background()))
	if _, err := f.prepareNow(allocatedClaim("c", "up1", "a")); err == nil ||
		!strings.Contains(err.Error(), `"a b" is not a valid CDI device name`) {
		t.Errorf("error = %v, want an error about the invalid CDI device name", err)
	}
	if got := f.files(f.cdiDir()); got != "" || len(f.claims.All()) > 0 {
		t.Errorf("remaining files: %q, remaining claims: %v", got, f.claims.All())
	}
}

// After the journal has been lost, the containers of running pods can restart with their previous devices.
func TestFilesStayAfterALostJournal(t *testing.T) {
	f := newFixture(t)
	f.external()
	spec := filepath.Join(f.cdiDir(), "dra.networking_external_x.json")
	f.must(os.WriteFile(spec, []byte("{}"), 0o600))
	f.journalLost = true
	f.must(f.dra.External.Sync(""))
	if got := f.files(f.cdiDir()); got != filepath.Base(spec) {
		t.Errorf("CDI specs = %q, want the existing one only", got)
	}
	f.journalLost = false
	f.must(f.dra.External.Sync(""))
	if got := f.files(f.cdiDir()); got != "" {
		t.Errorf("CDI specs = %q, want none", got)
	}
}

// After a reboot, a claim's devices are compared with the devices of other claims by their current state, not by the
// interface indexes from the boot when the claim was first prepared.
func TestBaselinesAfterAReboot(t *testing.T) {
	f := newFixture(t)
	claim := allocatedClaim("c", "up0", "a")
	_, err := f.prepareNow(claim)
	f.must(err)
	boot := func() string {
		record, _ := f.claims.Get("c")
		return record.Plans[0].Steps[0].Device.BootID
	}
	before := boot()
	f.must(f.attach("a-0", f.claims.OfPod("a")...))
	f.crash()
	f.node.Reboot()
	f.node.AddHostLink("up0")
	f.start("boot-2")
	f.eventually("earlier attachments are reverted", func() bool { return !f.boxes.Knows("a-0") })
	if boot() != before {
		t.Error("the baseline changed before the kubelet prepared the claim")
	}
	_, err = f.prepareNow(claim)
	f.must(err)
	now := boot()
	if now == before || now == "" {
		t.Errorf("the baseline has boot ID %q, before the reboot it had %q", now, before)
	}
	if f.boxes.IsUsedSinceBoot("c") {
		t.Error("a claim without a sandbox is treated as used")
	}
	f.must(f.attach("a-1", f.claims.OfPod("a")...))
	if !f.boxes.IsUsedSinceBoot("c") {
		t.Error("an attached claim is not treated as used")
	}
	record, _ := f.claims.Get("c")
	record.Plans[0].Steps[0].Device.BootID = before
	f.dra.Executor.Host = renamedHost{f.dra.Executor.Host} // finds devices that are in pods
	record.Plans[0].Steps[0].Device.IfName = "up1"
	f.must(f.dra.renewBaselines(t.Context(), &record))
	if record.Plans[0].Steps[0].Device.BootID != before {
		t.Error("the baseline of a device in a pod changed")
	}
	f.dra.Executor.Host = f.node
}

// After a reboot, a device that another component attaches must return in its current state, not in its state during
// the boot in which its claim was first prepared. While the device is in a pod, its state cannot be read.
func TestExternalDevicesAfterAReboot(t *testing.T) {
	f := newFixture(t)
	f.external()
	f.node.AddHostLink("up0")
	claim := allocatedClaim("c", "up0", "a")
	_, err := f.prepareNow(claim)
	f.must(err)
	baseline := func() cnichain.Device {
		t.Helper()
		record, _ := f.claims.Get("c")
		return *record.Plans[0].External[0].Device
	}
	before := baseline()
	f.crash()
	f.node.Reboot()
	f.start("boot-2")
	f.external()
	f.node.RemoveHostLink("up0")
	_, err = f.prepareNow(claim)
	f.must(err)
	if now := baseline(); now.BootID != before.BootID {
		t.Errorf("a device that is not on the host got a new baseline: %+v", now)
	}
	f.node.AddHostLink("up0")
	_, err = f.prepareNow(claim)
	f.must(err)
	if now := baseline(); now.BootID == before.BootID || now.Index == before.Index {
		t.Errorf("the baseline is %+v, unchanged from before the reboot: %+v", now, before)
	}
	now := baseline()
	f.crash()
	f.start("boot-2")
	f.external()
	if got := baseline(); !reflect.DeepEqual(got, now) {
		t.Errorf("the journal contains %+v, want %+v", got, now)
	}
	f.must(f.dra.unprepare(context.Background(), "c"))
}
