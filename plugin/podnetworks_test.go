package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

const selectsNetworks = "example.org/networks"

// selecting makes host-device a plugin that attaches only networks that a pod selects and a definition describes.
func selecting(t *testing.T) *fixture {
	f := newFixture(t)
	rule := &chainapi.PodNetworks{Annotation: selectsNetworks, Parameter: "network", InterfaceNames: "selected",
		Defined: []string{"mode"}}
	text := chainapi.Parameter{Type: chainapi.TypeString}
	f.must(f.cluster.schemas.GetStore().Add(&chainapi.CNIPluginSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "host-device"},
		Spec: chainapi.CNIPluginSchemaSpec{CNIType: "host-device", PodNetworks: rule,
			DeviceParameters: []chainapi.DeviceParameter{{Parameter: "device", Attribute: "ifName"}},
			Output:           chainapi.PluginOutput{Devices: "moves"},
			Config: &chainapi.PluginConfig{Properties: map[string]chainapi.Parameter{"network": text, "mode": text,
				"device": text}}}}))
	topology := testTopology()
	topology.Spec.Steps[0].Config = &runtime.RawExtension{Raw: []byte(`{"network": "{{ pod.namespace }}/tenant"}`)}
	f.must(f.cluster.topologies.GetStore().Add(topology))
	f.cluster.readDefinition = func(_ context.Context, name string) ([]byte, error) {
		if name != "ns/tenant" {
			return nil, errors.New("asked for " + name)
		}
		return []byte(`{"spec": {"config": "{\"type\": \"host-device\", \"name\": \"blue\", \"network\": ` +
			`\"ns/tenant\", \"mode\": \"fast\"}"}}`), nil
	}
	return f
}

// A claim uses its network's definition as it was when the claim was prepared, and the interface in the pod gets the
// name from the annotation.
func TestNetworkThatThePodSelects(t *testing.T) {
	f := selecting(t)
	pod := podObject("a", "c")
	pod.Annotations = map[string]string{selectsNetworks: "other,tenant"}
	f.addPod(pod)
	claim := allocatedClaim("c", "up0", "a")
	results, err := f.dra.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claim})
	f.must(err)
	f.must(results["c"].Err)
	record, _ := f.claims.Get("c")
	step := record.Plans[0].Steps[0]
	if string(step.Config) != `{"mode":"fast","network":"{{ pod.namespace }}/tenant"}` || step.Network != "blue" {
		t.Errorf("got network %s, configuration %s", step.Network, step.Config)
	}
	f.runs("a-0")
	sandbox := f.sandbox("a-0")
	sandbox.Annotations = map[string]string{selectsNetworks: "tenant@fast0"} // the sandbox takes precedence
	f.must(f.nri.RunPodSandbox(t.Context(), sandbox))
	if steps := f.boxes.AttachedSteps("c"); len(steps) == 0 || steps[0].IfName != "fast0" {
		t.Errorf("steps = %+v, want interface fast0", steps)
	}
}

// If a pod can never be attached, the preparation of its claim already fails with the reason. The claim holds no
// devices, and no plugin is called.
func TestNetworkThatThePodDoesNotSelect(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "network-attachment-definitions"}, "tenant")
	for name, test := range map[string]struct {
		annotation string
		read       func(context.Context, string) ([]byte, error)
		want       string
	}{
		"no annotation": {want: "pod ns/a: cannot attach step \"link\" (host-device) of topology t: the pod's " +
			"annotation " + selectsNetworks + " must select network ns/tenant for it, and the pod has no such " +
			"annotation"},
		"no definition": {annotation: "tenant", want: "ns/tenant (no such NetworkAttachmentDefinition",
			read: func(context.Context, string) ([]byte, error) { return nil, notFound }},
		"nothing that the API server says": {annotation: "tenant",
			want: "cannot read NetworkAttachmentDefinition ns/tenant: unreachable",
			read: func(context.Context, string) ([]byte, error) { return nil, errors.New("unreachable") }},
		"a definition that is not JSON": {annotation: "tenant",
			want: "cannot read NetworkAttachmentDefinition ns/tenant",
			read: func(context.Context, string) ([]byte, error) { return []byte("<html>"), nil }},
	} {
		t.Run(name, func(t *testing.T) {
			f := selecting(t)
			if test.read != nil {
				f.cluster.readDefinition = test.read
			}
			pod := podObject("a", "c")
			pod.Annotations = map[string]string{selectsNetworks: test.annotation}
			f.addPod(pod)
			results, err := f.dra.PrepareResourceClaims(t.Context(),
				[]*resourceapi.ResourceClaim{allocatedClaim("c", "up0", "a")})
			f.must(err)
			if err := results["c"].Err; err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q", err, test.want)
			}
			if held := f.claims.All(); len(held) > 0 {
				t.Errorf("held claims = %v, want none", held)
			}
		})
	}
}

// A claim that is used by several pods is prepared for the pods that select its network. A sandbox of any other pod is
// rejected before a plugin is called.
func TestNetworkThatOnePodOfAClaimSelects(t *testing.T) {
	f := selecting(t)
	claim := allocatedClaim("c", "up0", "a")
	var users []resourceapi.ResourceClaimConsumerReference
	for _, name := range []string{"a", "b"} {
		pod := podObject(name, "c")
		if name == "a" {
			pod.Annotations = map[string]string{selectsNetworks: "tenant"}
		}
		f.addPod(pod)
		users = append(users, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: pod.UID})
	}
	reserve(claim, users...)
	results, err := f.dra.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claim})
	f.must(err)
	f.must(results["c"].Err)
	before := f.node.String()
	f.runs("b-0")
	if err := f.nri.RunPodSandbox(t.Context(), f.sandbox("b-0")); err == nil ||
		!strings.Contains(err.Error(), "add ns/tenant to the annotation") {
		t.Errorf("error = %v, want \"add ns/tenant to the annotation\"", err)
	}
	f.eventually("nothing is left of the sandbox", func() bool { return f.boxes.Count() == 0 })
	f.ends("b-0")
	if after := f.node.String(); after != before {
		t.Errorf("node = %s\nwant   %s", after, before)
	}
}
