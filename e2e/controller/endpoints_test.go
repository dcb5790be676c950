package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryapi "k8s.io/api/discovery/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

const endpointObjects = `
apiVersion: networking.dra.io/v1alpha1
kind: AddressRange
metadata: {name: storage}
spec: {cidrs: [10.60.0.0/24, "fd00:60::/120"], blockSize: 16}
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: storage}
spec:
  steps:
  - name: port
    type: macvlan
    selector: {cel: 'device.attributes["dra.networking"].ifName == "eth1"'}
    addressRange: storage
    config: {mode: bridge, ipam: {type: host-local}}
---
apiVersion: v1
kind: Service
metadata:
  name: db
  namespace: default
  annotations: {networking.dra.io/endpoints-topology: storage, networking.dra.io/endpoints-selector: app=db}
spec: {clusterIP: None, ports: [{name: sql, port: 5432}]}
`

// A real API server accepts the objects that the controller writes: address blocks, which cannot be reassigned to other
// nodes, and endpoints for a Service, which follow its pods.
func TestAddressesAndEndpoints(t *testing.T) {
	p := newPlane(t)
	p.kubectl(endpointObjects, "apply", "-f", "-")
	p.startController("--service-endpoints")
	t.Run("nodes get blocks, and only a range that grows is taken", func(t *testing.T) { p.forTest(t).testBlocks() })
	t.Run("endpoints are the pods' addresses", func(t *testing.T) { p.forTest(t).testEndpoints() })
}

func (p *plane) testBlocks() {
	p.t.Helper()
	p.node("n1")
	p.node("n2")
	block := &v1alpha1.AddressBlock{}
	p.until("both nodes have a block", func() error {
		var list v1alpha1.AddressBlockList
		if err := p.api.List(p.t.Context(), &list, client.MatchingFields{"spec.nodeName": "n2"}); err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("node n2 has %d blocks", len(list.Items))
		}
		block = &list.Items[0]
		return nil
	})
	// Use a patch, because an update would conflict with concurrent writes by the controller.
	move := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"nodeName": "n1"}}`))
	if err := p.api.Patch(p.t.Context(), block, move); err == nil ||
		!strings.Contains(err.Error(), "a block is never reassigned to another node") {
		p.t.Errorf("reassigning a block to another node returned %v, want a rejection", err)
	}
	for patch, reason := range map[string]string{
		`{"spec": {"blockSize": 32}}`:                                    "blockSize cannot change",
		`{"spec": {"cidrs": ["10.60.0.0/25", "fd00:60::/120"]}}`:         "cidrs cannot change but for becoming larger",
		`{"spec": {"cidrs": ["10.61.0.0/24", "fd00:60::/120"]}}`:         "cidrs cannot change but for becoming larger",
		`{"spec": {"cidrs": ["10.60.0.0/24"]}}`:                          "cidrs cannot change but for becoming larger",
		`{"spec": {"cidrs": ["10.60.0.1/24", "fd00:60::/120"]}}`:         "each must be a network",
		`{"spec": {"cidrs": ["10.60.0.0/24", "10.70.0.0/24"]}}`:          "two CIDRs must be of different families",
		`{"spec": {"exclude": ["10.60.0.9/24"]}}`:                        "each must be an address or a network",
		`{"spec": {"returnDelay": "30s"}}`:                               "must be at least 1m",
		`{"spec": {"cidrs": ["10.60.0.0/20", "fd00:60::/64"]}}`:          "",
		`{"spec": {"exclude": ["10.60.0.9", "10.60.1.0/24", "fd00::"]}}`: "",
	} {
		out, err := p.try("", "patch", "addressrange", "storage", "--type=merge", "-p", patch)
		if reason == "" && err != nil || reason != "" && (err == nil || !strings.Contains(out, reason)) {
			p.t.Errorf("patch %s returned %v: %s, want %q", patch, err, out, reason)
		}
	}
	p.until("blocks have the current settings of the range", func() error {
		out := p.kubectl("", "get", "addressblocks", "-o", "jsonpath={.items[*].spec}")
		if strings.Count(out, "10.60.0.0/20") != 2 || strings.Count(out, "10.60.0.9/32") != 1 {
			return fmt.Errorf("blocks are %s", out)
		}
		return nil
	})
	p.until("the blocks of a node that is gone are released", func() error {
		if _, err := p.try("", "delete", "node", "n2", "--ignore-not-found"); err != nil {
			return err
		}
		if out := p.kubectl("", "get", "addressblocks"); strings.Count(out, "n2") != 1 {
			return fmt.Errorf("blocks are %s", out)
		}
		out := p.kubectl("", "get", "addressrange", "storage", "-o", "jsonpath={.status.given} {.status.returning}")
		if out != "2 1" {
			return fmt.Errorf("the numbers of given and returning blocks are %s", out)
		}
		return nil
	})
}

func (p *plane) node(name string) {
	p.t.Helper()
	if err := p.api.Create(p.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		p.t.Fatal(err)
	}
}

// servicePod creates a ready pod with a claim, in the state that they would have on a node with the driver.
func (p *plane) servicePod(name, address string) *corev1.Pod {
	p.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		Labels: map[string]string{"app": "db"}}}
	pod.Spec = corev1.PodSpec{NodeName: "n3", Containers: []corev1.Container{{Name: "a", Image: "a"}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "net", ResourceClaimName: &name}}}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "net",
		Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "storage-port"}}}
	parameters, err := json.Marshal(map[string]any{"networkTopologyRef": map[string]string{"name": "storage"},
		"step": "port"})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, object := range []client.Object{pod, claim} {
		if err := p.api.Create(p.t.Context(), object); err != nil {
			p.t.Fatal(err)
		}
	}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name,
		UID: pod.UID}}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "net", Driver: v1alpha1.DriverName,
			Pool: "n3/eth1", Device: name}},
		Config: []resourceapi.DeviceAllocationConfiguration{{Source: resourceapi.AllocationConfigSourceClass,
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: v1alpha1.DriverName, Parameters: runtime.RawExtension{Raw: parameters}}}}},
	}}
	if err := p.api.Status().Update(p.t.Context(), claim); err != nil {
		p.t.Fatal(err)
	}
	claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: v1alpha1.DriverName, Pool: "n3/eth1",
		Device: name, NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{address}}}}
	if err := p.api.Status().Update(p.t.Context(), claim); err != nil {
		p.t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := p.api.Status().Update(p.t.Context(), pod); err != nil {
		p.t.Fatal(err)
	}
	return pod
}

// endpoints waits until the Service has exactly the given endpoints, in the form "address ready serving terminating".
func (p *plane) endpoints(want ...string) {
	p.t.Helper()
	p.until(fmt.Sprintf("endpoints are %q", want), func() error {
		var list discoveryapi.EndpointSliceList
		ofService := client.MatchingLabels{discoveryapi.LabelServiceName: "db"}
		if err := p.api.List(p.t.Context(), &list, ofService); err != nil {
			return err
		}
		var got []string
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				got = append(got, fmt.Sprint(e.Addresses[0], " ", *e.Conditions.Ready, " ", *e.Conditions.Serving, " ",
					*e.Conditions.Terminating))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("endpoints are %q", got)
		}
		return nil
	})
}

func (p *plane) testEndpoints() {
	p.t.Helper()
	// Create the node only now, because without a kubelet, a node and its pods stop being ready after a minute.
	p.node("n3")
	p.until("the namespace has a ServiceAccount", func() error {
		_, err := p.try("", "get", "serviceaccount", "default")
		return err
	})
	p.servicePod("one", "10.60.0.2/24")
	two := p.servicePod("two", "fd00:60::3/120")
	p.endpoints("10.60.0.2 true true false", "fd00:60::3 true true false")
	// Because of the grace period, the API server keeps the pod and waits for a kubelet, which does not exist here.
	p.kubectl("", "delete", "pod", "one", "--wait=false", "--grace-period=60")
	p.endpoints("10.60.0.2 false true true", "fd00:60::3 true true false")
	p.kubectl("", "delete", "pod", "one", "--force", "--grace-period=0")
	p.endpoints("fd00:60::3 true true false")
	two.Status.Conditions[0].Status = corev1.ConditionFalse
	two.ResourceVersion = ""
	if err := p.api.Status().Update(p.t.Context(), two); err != nil {
		p.t.Fatal(err)
	}
	p.endpoints("fd00:60::3 false false false")
	// A Service with a selector is assigned the cluster's IP families, and the cluster may have only one.
	p.kubectl("", "patch", "service", "db", "--type=merge", "-p",
		`{"spec": {"selector": {"app": "db"}, "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}}`)
	p.until("an event reports that there are none", func() error {
		if out := p.kubectl("", "get", "events", "--field-selector", "reason=NoEndpoints"); !strings.Contains(out,
			"the Service has a spec.selector") {
			return fmt.Errorf("events are %s", out)
		}
		return nil
	})
	p.until("its slices are Kubernetes' own", func() error {
		out := p.kubectl("", "get", "endpointslices", "-l", "endpointslice.kubernetes.io/managed-by="+
			"dra-network-controller.networking.dra.io", "-o", "name")
		if out != "" {
			return fmt.Errorf("the remaining objects are %s", out)
		}
		return nil
	})
}
