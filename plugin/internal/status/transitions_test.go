package status

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// A condition keeps the time of its last transition, even if the driver is restarted.
func TestTransitionTimes(t *testing.T) {
	f := newFixture(t)
	client := fake.NewClientset(storedClaim("claim-a"))
	start := func() *Writer {
		return New(Config{Client: client, Events: record.NewFakeRecorder(10), Claims: f.claims, Attachments: f.boxes,
			Clock: f.clock, Node: "n"})
	}
	s := start()
	claim := cnichain.Claim{Namespace: "ns", Name: "claim-a", UID: "claim-a"}
	devices := []claims.HeldDevice{{Pool: "n/up0", Name: "up0"}}
	expect := func(what string, status metav1.ConditionStatus, seconds int64) {
		t.Helper()
		f.must(s.write(context.Background(), "claim-a"))
		got, err := client.ResourceV1().ResourceClaims("ns").Get(context.Background(), "claim-a", metav1.GetOptions{})
		f.must(err)
		condition := got.Status.Devices[0].Conditions[0]
		if condition.Status != status || condition.LastTransitionTime.Unix() != seconds {
			t.Errorf("%s: the condition is %s since %d, want %s since %d", what, condition.Status,
				condition.LastTransitionTime.Unix(), status, seconds)
		}
		f.clock.Step(time.Minute)
	}
	s.Failed(claim, devices, "PrepareFailed", errors.New("no such topology"))
	expect("a failure", metav1.ConditionFalse, 1000)
	s.Failed(claim, devices, "PrepareFailed", errors.New("no such plugin"))
	expect("another failure", metav1.ConditionFalse, 1000)
	s = start()
	s.Failed(claim, devices, "PrepareFailed", errors.New("no such file"))
	expect("another failure after a restart", metav1.ConditionFalse, 1000)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	s.Changed("claim-a")
	expect("attached", metav1.ConditionTrue, 1180)
	s = start()
	s.atStart.Insert("claim-a")
	failing := true
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failing, nil, errors.New("too many requests")
	})
	if err := s.write(t.Context(), "claim-a"); err == nil {
		t.Error("write returned no error, want the failure")
	}
	failing = false
	expect("attached before a restart", metav1.ConditionTrue, 1180)
	f.node.DeletePodLink(f.boxes.States()[0].Pin, "net1")
	f.sweep()
	expect("an interface is missing", metav1.ConditionFalse, 1300)
}

// Only claims that existed when the driver started are read from the API server; other claims cause no requests.
func TestOnlyOldClaimsAreRead(t *testing.T) {
	f := newFixture(t)
	client := fake.NewClientset(storedClaim("claim-a"), storedClaim("claim-b"))
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	s := New(Config{Client: client, Events: record.NewFakeRecorder(10), Claims: f.claims, Attachments: f.boxes,
		Clock: f.clock, Node: "n"})
	ctx, stop := context.WithCancel(t.Context())
	written := make(chan struct{}, 2)
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		written <- struct{}{}
		return false, nil, nil
	})
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-written
	f.must(f.attach("b-0", f.prepared("claim-b", "b", "up1")))
	s.Changed("claim-b")
	<-written
	stop()
	f.must(<-ended)
	var read []string
	for _, action := range client.Actions() {
		if get, ok := action.(clienttesting.GetAction); ok && action.GetVerb() == "get" {
			read = append(read, get.GetName())
		}
	}
	if !slices.Equal(read, []string{"claim-a"}) {
		t.Errorf("read claims %q, want claim-a only", read)
	}
}

// If a pod's claim is released while the claim's status is being written, no state remains in memory.
func TestReleasedClaimsAreForgotten(t *testing.T) {
	f := newFixture(t)
	client := fake.NewClientset(storedClaim("claim-a"))
	s := New(Config{Client: client, Events: record.NewFakeRecorder(10), Claims: f.claims, Attachments: f.boxes,
		Clock: f.clock, Node: "n"})
	prepared := f.prepared("claim-a", "a", "up0")
	f.must(f.attach("a-0", prepared))
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		<-f.boxes.StopSandbox("a-0")
		f.must(f.claims.Release("claim-a"))
		s.Clear(&prepared)
		return false, nil, nil
	})
	f.must(s.write(t.Context(), "claim-a"))
	if len(s.written)+len(s.failures)+len(s.released) > 0 {
		t.Errorf("the writer still stores %v, %v, %v", s.written, s.failures, s.released)
	}
}
