package plugin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// A policy's status contains counts from all nodes. If status updates triggered another computation, a change on one
// node would cause work on all nodes.
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
		"status":    {"2", func(p *policy) { p.Status.Devices = ptr.To[int32](3) }, false},
		"labels":    {"2", func(p *policy) { p.Labels = map[string]string{"a": "b"} }, false},
		"priority":  {"2", func(p *policy) { p.Spec.Priority = 7 }, true},
		"amount":    {"2", func(p *policy) { p.Spec.Exposure.Capacity = ports("5") }, true},
		"recreated": {"2", func(p *policy) { p.UID = "b" }, true},
		"reminder":  {"1", func(*policy) {}, true},
	} {
		if got := changesOffers(before, newPolicy(test.version, test.change)); got != test.want {
			t.Errorf("%s: changesOffers = %t, want %t", name, got, test.want)
		}
	}
}

// The devices of a pod are released once none of its containers can start again, even if the pod's object still exists.
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
		t.Error("podHasEnded = true before the cache is filled, want false")
	}
	go c.pods.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), c.pods.HasSynced) {
		t.Fatal("the pod cache was not filled")
	}
	for name, want := range map[string]bool{"pending": false, "running": false, "unknown": false, "succeeded": true,
		"failed": true, "gone": true} {
		if got := c.podHasEnded(asked(name)); got != want {
			t.Errorf("podHasEnded of pod %s = %t, want %t", name, got, want)
		}
	}
	other := asked("running")
	other.UID = "before"
	if !c.podHasEnded(other) {
		t.Error("podHasEnded = false for a pod whose name now belongs to another pod, want true")
	}
}

// The cache keeps only a small part of each pod, regardless of the pod's size, but that part includes every field that
// the driver reads.
func TestCachedPodsAreSmall(t *testing.T) {
	pod := podObject("a", "c")
	pod.Annotations = map[string]string{"example.com/large": strings.Repeat("x", 250<<10)}
	pod.Labels = map[string]string{}
	for i := range 10_000 {
		pod.Labels[fmt.Sprintf("example.com/label-%d", i)] = strings.Repeat("v", 63)
	}
	container := corev1.Container{Name: "main", Args: []string{strings.Repeat("x", 500<<10)},
		Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "c"}}}}
	pod.Spec.Containers = []corev1.Container{container, {Name: "sidecar"}}
	pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("g")}
	kept, err := stripPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	small := kept.(*corev1.Pod)
	if small.Size() > 1<<10 {
		t.Errorf("the stored pod has %d bytes, want at most 1024", small.Size())
	}
	claim := allocatedClaim("c", "up0", "a")
	names, err := claimNames(small)
	if got := without(small, claim); err != nil || !slices.Equal(names, []string{"c"}) ||
		!slices.Equal(got, []string{"sidecar"}) || *small.Spec.SchedulingGroup.PodGroupName != "g" {
		t.Errorf("got claims %v (error %v), containers without the claim %v", names, err, got)
	}
	large := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"team": "a"},
		Annotations: pod.Annotations}}
	if kept, err = stripNamespace(large); err != nil || kept.(*corev1.Namespace).Size() > 1<<10 ||
		kept.(*corev1.Namespace).Labels["team"] != "a" {
		t.Errorf("stored namespace is %v, error %v", kept, err)
	}
}
