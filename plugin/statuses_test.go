package plugin

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

func TestMessagesAreShortAndUTF8(t *testing.T) {
	for _, text := range []string{strings.Repeat("é", maxMessage), "\xff\xfe" + strings.Repeat("x", maxMessage), "short"} {
		if got := shorten(text); !utf8.ValidString(got) || len(got) > maxMessage+3 {
			t.Errorf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
	}
}

// The status has the final interface of a device: of the last step that depends on it.
func TestNetworkDataIsThatOfTheLastStep(t *testing.T) {
	device := &cnichain.Device{Pool: "n/up0", Name: "up0"}
	result := func(name string, addresses ...string) *types100.Result {
		result := &types100.Result{Interfaces: []*types100.Interface{{Name: name, Mac: "02:00:00:00:00:01", Sandbox: "/x"}}}
		for _, address := range addresses {
			ip := &types100.IPConfig{Interface: types100.Int(0)}
			if err := ip.UnmarshalJSON([]byte(`{"interface":0,"address":"` + address + `"}`)); err != nil {
				t.Fatal(err)
			}
			result.IPs = append(result.IPs, ip)
		}
		return result
	}
	steps := []cnichain.StepRecord{
		{Claim: cnichain.Claim{UID: "c"}, Step: cnichain.PlanStep{Device: device}, IfName: "net1", Merged: result("net1")},
		{Claim: cnichain.Claim{UID: "c"}, Step: cnichain.PlanStep{DependsOn: []int{0}}, IfName: "bond0", Merged: result("bond0", "10.0.0.1/24", "10.0.0.1/24", "fd00::1/64")},
		{Claim: cnichain.Claim{UID: "other"}, Step: cnichain.PlanStep{Device: device}, IfName: "net2", Merged: result("net2")},
	}
	data := networkData(steps, "c", &HeldDevice{Pool: "n/up0", Name: "up0"})
	if data == nil || data.InterfaceName != "bond0" || data.HardwareAddress != "02:00:00:00:00:01" || strings.Join(data.IPs, " ") != "10.0.0.1/24 fd00::1/64" {
		t.Errorf("network data is %+v", data)
	}
	steps = []cnichain.StepRecord{{Claim: cnichain.Claim{UID: "c"}, Step: cnichain.PlanStep{Device: device}, IfName: "net1", DeviceNodes: []string{"/dev/vfio/7"}, Merged: result("net1")}}
	if data := networkData(steps, "c", &HeldDevice{Pool: "n/up0", Name: "up0"}); data == nil || data.InterfaceName != "" {
		t.Errorf("network data of a device without an interface is %+v", data)
	}
	if data := networkData(steps, "c", &HeldDevice{Pool: "n/up1", Name: "up1"}); data != nil {
		t.Errorf("network data of another device is %+v", data)
	}
}

// A claim that can't be prepared says why in its status, and an attached one says what it has.
func TestStatusIsWritten(t *testing.T) {
	f := newFixture(t)
	claim := allocatedClaim("claim-a", "up0", "a")
	client := fake.NewClientset(claim)
	s := newStatuses(client, record.NewFakeRecorder(10), f.claims, f.clock, "n")
	s.sandboxes = f.boxes
	status := func() string {
		t.Helper()
		got, err := client.ResourceV1().ResourceClaims("ns").Get(context.Background(), "claim-a", metav1.GetOptions{})
		f.must(err)
		if len(got.Status.Devices) != 1 || len(got.Status.Devices[0].Conditions) != 1 {
			t.Fatalf("status is %+v", got.Status.Devices)
		}
		condition := got.Status.Devices[0].Conditions[0]
		text := string(condition.Status) + " " + condition.Reason + " " + condition.Message
		if data := got.Status.Devices[0].NetworkData; data != nil {
			text += " " + data.InterfaceName
		}
		return text
	}
	s.failed(claimOf(claim), allocatedDevices(claim), "PrepareFailed", errors.New("no such topology"))
	f.must(s.write(context.Background(), "claim-a"))
	if got := status(); got != "False PrepareFailed no such topology" {
		t.Errorf("status is %q", got)
	}
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	s.changed("claim-a")
	f.must(s.write(context.Background(), "claim-a"))
	if got := status(); !strings.HasPrefix(got, "True Attached") || !strings.HasSuffix(got, " net1") {
		t.Errorf("status is %q", got)
	}
	actions := len(client.Actions())
	f.must(s.write(context.Background(), "claim-a"))
	if len(client.Actions()) != actions {
		t.Error("an unchanged status was written again")
	}
}

// What is being written when a claim is released is cleared after that, and written again for the next pod.
func TestStatusIsClearedIfItsClaimIsReleasedMeanwhile(t *testing.T) {
	f := newFixture(t)
	claim := allocatedClaim("claim-a", "up0", "a")
	client := fake.NewClientset(claim)
	s := newStatuses(client, record.NewFakeRecorder(10), f.claims, f.clock, "n")
	s.sandboxes = f.boxes
	prepared := f.prepared("claim-a", "a", "up0")
	prepared.Shareable = true
	f.must(f.attach("a-0", prepared))
	release := sync.OnceFunc(func() {
		f.must(f.boxes.detach(context.Background(), "a-0"))
		f.must(f.claims.release("claim-a"))
		s.clear(&prepared)
	})
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		release()
		return false, nil, nil
	})
	entries := func() int {
		t.Helper()
		f.must(s.write(context.Background(), "claim-a"))
		got, err := client.ResourceV1().ResourceClaims("ns").Get(context.Background(), "claim-a", metav1.GetOptions{})
		f.must(err)
		return len(got.Status.Devices)
	}
	if n := entries(); n != 1 {
		t.Fatalf("%d entries are written", n)
	}
	if n := entries(); n != 0 {
		t.Errorf("%d entries are left of a claim that was released", n)
	}
	f.must(f.attach("a-1", f.prepared("claim-a", "a", "up0")))
	if n := entries(); n != 1 {
		t.Errorf("%d entries are written of the next pod", n)
	}
}

// A claim that outlives its pods does not keep what the last one had. One that can't be told now is told later.
func TestStatusOfReleasedClaims(t *testing.T) {
	f := newFixture(t)
	claim := allocatedClaim("claim-a", "up0", "a")
	client := fake.NewClientset(claim)
	s := newStatuses(client, record.NewFakeRecorder(10), f.claims, f.clock, "n")
	s.sandboxes = f.boxes
	entries := func() int {
		got, err := client.ResourceV1().ResourceClaims("ns").Get(context.Background(), "claim-a", metav1.GetOptions{})
		f.must(err)
		return len(got.Status.Devices)
	}
	record := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", record))
	f.must(s.write(context.Background(), "claim-a"))
	f.must(f.boxes.detach(context.Background(), "a-0"))
	f.must(f.claims.release("claim-a"))
	s.clear(&record) // a pod's own
	f.must(s.write(context.Background(), "claim-a"))
	if entries() != 1 {
		t.Error("the status of a claim was written that goes with its pod")
	}
	record.Shareable = true
	s.clear(&record)
	failing := true
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failing, nil, errors.New("timeout")
	})
	if err := s.write(context.Background(), "claim-a"); err == nil {
		t.Error("the failure is lost")
	}
	failing = false
	f.must(s.write(context.Background(), "claim-a"))
	if entries() != 0 {
		t.Error("the status is as it was")
	}
	actions := len(client.Actions())
	f.must(s.write(context.Background(), "claim-a"))
	if len(client.Actions()) != actions {
		t.Error("the status was cleared again")
	}
}
