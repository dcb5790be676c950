package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dra-networking/dra-network-driver/plugin/internal/attach"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// reconnections returns a function that returns the number of connections that the driver has ended itself.
func (f *fixture) reconnections() func() int {
	count := 0
	f.nri.runtime.mu.Lock()
	defer f.nri.runtime.mu.Unlock()
	f.nri.runtime.end = func(reason error) { // called with the lock held
		if errors.Is(reason, errMissedSandbox) {
			count++
		}
	}
	return func() int {
		f.nri.runtime.mu.Lock()
		defer f.nri.runtime.mu.Unlock()
		return count
	}
}

// withSandbox adds to the pod's status the condition with which the kubelet reports that the sandbox exists.
func withSandbox(pod *corev1.Pod) *corev1.Pod {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReadyToStartContainers,
		Status: corev1.ConditionTrue})
	return pod
}

// await runs awaitSandbox in the background and returns a function that advances the clock until awaitSandbox has
// returned.
func (f *fixture) await(pod string) (returns func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.nri.awaitSandbox(podNamed(pod))
	}()
	return func() {
		f.Helper()
		f.eventually("awaitSandbox returns", func() bool {
			select {
			case <-done:
				return true
			default:
				f.clock.Step(missedDelay)
				return false
			}
		})
	}
}

// The runtime has not reported a sandbox, but lists it once the driver has reconnected.
func TestUnreportedSandboxIsFoundByANewConnection(t *testing.T) {
	f := newFixture(t)
	f.addPod(withSandbox(podObject("a", "claim-a")))
	f.prepared("claim-a", "a", "up0")
	ended := f.reconnections()
	returns := f.await("a-0")
	f.step(missedDelay)
	f.eventually("the connection is ended", func() bool { return ended() == 1 })
	f.runs("a-0")
	f.connect()
	f.eventually("the sandbox is attached", func() bool { return f.ready("a-0") })
	returns()
	if ended() != 1 {
		t.Errorf("ended %d connections, want 1", ended())
	}
}

// If the sandbox is also missing from the next connection's list, an event is created for the pod, and no further
// connection is ended.
func TestSandboxThatIsNeverReportedHasAnEvent(t *testing.T) {
	f := newFixture(t)
	f.addPod(withSandbox(podObject("a", "claim-a")))
	f.prepared("claim-a", "a", "up0")
	ended := f.reconnections()
	returns := f.await("a-0")
	f.step(missedDelay)
	f.eventually("the connection is ended", func() bool { return ended() == 1 })
	f.step(missedDelay)
	f.mu.Lock()
	if len(f.failed) != 0 {
		t.Errorf("got events %q before the runtime reconnected, want none", f.failed)
	}
	f.mu.Unlock()
	f.connect()
	returns()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.failed) != 1 || !strings.Contains(f.failed[0], "does not report its sandbox; delete the pod") ||
		ended() != 1 {
		t.Errorf("ended %d connections; got events %q", ended(), f.failed)
	}
}

// If the runtime resolves CDI devices first, it does not call the driver for a container. Even without that call, a
// sandbox is attached if its claim was prepared after the sandbox had been reported.
func TestSandboxReportedBeforeItsClaimIsAttached(t *testing.T) {
	f := newFixture(t)
	f.runs("a-0")
	f.addPod(withSandbox(podObject("a", "claim-a")))
	f.must(f.nri.RunPodSandbox(context.Background(), f.sandbox("a-0")))
	f.prepared("claim-a", "a", "up0")
	ended := f.reconnections()
	f.nri.expectSandbox(podNamed("a-0"))
	f.step(missedDelay)
	f.eventually("the sandbox is attached", func() bool { return f.ready("a-0") })
	if ended() != 0 {
		t.Errorf("ended %d connections, want 0", ended())
	}
}

// The driver does not end a connection because of a pod that has no claims, is terminating, or has an attached sandbox.
func TestSandboxesThatAreNotMissed(t *testing.T) {
	f := newFixture(t)
	f.must(f.attach("a-0", f.prepared("claim-a", "a", "up0")))
	f.nri.reported.add(f.sandbox("a-0"))
	f.prepared("claim-b", "b", "up1")
	leaving := podObject("b", "claim-b")
	leaving.Status.Phase = corev1.PodFailed
	for _, pod := range []*corev1.Pod{withSandbox(podObject("a", "claim-a")), withSandbox(leaving),
		withSandbox(podObject("c"))} {
		f.addPod(pod)
	}
	ended := f.reconnections()
	for _, pod := range []string{"a-0", "b-0", "c-0"} {
		f.await(pod)()
	}
	if ended() != 0 || len(f.failed) != 0 {
		t.Errorf("ended %d connections; got events %q, want none", ended(), f.failed)
	}
}

// It is normal for a reported sandbox to end while its claims stay prepared a little longer. The driver does not wait
// for a sandbox that the kubelet has not created yet.
func TestSandboxesThatEndAreNotMissed(t *testing.T) {
	f := newFixture(t)
	f.runs("a-0")
	f.addPod(withSandbox(podObject("a", "claim-a")))
	f.must(f.nri.RunPodSandbox(context.Background(), f.sandbox("a-0")))
	f.prepared("claim-a", "a", "up0")
	ended := f.reconnections()
	returns := f.await("a-0")
	f.eventually("the driver waits", f.clock.HasWaiters)
	f.must(f.nri.StopPodSandbox(context.Background(), f.sandbox("a-0")))
	f.ends("a-0")
	returns()

	f.addPod(podObject("b", "claim-b"))
	f.prepared("claim-b", "b", "up1")
	f.await("b-0")()
	if ended() != 0 || len(f.failed) != 0 {
		t.Errorf("ended %d connections; got events %q, want none", ended(), f.failed)
	}
}

// Without a connection, there is nothing to end. Otherwise, the driver ends at most one connection per minute.
func TestConnectionsAreEndedSeldom(t *testing.T) {
	t.Parallel()
	var view runtimeView
	ended := 0
	view.end = func(error) { ended++ }
	begin := time.Unix(1000, 0)
	if view.reconnect(begin, errMissedSandbox) || view.reconnectedSince(begin) {
		t.Error("ended a connection although none exists")
	}
	for _, after := range []time.Duration{time.Second, 30 * time.Second, missedInterval + time.Second} {
		view.setConnected(true)
		view.reconnect(begin.Add(after), errMissedSandbox)
	}
	if ended != 2 || !view.reconnectedSince(begin.Add(missedInterval)) {
		t.Errorf("ended %d connections, want 2", ended)
	}
}

// A stopped sandbox is no longer considered its pod's sandbox, but a later sandbox is.
func TestReportedSandboxes(t *testing.T) {
	t.Parallel()
	box := func(id string) *api.PodSandbox { return &api.PodSandbox{Id: id, Uid: strings.Split(id, "-")[0]} }
	var reported reportedSandboxes
	reported.add(box("a-0"))
	reported.add(box("a-1"))
	reported.remove(box("a-0"))
	reported.stop(box("a-0"))
	reported.add(box("b-0"))
	if a := reported.sandbox("a"); a.GetId() != "a-1" || a.stopped || reported.sandbox("b").PodSandbox == nil ||
		reported.sandbox("c").PodSandbox != nil {
		t.Errorf("wrong sandboxes: %v", reported.byPod)
	}
	if reported.stop(box("a-1")); !reported.sandbox("a").stopped {
		t.Error("the sandbox is not marked as stopped")
	}
	reported.remove(box("a-1"))
	reported.replace([]*api.PodSandbox{box("c-0")})
	if reported.sandbox("a").PodSandbox != nil || reported.sandbox("b").PodSandbox != nil ||
		reported.sandbox("c").PodSandbox == nil {
		t.Errorf("wrong sandboxes after a new connection: %v", reported.byPod)
	}
}

// The kubelet's report that a sandbox exists is a condition in the pod's status. The cache keeps this condition.
func TestKubeletReportsSandboxes(t *testing.T) {
	t.Parallel()
	pod := func(status corev1.ConditionStatus) *corev1.Pod {
		made := podObject("a", "claim-a")
		made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			{Type: corev1.PodReadyToStartContainers, Status: status, Message: "dropped"}}
		kept, err := stripPod(made)
		if err != nil {
			t.Fatal(err)
		}
		return kept.(*corev1.Pod)
	}
	if hasSandbox(pod(corev1.ConditionFalse)) || hasSandbox(podObject("a")) || !hasSandbox(pod(corev1.ConditionTrue)) {
		t.Error("hasSandbox contradicts the condition")
	}
	if diff := cmp.Diff([]corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}},
		pod(corev1.ConditionTrue).Status.Conditions); diff != "" {
		t.Errorf("wrong conditions in the cache (-want +got):\n%s", diff)
	}
}

// If CDI devices are not reported, the hook identifies the claim, and environment variables identify the claim's
// requests. Users can set variables, but not hooks.
func TestPartsWithoutCDIDevices(t *testing.T) {
	t.Parallel()
	hook := func(args ...string) *api.Hook { return &api.Hook{Path: "/plugins/bin/dra-network-cni", Args: args} }
	gate := func(uid string) *api.Hook {
		return hook(nodeapi.HelperName, nodeapi.GateHookCommand, "/var/run/cdi/"+nodeapi.GateName(uid))
	}
	named := attach.Gate{}.DeviceID(attach.Part{ClaimUID: "u-1", Request: "data"})
	for name, test := range map[string]struct {
		devices, env []string
		hooks        []*api.Hook
		want         []attach.Part
	}{
		"nothing":         {nil, []string{"A=b"}, []*api.Hook{hook("other", "gate", "x"), hook("gate")}, nil},
		"whole claim":     {nil, []string{"A=b"}, []*api.Hook{gate("u-1")}, []attach.Part{{ClaimUID: "u-1"}}},
		"only a variable": {nil, []string{"DRA_NETWORK_CLAIM_U_1_DATA=data"}, nil, nil},
		"devices and hook": {[]string{named}, nil, []*api.Hook{gate("u-1")},
			[]attach.Part{{ClaimUID: "u-1", Request: "data"}}},
		"requests": {nil, []string{"DRA_NETWORK_CLAIM_U_1_DATA=data", "DRA_NETWORK_CLAIM_U_1_NET_2=net-2",
			"DRA_NETWORK_CLAIM_U_2_DATA=data", "DRA_NETWORK_CLAIM_U_1=attached", "DRA_NETWORK_CLAIM_U_1_X=y"},
			[]*api.Hook{gate("u-1")}, []attach.Part{{ClaimUID: "u-1", Request: "data"}, {ClaimUID: "u-1", Request: "net-2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			container := &api.Container{Env: test.env, Hooks: &api.Hooks{CreateRuntime: test.hooks}}
			for _, device := range test.devices {
				container.CDIDevices = append(container.CDIDevices, &api.CDIDevice{Name: device})
			}
			if diff := cmp.Diff(test.want, partsNamed(container)); diff != "" {
				t.Errorf("wrong parts (-want +got):\n%s", diff)
			}
		})
	}
}
