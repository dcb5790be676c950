package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestGang creates a gang with one pod per link while one of the links is in use. None of the pods in the gang are
// scheduled, no claim is allocated, and no link leaves its node's namespace. Once the link is free, the whole gang
// starts.
func TestGang(t *testing.T) {
	f := newFleet(t, "gang")
	taken := f.nodes[0]
	f.create(watchedPod("taker", ofTemplate("moved"), taken))
	f.ready(nil, "taker")
	f.create(fmt.Sprintf(`
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: gang}
spec: {schedulingPolicy: {gang: {minCount: %d}}}
`, len(f.nodes)))
	var ranks []string
	for i := range f.nodes {
		name := fmt.Sprintf("rank%d", i)
		ranks = append(ranks, name)
		f.create(strings.Replace(watchedPod(name, ofTemplate("moved"), nil), "  containers:",
			"  schedulingGroup: {podGroupName: gang}\n  containers:", 1))
	}
	f.eventually("the scheduler has tried all of the gang", func(context.Context) error {
		for _, name := range ranks {
			if !refused(f.pod(name)) {
				return fmt.Errorf("pod %s has the conditions %+v", name, f.pod(name).Status.Conditions)
			}
		}
		return nil
	})
	f.nothingStarted(ranks)

	f.remove("taker")
	f.ready(nil, ranks...)
	for _, n := range f.nodes {
		if place := f.owned(n)[f.address(n, "eth1")]; !strings.HasPrefix(place, "pod rank") {
			t.Errorf("the link of %s is in %q, want a pod of the gang", n.NodeName(), place)
		}
	}
	f.neverEarly(ranks...)
	f.remove(ranks...)
	f.must("delete", "podgroup", "gang")
}

// refused reports whether the scheduler could not find a node for a pod.
func refused(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			return condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}

// nothingStarted checks that the pods are not scheduled and have no devices.
func (f *fleet) nothingStarted(pods []string) {
	f.Helper()
	for _, name := range pods {
		pod := f.pod(name)
		if pod.Spec.NodeName != "" || len(pod.Status.ContainerStatuses) > 0 {
			f.Errorf("pod %s was scheduled to %q, want it to remain pending", name, pod.Spec.NodeName)
		}
	}
	claims, err := f.client.ResourceV1().ResourceClaims(f.namespace).List(f.Context(), metav1.ListOptions{})
	if err == nil && len(claims.Items) != len(pods)+1 {
		err = errors.New("claims of other pods exist")
	}
	if err != nil {
		f.Fatal(err)
	}
	for _, claim := range claims.Items {
		if owner := claim.OwnerReferences[0].Name; claim.Status.Allocation != nil && owner != "taker" {
			f.Errorf("claim %s of pod %s was allocated devices", claim.Name, owner)
		}
	}
	for i, n := range f.nodes {
		want := "the host"
		if i == 0 {
			want = "pod taker"
		}
		if place := f.owned(n)[f.address(n, "eth1")]; place != want {
			f.Errorf("the link of %s is in %q, want %q", n.NodeName(), place, want)
		}
	}
}
