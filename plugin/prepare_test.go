package plugin

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
)

func TestPositionIsThatOfThePodSpec(t *testing.T) {
	pod := podObject("a", "x", "c", "y")
	if got := position(pod, allocatedClaim("c", "up0", "a")); got != 1 {
		t.Errorf("position = %d, want 1", got)
	}
}

// Of several mutually exclusive claims, only one is prepared, regardless of how many arrive concurrently.
func TestOneDeviceIsHeldOnce(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-0", "a", "up0")
	f.must(f.claims.Release("claim-0"))
	var wait sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 8 {
		wait.Go(func() {
			mine := record
			mine.Claim.UID = "claim-" + string(rune('1'+i))
			mine.Claim.Name = mine.Claim.UID
			if err := f.claims.Hold(mine, asItIs); err == nil {
				mu.Lock()
				won++
				mu.Unlock()
			} else if !strings.Contains(err.Error(), "while claim ns/claim-") {
				t.Errorf("error = %v, want a conflict with another claim", err)
			}
		})
	}
	wait.Wait()
	if won != 1 {
		t.Errorf("%d claims hold one exclusive device, want 1", won)
	}
}

func TestPrepareRefusesWhileTheRuntimeIsNotConnected(t *testing.T) {
	f := newFixture(t)
	f.nri.runtime.setConnected(false)
	claim := allocatedClaim("c", "up0", "a")
	results, err := f.dra.PrepareResourceClaims(context.Background(), []*resourceapi.ResourceClaim{claim})
	if err != nil || results[claim.UID].Err == nil ||
		!strings.Contains(results[claim.UID].Err.Error(), "not connected to the container runtime") {
		t.Errorf("results = %v, error = %v, want an error about the missing connection to the runtime", results, err)
	}
}

func TestPrepareSaysWhatIsGone(t *testing.T) {
	f := newFixture(t)
	for want, change := range map[string]func(*resourceapi.ResourceClaim){
		"device gone of pool n/up0 is no longer offered": func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Results[0].Device = "gone" },
		"NetworkTopology other no longer exists": func(c *resourceapi.ResourceClaim) {
			c.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw = []byte(
				`{"networkTopologyRef":{"name":"other"},"step":"link"}`,
			)
		},
	} {
		claim := allocatedClaim("c", "up0", "a")
		change(claim)
		results, err := f.dra.PrepareResourceClaims(context.Background(), []*resourceapi.ResourceClaim{claim})
		if err != nil || results[claim.UID].Err == nil || !strings.Contains(results[claim.UID].Err.Error(), want) {
			t.Errorf("results = %v, error = %v, want %q", results, err, want)
		}
	}
}

// If a step's plugin needs a feature that the kernel lacks, the claim is rejected before the pod reaches the runtime.
func TestPrepareSaysWhatTheKernelLacks(t *testing.T) {
	f := newFixture(t)
	f.must(f.cluster.schemas.GetStore().Add(&chainapi.CNIPluginSchema{ObjectMeta: metav1.ObjectMeta{Name: "tuning"},
		Spec: chainapi.CNIPluginSchemaSpec{CNIType: "tuning", LinkTypes: []string{"vlan"}}}))
	f.missingLinkTypes = sets.New("vlan")
	claim := allocatedClaim("c", "up0", "a")
	results, err := f.dra.PrepareResourceClaims(context.Background(), []*resourceapi.ResourceClaim{claim})
	if want := `spec.steps[1].type: Invalid value: "tuning": cannot work on node n: the kernel does not support links ` +
		`of type vlan; install the module`; err != nil || results[claim.UID].Err == nil ||
		!strings.Contains(results[claim.UID].Err.Error(), want) {
		t.Errorf("results = %v, error = %v, want %q", results, err, want)
	}
	f.missingLinkTypes = nil
	results, err = f.dra.PrepareResourceClaims(context.Background(), []*resourceapi.ResourceClaim{claim})
	f.must(errors.Join(err, results[claim.UID].Err))
}

func TestOnlyClaimsOfOnePodAreNotShareable(t *testing.T) {
	claim := allocatedClaim("c", "up0", "a")
	if shareable(claim) {
		t.Error("a claim that was generated for a pod is shareable")
	}
	claim.OwnerReferences[0].APIVersion, claim.OwnerReferences[0].Kind = "example.com/v1", "Job"
	if !shareable(claim) {
		t.Error("a claim of another controller is not shareable")
	}
	claim.OwnerReferences = nil
	if !shareable(claim) {
		t.Error("a user's claim is not shareable")
	}
}

func TestOneDeviceTwiceInOneClaimIsRefused(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("c", "a", "up0")
	f.must(f.claims.Release("c"))
	record.Devices = append(record.Devices, record.Devices[0])
	if err := f.claims.Hold(record, asItIs); err == nil ||
		!strings.Contains(err.Error(), "up0 takes the whole device") {
		t.Errorf("error = %v, want \"up0 takes the whole device\"", err)
	}
}

func TestClaimOfTheSameNameWaits(t *testing.T) {
	f := newFixture(t)
	f.prepared("c", "a", "up0")
	record := f.claims.All()[0]
	record.Claim.UID = "another"
	record.Devices = nil
	if err := f.claims.Hold(record, asItIs); err == nil ||
		!strings.Contains(err.Error(), "earlier claim with the same name") {
		t.Errorf("error = %v, want an error about an earlier claim with the same name", err)
	}
}

// A device that cannot be returned to the host does not prevent its pod from terminating. The device is quarantined:
// the next claim for it is rejected immediately, and the device becomes allocatable again once it is back on the host.
func TestQuarantine(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	record.Plans[0].Steps[0].Device.PCIAddress = "0000:01:00.0" // hardware, which always returns to the host
	f.must(f.attach("a-0", record))
	f.node.Lose()
	attempts := 0
	for f.dra.unprepare(context.Background(), "claim-a") != nil {
		if attempts++; attempts > 20 {
			t.Fatal("the claim was not released after 20 attempts")
		}
	}
	if attempts < 9 {
		t.Errorf("gave up after %d attempts, want at least 9", attempts)
	}
	next := f.prepared("claim-b", "b", "up1") // other devices are not affected
	next.Plans[0].Steps[0].Device = record.Plans[0].Steps[0].Device
	refused := func() error {
		_, err := f.dra.ofDevice(*record.Plans[0].Steps[0].Device)
		return err
	}
	if err := refused(); err == nil || !strings.Contains(err.Error(), "quarantine") {
		t.Errorf("error = %v, want an error about the quarantine", err)
	}
	f.crash()
	f.start("boot-1")
	if err := refused(); err == nil || !strings.Contains(err.Error(), "quarantine") {
		t.Errorf("error after a restart = %v, want an error about the quarantine", err)
	}
	left := f.dra.Executor.Leftovers()
	if code, body := f.debug(http.MethodPost, "/leftovers?key="+left[0].Key); code != http.StatusConflict ||
		!strings.Contains(body, "up0") {
		t.Errorf("got status %d, want 409: %s", code, body)
	}
	if code, body := f.debug(http.MethodPost, "/leftovers?forget=true&key="+left[0].Key); code != http.StatusConflict ||
		!strings.Contains(body, "its device is not on the host") {
		t.Errorf("the leftover was discarded although its device is missing: status %d: %s", code, body)
	}
	f.node.Find()
	f.node.AddHostLink("up0")
	for _, leftover := range left {
		if code, body := f.debug(http.MethodPost, "/leftovers?key="+leftover.Key); code != http.StatusOK {
			t.Errorf("got status %d, want 200: %s", code, body)
		}
	}
	f.must(refused())
	for _, query := range []string{"key=other", "key=other&forget=true"} {
		if code, body := f.debug(http.MethodPost, "/leftovers?"+query); code != http.StatusConflict ||
			!strings.Contains(body, "it does not exist") {
			t.Errorf("%s: got status %d, want 409: %s", query, code, body)
		}
	}
}

// A cleanup that can never succeed is abandoned on request. The response contains the error.
func TestLeftoverIsGivenUpOnRequest(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	for i := range record.Plans[0].Steps {
		record.Plans[0].Steps[i].Quirks.DelFailsWithoutInterface = false
	}
	f.must(f.attach("a-0", record))
	f.node.Fail("host-device DEL", errors.New("no IP ranges specified"))
	for attempts := 0; f.dra.unprepare(context.Background(), "claim-a") != nil; attempts++ {
		if attempts > 20 {
			t.Fatal("the claim was not released after 20 attempts")
		}
	}
	left := f.dra.Executor.Leftovers()
	if len(left) != 1 {
		t.Fatalf("leftovers = %+v, want one", left)
	}
	if code, body := f.debug(http.MethodPost, "/leftovers?key="+left[0].Key); code != http.StatusConflict {
		t.Errorf("got status %d, want 409: %s", code, body)
	}
	if code, body := f.debug(http.MethodPost, "/leftovers?forget=true&key="+left[0].Key); code != http.StatusOK ||
		!strings.Contains(body, "no IP ranges specified") {
		t.Errorf("got status %d, want 200: %s", code, body)
	}
	if code, body := f.debug(http.MethodGet, "/leftovers"); code != http.StatusOK || strings.TrimSpace(body) != "[]" {
		t.Errorf("got status %d, want 200 and no leftovers: %s", code, body)
	}
}

// It does not matter if attachment records are missing: a claim is released once its devices are on the host.
func TestReleaseProvesTheDeviceHome(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	record.Plans[0].Steps[0].Device.PCIAddress = "0000:01:00.0"
	f.must(f.claims.Release("claim-a"))
	f.must(f.claims.Hold(record, asItIs))
	f.node.RemoveHostLink("up0") // attached, but its record is damaged
	if err := f.dra.unprepare(context.Background(), "claim-a"); err == nil ||
		!strings.Contains(err.Error(), "no link up0") {
		t.Fatalf("error = %v, want \"no link up0\"", err)
	}
	f.node.AddHostLink("up0")
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
	if len(f.dra.Executor.Leftovers()) > 0 {
		t.Error("leftovers remain")
	}
}

// The baseline is read from the kernel at a time when no pod can have the device; it is not taken from an earlier scan.
func TestPrepareTakesTheBaseline(t *testing.T) {
	f := newFixture(t)
	for _, link := range []string{"up0", "up1"} {
		record := f.prepared("claim-"+link, "a", link)
		f.must(f.claims.Release("claim-" + link))
		if link == "up1" {
			f.node.RemoveHostLink("up1")
		}
		err := f.claims.Hold(record, f.baselines)
		held, isHeld := f.claims.Get("claim-" + link)
		switch link {
		case "up0":
			f.must(err)
			if device := held.Plans[0].Steps[0].Device; device.Index == 0 {
				t.Errorf("baseline %+v has no interface index", device)
			}
		case "up1":
			if err == nil || !strings.Contains(err.Error(), "the host has no link up1") || isHeld {
				t.Errorf("error = %v, claim held: %v, want an error and no held claim", err, isHeld)
			}
		}
	}
}

// A claim for a link that the node itself uses is rejected, even if a policy exposes the link and the scheduler
// allocates it.
func TestBusyLinksAreRefused(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("c", "a", "up0")
	f.must(f.claims.Release("c"))
	f.busyLinks = map[discovery.IfName]discovery.Use{"up0": {Reason: "it is a port of the bridge br0"}}
	err := f.claims.Hold(record, f.baselines)
	if err == nil ||
		!strings.Contains(err.Error(), "up0 (up0) cannot be taken from the node: it is a port of the bridge br0") {
		t.Errorf("error = %v, want an error about the bridge port", err)
	}
	if len(f.claims.All()) != 0 {
		t.Error("the rejected claim is held")
	}
	f.busyLinks = nil
	f.must(f.claims.Hold(record, f.baselines))
}

// A link with addresses of the node is given to a claim only if the policy allows this and the addresses can be
// restored.
func TestLinksInUseAreTakenIfThePolicySaysSo(t *testing.T) {
	for _, test := range []struct {
		use   discovery.Use
		allow bool
		want  string
	}{
		{discovery.Use{Reason: "it has the address 192.0.2.1/24", Restorable: true}, false,
			"or set allowInUse in the policy"},
		{discovery.Use{Reason: "it has the address 192.0.2.1/24", Restorable: true}, true, ""},
		{discovery.Use{Reason: "it carries a default route"}, true,
			"cannot be taken from the node: it carries a default route"},
	} {
		f := newFixture(t)
		f.busyLinks = map[discovery.IfName]discovery.Use{"up0": test.use}
		err := f.dra.notBusy(t.Context(), []cnichain.PlanStep{{Device: &cnichain.Device{Name: "up0",
			IfName: "up0", Exclusive: true, AllowInUse: test.allow}}})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v, use allowed: %v: wrong error %v", test.use, test.allow, err)
		}
	}
}

// During shutdown, the driver does not start a release: the kubelet will call the next driver process.
func TestNoReleaseBeginsWhileTheDriverStops(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.boxes.FinishWork()
	results, err := f.dra.UnprepareResourceClaims(context.Background(),
		[]kubeletplugin.NamespacedObject{{UID: "claim-a"}})
	f.must(err)
	if err := results["claim-a"]; err == nil || !strings.Contains(err.Error(), "the driver is shutting down") {
		t.Errorf("error of the release = %v, want \"the driver is shutting down\"", err)
	}
	f.expect(attachedA, "claim-a")
}

// renamedHost is a node where the NIC is now named up1, and up0 is another NIC.
type renamedHost struct{ host.Host }

func (h renamedHost) Snapshot(device cnichain.Device) (cnichain.Device, error) {
	if device.PCIAddress == "0000:01:00.0" {
		device.IfName = "up1"
	}
	var err error
	device.BootID, err = h.Boot()
	return device, err
}

// A claim survives a reboot after which its NIC has a different name. With the old name, a plugin would move a
// different NIC.
func TestRecordedPlanOfARenamedCard(t *testing.T) {
	f := newFixture(t)
	record := f.prepared("claim-a", "a", "up0")
	record.Plans[0].Steps[0].Device.PCIAddress = "0000:01:00.0"
	f.dra.Executor.Host = renamedHost{f.dra.Executor.Host}
	record.Plans[0].Steps[0].Device.BootID = "of an earlier boot"
	if _, changed, err := f.dra.renewed(t.Context(), record.Plans, true); changed || err != nil {
		t.Errorf("renewed plan changed: %t, error %v, want no change", changed, err)
	}
	if err := f.attach("a-0", record); err == nil || !strings.Contains(err.Error(), "is called up1 now") {
		t.Errorf("error = %v, want \"is called up1 now\"", err)
	}
	f.eventually("the sandbox is forgotten", func() bool { known, _, _ := f.boxes.State("a-0"); return !known })
	f.dra.Executor.Host = f.node
	f.expect(clean)
}

// While the devices are unknown, claims cannot be prepared but can be released, since pods must be able to terminate.
func TestPrepareBeforeTheDevicesAreKnown(t *testing.T) {
	f := newFixture(t)
	f.prepared("claim-a", "a", "up0")
	f.setPublisher(f.newPublisher(nil)) // it has not scanned the host yet
	results, err := f.dra.PrepareResourceClaims(context.Background(),
		[]*resourceapi.ResourceClaim{allocatedClaim("claim-b", "up1", "b")})
	f.must(err)
	if err := results["claim-b"].Err; err == nil || !strings.Contains(err.Error(), "are not known yet") {
		t.Errorf("error = %v, want \"are not known yet\"", err)
	}
	f.must(f.dra.unprepare(context.Background(), "claim-a"))
}
