package plugin

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// The status of a policy has what nodes publish: if it had them compute that again, a change of one node would be work
// for all of them.
func TestStatusOfPoliciesIsNoChange(t *testing.T) {
	type policy = policyapi.DeviceExposurePolicy
	ports := func(amount string) map[string]policyapi.Capacity {
		return map[string]policyapi.Capacity{"ports": {Value: policyapi.Amount{Quantity: resource.MustParse(amount)}}}
	}
	newPolicy := func(version string, change func(*policy)) *policy {
		p := &policy{}
		p.UID, p.ResourceVersion = "a", version
		p.Spec.Exposure = &policyapi.Exposure{Capacity: ports("4")}
		change(p)
		return p
	}
	before := newPolicy("1", func(*policy) {})
	for name, test := range map[string]struct {
		version string
		change  func(*policy)
		want    bool
	}{
		"status":     {"2", func(p *policy) { p.Status.Devices = ptr.To[int32](3) }, false},
		"labels":     {"2", func(p *policy) { p.Labels = map[string]string{"a": "b"} }, false},
		"priority":   {"2", func(p *policy) { p.Spec.Priority = 7 }, true},
		"amount":     {"2", func(p *policy) { p.Spec.Exposure.Capacity = ports("5") }, true},
		"made again": {"2", func(p *policy) { p.UID = "b" }, true},
		"reminder":   {"1", func(*policy) {}, true},
	} {
		if got := changesOffers(before, newPolicy(test.version, test.change)); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// What a pod had is given back when no container of it starts any more, also where its object stays.
func TestPodsThatHaveEnded(t *testing.T) {
	phases := map[string]corev1.PodPhase{"pending": corev1.PodPending, "running": corev1.PodRunning,
		"unknown": corev1.PodUnknown, "succeeded": corev1.PodSucceeded, "failed": corev1.PodFailed}
	var objects []runtime.Object
	for name, phase := range phases {
		pod := podObject(name, "c")
		pod.Status.Phase = phase
		objects = append(objects, pod)
	}
	c := testCluster(objects...)
	asked := func(name string) executor.Pod { return executor.Pod{Namespace: "ns", Name: name, UID: name} }
	if c.podHasEnded(asked("gone")) {
		t.Error("a pod has ended although the API server was not heard yet")
	}
	go c.pods.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), c.pods.HasSynced) {
		t.Fatal("the cache of pods is not filled")
	}
	for name, want := range map[string]bool{"pending": false, "running": false, "unknown": false, "succeeded": true,
		"failed": true, "gone": true} {
		if got := c.podHasEnded(asked(name)); got != want {
			t.Errorf("the pod that is %s has ended: %t, want %t", name, got, want)
		}
	}
	other := asked("running")
	other.UID = "before"
	if !c.podHasEnded(other) {
		t.Error("a pod whose name is another's by now has not ended")
	}
}
