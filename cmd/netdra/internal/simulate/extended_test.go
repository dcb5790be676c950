package simulate

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// The expected requests were copied from kube-scheduler 1.37. Their names depend on which container requests the
// resource.
func TestClaimOfExtendedResources(t *testing.T) {
	class := func(name, resource string, made int64) *resourceapi.DeviceClass {
		class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name,
			CreationTimestamp: metav1.Unix(made, 0)}}
		if resource != "" {
			class.Spec.ExtendedResourceName = ptr.To(resource)
		}
		return class
	}
	classes := []*resourceapi.DeviceClass{class("older", "example.com/vf", 1), class("newer", "example.com/vf", 2),
		class("same", "example.com/vf", 2), class("plain", "", 1)}
	for name, test := range map[string]struct {
		spec string
		want []string
	}{
		"nothing":           {`{containers: [{name: a, resources: {limits: {cpu: 1}}}]}`, nil},
		"a device plugin's": {`{containers: [{name: a, resources: {limits: {nvidia.com/gpu: 1}}}]}`, nil},
		"none of it":        {`{containers: [{name: a, resources: {limits: {example.com/vf: 0}}}]}`, nil},
		"by the newest class": {`{containers: [{name: a, resources: {limits: {example.com/vf: 2}}}]}`,
			[]string{"container-0-request-0 newer 2"}},
		"by the name of a class, among other resources": {
			`{containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, deviceclass.resource.kubernetes.io/plain: 1, example.com/vf: 1}}}]}`,
			[]string{"container-0-request-1 plain 1", "container-0-request-2 newer 1"}},
		"several containers": {
			`{containers: [{name: a, resources: {limits: {example.com/vf: 1}}}, {name: b}, {name: c, resources: {limits: {example.com/vf: 1}}}]}`,
			[]string{"container-0-request-0 newer 1", "container-2-request-0 newer 1"}},
		"an init container that uses devices of later ones": {
			`{initContainers: [{name: i, resources: {limits: {example.com/vf: 2}}}], containers: [{name: a, resources: {limits: {example.com/vf: 1}}}, {name: b, resources: {limits: {example.com/vf: 1}}}]}`,
			[]string{"container-1-request-0 newer 1", "container-2-request-0 newer 1"}},
		"the greediest init container": {
			`{initContainers: [{name: i, resources: {limits: {example.com/vf: 2}}}, {name: j, resources: {limits: {example.com/vf: 3}}}], containers: [{name: a, resources: {limits: {example.com/vf: 1}}}]}`,
			[]string{"container-1-request-0 newer 2", "container-2-request-0 newer 1"}},
		"a sidecar, of which earlier init containers have the device": {
			`{initContainers: [{name: i, resources: {limits: {example.com/vf: 1}}}, {name: s, restartPolicy: Always, resources: {limits: {example.com/vf: 1}}}, {name: j, resources: {limits: {example.com/vf: 1}}}], containers: [{name: a}]}`,
			[]string{"container-1-request-0 newer 1", "container-2-request-0 newer 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			if err := yaml.UnmarshalStrict([]byte(test.spec), &pod.Spec); err != nil {
				t.Fatal(err)
			}
			var got []string
			if claim := extendedClaim(pod, classes); claim != nil {
				for _, request := range claim.Spec.Devices.Requests {
					got = append(got, fmt.Sprintf("%s %s %d", request.Name, request.Exactly.DeviceClassName,
						request.Exactly.Count))
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("wrong requests (-want +got):\n%s", diff)
			}
		})
	}
}
