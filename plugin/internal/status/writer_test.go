package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// A claim's status contains the error if Prepare fails, and the interfaces once the claim is attached.
func TestStatusIsWritten(t *testing.T) {
	f := newFixture(t)
	claim := storedClaim("claim-a")
	client := fake.NewClientset(claim)
	s := New(Config{Client: client, Events: record.NewFakeRecorder(10), Claims: f.claims,
		Attachments: f.boxes, Clock: f.clock, Node: "n"})
	status := func() string {
		t.Helper()
		got, err := client.ResourceV1().ResourceClaims("ns").Get(context.Background(), "claim-a", metav1.GetOptions{})
		f.must(err)
		if len(got.Status.Devices) != 1 || len(got.Status.Devices[0].Conditions) != 1 {
			t.Fatalf("wrong status: %+v", got.Status.Devices)
		}
		condition := got.Status.Devices[0].Conditions[0]
		text := string(condition.Status) + " " + condition.Reason + " " + condition.Message
		if data := got.Status.Devices[0].NetworkData; data != nil {
			text += " " + data.InterfaceName
		}
		return text
	}
	s.Failed(cnichain.Claim{Namespace: "ns", Name: "claim-a", UID: "claim-a"},
		[]claims.HeldDevice{{Pool: "n/up0", Name: "up0"}}, "PrepareFailed", errors.New("no such topology"))
	f.must(s.write(context.Background(), "claim-a"))
	if got := status(); got != "False PrepareFailed no such topology; "+
		`run "kubectl netdra explain claim/claim-a -n ns" to see its devices and their users` {
		t.Errorf("wrong status: %q", got)
	}
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	s.Changed("claim-a")
	f.must(s.write(context.Background(), "claim-a"))
	if got := status(); !strings.HasPrefix(got, "True Attached") || !strings.HasSuffix(got, " net1") {
		t.Errorf("wrong status: %q", got)
	}
	actions := len(client.Actions())
	f.must(s.write(context.Background(), "claim-a"))
	if len(client.Actions()) != actions {
		t.Error("an unchanged status was written again")
	}
}

// If a pod names a claim that another pod is using, an event is created for the pod, but the claim's status does not
// report a failure.
func TestClaimsInUseHaveNotFailed(t *testing.T) {
	f := newFixture(t)
	events := record.NewFakeRecorder(10)
	s := New(Config{Client: fake.NewClientset(), Events: events, Claims: f.claims, Attachments: f.boxes, Clock: f.clock,
		Node: "n"})
	theirs := claims.Record{Claim: cnichain.Claim{Namespace: "ns", Name: "theirs", UID: "theirs"}}
	rivals := claims.Record{Claim: cnichain.Claim{Namespace: "ns", Name: "own", UID: "own"}}
	inUse := &claimspec.InUseError{Claim: theirs.Claim.String(), Pod: "ns/a"}
	s.AttachFailed(executor.Pod{Namespace: "ns", Name: "b", UID: "b"}, []claims.Record{theirs, rivals},
		fmt.Errorf("not yet: %w", inUse), 0)
	if _, failed := s.failures["own"]; !failed || len(s.failures) != 1 {
		t.Errorf("failures = %v, want one failure of claim own", s.failures)
	}
	if event := <-events.Events; !strings.Contains(event, "pod ns/a uses its exclusive device") {
		t.Errorf("wrong event: %q", event)
	}
}

// If a pod cannot terminate or get its next sandbox, an event for the pod reports the reason.
func TestDetachFailuresAreEvents(t *testing.T) {
	f := newFixture(t)
	events := record.NewFakeRecorder(10)
	s := New(Config{Client: fake.NewClientset(), Events: events, Claims: f.claims, Attachments: f.boxes, Clock: f.clock,
		Node: "n"})
	s.DetachFailed(executor.Pod{Namespace: "ns", Name: "b", UID: "b"}, &executor.StepError{Step: "a", Type: "macvlan",
		Topology: "t", Command: "DEL", Err: errors.New("no plugin")})
	const want = `Warning NetworkDetachFailed the network could not be detached yet, and the pod waits: step "a" ` +
		`(macvlan) of topology t failed at DEL: no plugin; the driver retries until it abandons the step; ` +
		`run "kubectl netdra trace pod/b -n ns" to list all calls`
	if event := <-events.Events; event != want {
		t.Errorf("got event\n%s\nwant\n%s", event, want)
	}
}

// Users can create claims that fail, and the driver is not notified when such claims are deleted. Therefore, the number
// of stored failures is limited.
func TestFailuresAreForgotten(t *testing.T) {
	f := newFixture(t)
	s := New(Config{Client: fake.NewClientset(), Events: record.NewFakeRecorder(10), Claims: f.claims,
		Attachments: f.boxes, Clock: f.clock, Node: "n"})
	fail := func(uid string) {
		claim := cnichain.Claim{Namespace: "ns", Name: uid, UID: uid}
		s.Failed(claim, []claims.HeldDevice{{Pool: "n/up0", Name: "up0"}}, "PrepareFailed",
			errors.New("no such topology"))
		s.written[uid] = nil
	}
	known := func(uid string) bool {
		_, written := s.written[uid]
		_, entries := s.wanted(uid)
		if written != (len(entries) > 0) {
			t.Errorf("claim %s has %d entries to write, but is recorded as written: %t", uid, len(entries), written)
		}
		return written
	}
	fail("once")
	fail("again")
	f.clock.Step(failureAge / 2)
	fail("again")
	f.clock.Step(failureAge / 2)
	s.ForgetOld()
	if known("once") || !known("again") {
		t.Error("want only failures that have not recurred for a long time to be forgotten")
	}
	for i := range maxFailures {
		f.clock.Step(time.Millisecond)
		fail(fmt.Sprint(i))
	}
	if known("again") || !known("0") || len(s.failures) != maxFailures || len(s.written) != maxFailures {
		t.Errorf("%d failures and %d statuses are stored, want the maximum", len(s.failures), len(s.written))
	}
}

// As much of a plugin's result is written as the API allows.
func TestInvalidNetworkDataIsLeftOut(t *testing.T) {
	long := strings.Repeat("x", 257)
	for name, test := range map[string]struct{ data, want resourceapi.NetworkDeviceData }{
		"valid": {
			data: resourceapi.NetworkDeviceData{InterfaceName: "net1", HardwareAddress: "02::1",
				IPs: []string{"10.0.0.1/24", "fd00::1/64"}},
			want: resourceapi.NetworkDeviceData{InterfaceName: "net1", HardwareAddress: "02::1",
				IPs: []string{"10.0.0.1/24", "fd00::1/64"}},
		},
		"at the limits": {
			data: resourceapi.NetworkDeviceData{InterfaceName: long[:256], HardwareAddress: long[:128]},
			want: resourceapi.NetworkDeviceData{InterfaceName: long[:256], HardwareAddress: long[:128]},
		},
		"name": {data: resourceapi.NetworkDeviceData{InterfaceName: long, HardwareAddress: "02::1"},
			want: resourceapi.NetworkDeviceData{HardwareAddress: "02::1"}},
		"address": {data: resourceapi.NetworkDeviceData{InterfaceName: "net1", HardwareAddress: long[:129]},
			want: resourceapi.NetworkDeviceData{InterfaceName: "net1"}},
		"ips": {
			data: resourceapi.NetworkDeviceData{IPs: []string{"<nil>", "10.0.0.1/ff00ff00", "010.0.0.1/24",
				"FD00::1/64", "10.0.0.1", "10.0.0.2/24"}},
			want: resourceapi.NetworkDeviceData{IPs: []string{"10.0.0.2/24"}},
		},
	} {
		if diff := cmp.Diff(&test.want, validNetworkData(&test.data)); diff != "" {
			t.Errorf("%s: wrong network data (-want +got):\n%s", name, diff)
		}
	}
}

// If an API server rejects the network data for any other reason, the conditions are still written, and the data is
// sent only once.
func TestRefusedNetworkDataDoesNotHideTheConditions(t *testing.T) {
	f := newFixture(t)
	claim := storedClaim("claim-a")
	client := fake.NewClientset(claim)
	s := New(Config{Client: client, Events: record.NewFakeRecorder(10), Claims: f.claims,
		Attachments: f.boxes, Clock: f.clock, Node: "n"})
	client.PrependReactor("patch", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if patch, ok := action.(clienttesting.PatchAction); ok &&
			strings.Contains(string(patch.GetPatch()), "networkData") {
			return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ResourceClaim"}, "claim-a", nil)
		}
		return false, nil, nil
	})
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.must(s.write(context.Background(), "claim-a"))
	got, err := client.ResourceV1().ResourceClaims("ns").Get(context.Background(), "claim-a", metav1.GetOptions{})
	f.must(err)
	if devices := got.Status.Devices; len(devices) != 1 || devices[0].NetworkData != nil ||
		devices[0].Conditions[0].Reason != "Attached" {
		t.Errorf("wrong status: %+v", devices)
	}
	actions := len(client.Actions())
	f.must(s.write(context.Background(), "claim-a"))
	if len(client.Actions()) != actions {
		t.Error("a rejected status was written again")
	}
}

// If a claim is released while its status is being written, the status is cleared afterwards and is written again for
// the next pod.
func TestStatusIsClearedIfItsClaimIsReleasedMeanwhile(t *testing.T) {
	f := newFixture(t)
	claim := storedClaim("claim-a")
	client := fake.NewClientset(claim)
	s := New(Config{Client: client, Events: record.NewFakeRecorder(10), Claims: f.claims,
		Attachments: f.boxes, Clock: f.clock, Node: "n"})
	prepared := f.prepared("claim-a", "a", "up0")
	prepared.Shareable = true
	f.must(f.attach("a-0", prepared))
	release := sync.OnceFunc(func() {
		<-f.boxes.StopSandbox("a-0")
		f.must(f.claims.Release("claim-a"))
		s.Clear(&prepared)
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
		t.Fatalf("got %d status entries, want 1", n)
	}
	if n := entries(); n != 0 {
		t.Errorf("got %d status entries after the release, want 0", n)
	}
	f.must(f.attach("a-1", f.prepared("claim-a", "a", "up0")))
	if n := entries(); n != 1 {
		t.Errorf("got %d status entries for the next pod, want 1", n)
	}
}

// The status that a claim had for its last pod is removed if the claim outlives its pods. A failed write is retried.
func TestStatusOfReleasedClaims(t *testing.T) {
	f := newFixture(t)
	claim := storedClaim("claim-a")
	client := fake.NewClientset(claim)
	s := New(Config{Client: client, Events: record.NewFakeRecorder(10), Claims: f.claims,
		Attachments: f.boxes, Clock: f.clock, Node: "n"})
	entries := func() int {
		got, err := client.ResourceV1().ResourceClaims("ns").Get(context.Background(), "claim-a", metav1.GetOptions{})
		f.must(err)
		return len(got.Status.Devices)
	}
	record := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", record))
	f.must(s.write(context.Background(), "claim-a"))
	<-f.boxes.StopSandbox("a-0")
	f.must(f.claims.Release("claim-a"))
	s.Clear(&record) // the claim was generated for a pod
	f.must(s.write(context.Background(), "claim-a"))
	if entries() != 1 {
		t.Error("the status of a claim that will be deleted with its pod was written")
	}
	record.Shareable = true
	s.Clear(&record)
	failing := true
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failing, nil, errors.New("timeout")
	})
	if err := s.write(context.Background(), "claim-a"); err == nil {
		t.Error("write returned no error, want the failure")
	}
	failing = false
	f.must(s.write(context.Background(), "claim-a"))
	if entries() != 0 {
		t.Error("the status was not cleared")
	}
	actions := len(client.Actions())
	f.must(s.write(context.Background(), "claim-a"))
	if len(client.Actions()) != actions {
		t.Error("the status was cleared again")
	}
}

// The status shows which device has lost its interface.
func TestStatusOfVanishedInterfaces(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	s := New(Config{Client: fake.NewClientset(), Events: record.NewFakeRecorder(10), Claims: f.claims,
		Attachments: f.boxes, Clock: f.clock, Node: "n"})
	f.node.DeletePodLink(f.boxes.States()[0].Pin, "net1")
	f.sweep()
	_, entries := s.wanted("claim-a")
	if len(entries) != 1 || entries[0].ready || entries[0].reason != "InterfaceLost" {
		t.Errorf("wrong status: %+v", entries)
	}
}
