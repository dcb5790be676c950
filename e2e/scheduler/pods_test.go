package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	chain "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// anyPlugin is the class that contains all of the driver's devices.
const anyPlugin = "network"

// classes returns a DeviceClass for each CNI plugin, like the classes that the controller creates for topologies, and
// one for all devices. If lists is true, the classes expect a device's CNI plugins in a single list attribute.
func classes(lists bool) string {
	class := func(name string, conditions ...string) string {
		isOurs := fmt.Sprintf("device.driver == %q", v1alpha1.AttributeDomain)
		expression := strings.Join(append([]string{isOurs}, conditions...), " && ")
		return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: %[1]s, labels: {%[2]s: %[1]s, %[3]s: link}}
spec:
  selectors:
  - cel: {expression: '%[4]s'}
  config:
  - opaque:
      driver: %[5]s
      parameters: {apiVersion: networking.dra.io/v1alpha1, kind: StepParameters, networkTopologyRef: {name: %[1]s}, step: link}
`, name, chain.LabelTopology, chain.LabelStep, expression, chain.DriverName)
	}
	documents := []string{class(anyPlugin)}
	for _, plugin := range []string{"host-device", "ipvlan", "macvlan", "sriov"} {
		supports := fmt.Sprintf(`device.attributes["cni.dra.networking"].?%s.orValue(false)`,
			v1alpha1.CNIAttribute(plugin))
		if lists {
			const list = `device.attributes["dra.networking"].supportedCNIs`
			supports = fmt.Sprintf("has(%s) && %s.includes(%q)", list, list, plugin)
		}
		documents = append(documents, class(plugin, supports))
	}
	return strings.Join(documents, "---\n")
}

// request is a request for one device from a class.
type request struct {
	class string
	// nic is the interface name of the requested NIC, or of the NIC whose virtual function is requested; empty means
	// any NIC.
	nic string
	// capacity is the capacity requested from the device, such as "bandwidth": "10000".
	capacity map[string]string
}

// claim returns a claim with several requests.
func claim(requests ...request) resourceapi.ResourceClaimSpec {
	var spec resourceapi.ResourceClaimSpec
	for i, r := range requests {
		exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: r.class}
		if r.nic != "" {
			// Only virtual functions have the attribute pfName.
			exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(
				`device.attributes["dra.networking"].ifName == %q || `+
					`device.attributes["dra.networking"].?pfName.orValue("") == %q`, r.nic, r.nic)}}}
		}
		if len(r.capacity) > 0 {
			exactly.Capacity = &resourceapi.CapacityRequirements{
				Requests: map[resourceapi.QualifiedName]resource.Quantity{},
			}
			for key, amount := range r.capacity {
				exactly.Capacity.Requests[resourceapi.QualifiedName(v1alpha1.AttributeDomain+"/"+
					key)] = resource.MustParse(amount)
			}
		}
		spec.Devices.Requests = append(spec.Devices.Requests,
			resourceapi.DeviceRequest{Name: fmt.Sprintf("r%d", i), Exactly: exactly})
	}
	return spec
}

// pod creates a pod that can run only on this node, with a claim for each spec, and returns the pod's name. If
// templates is set, the claims are created from templates.
func (n node) pod(
	ctx context.Context, name string, templates bool, specs ...resourceapi.ResourceClaimSpec,
) (string, error) {
	name = n.name + "-" + name
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: n.name},
			Containers:   []corev1.Container{{Name: "main", Image: "never-pulled"}},
		},
	}
	for i, spec := range specs {
		use, err := n.claim(ctx, fmt.Sprintf("%s-%d", name, i), templates, spec)
		if err != nil {
			return "", err
		}
		use.Name = fmt.Sprintf("net%d", i)
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, use)
	}
	_, err := n.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{})
	return name, err
}

// claim creates a claim or a claim template, and returns the entry that refers to it in a pod's spec.
func (n node) claim(
	ctx context.Context, name string, template bool, spec resourceapi.ResourceClaimSpec,
) (corev1.PodResourceClaim, error) {
	api, object := n.client.ResourceV1(), metav1.ObjectMeta{Name: name}
	if template {
		_, err := api.ResourceClaimTemplates(metav1.NamespaceDefault).Create(ctx, &resourceapi.ResourceClaimTemplate{
			ObjectMeta: object, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec},
		}, metav1.CreateOptions{})
		return corev1.PodResourceClaim{ResourceClaimTemplateName: &name}, err
	}
	_, err := api.ResourceClaims(metav1.NamespaceDefault).Create(ctx,
		&resourceapi.ResourceClaim{ObjectMeta: object, Spec: spec}, metav1.CreateOptions{})
	return corev1.PodResourceClaim{ResourceClaimName: &name}, err
}

// release deletes a pod, which releases its claims.
func (n node) release(ctx context.Context, pod string) error {
	now := int64(0)
	return n.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, pod,
		metav1.DeleteOptions{GracePeriodSeconds: &now})
}

// verdict is the scheduler's decision on a pod.
type verdict int

const (
	undecided verdict = iota
	scheduled
	refused
)

// verdict returns the scheduler's current decision on a pod. Only a pod whose claims cannot be allocated is considered
// rejected: an unscheduled pod may also be waiting until its claims have been created or a pool is complete.
func (n node) verdict(name string) (verdict, error) {
	pod, err := n.pods.Get(name)
	if err != nil {
		return undecided, err // the pod is not in the cache yet
	}
	if pod.Spec.NodeName != "" {
		return scheduled, nil
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			if c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, "cannot allocate all claims") {
				return refused, fmt.Errorf("%s: %s", c.Reason, c.Message)
			}
			return undecided, fmt.Errorf("%s: %s", c.Reason, c.Message)
		}
	}
	return undecided, fmt.Errorf("the scheduler has not processed the pod yet")
}

// decided waits until the scheduler has made a decision on a pod, and reports whether the pod was scheduled.
func (n node) decided(ctx context.Context, pod string) (bool, error) {
	var v verdict
	err := n.until(ctx, "pod "+pod+" is scheduled or refused", func() (err error) {
		if v, err = n.verdict(pod); v != undecided {
			return nil
		}
		return err
	})
	return v == scheduled, err
}

// allocated waits until a pod is scheduled, and returns its devices, ordered by claim and request.
func (n node) allocated(
	ctx context.Context, name string,
) (devices []resourceapi.DeviceRequestAllocationResult, err error) {
	err = n.until(ctx, "pod "+name+" is scheduled and its claims are allocated", func() error {
		if v, err := n.verdict(name); v != scheduled {
			return err
		}
		devices, err = n.results(name)
		return err
	})
	return devices, err
}

// outcome waits until a pod is scheduled or rejected as expected, and returns its devices. If the pod is expected to be
// scheduled, outcome ignores earlier rejections, because the scheduler might not have received the node's devices yet.
func (n node) outcome(
	ctx context.Context, pod string, wanted bool,
) ([]resourceapi.DeviceRequestAllocationResult, error) {
	if wanted {
		return n.allocated(ctx, pod)
	}
	used, err := n.decided(ctx, pod)
	if used {
		err = errors.New("it is scheduled")
	}
	return nil, err
}

// results returns the allocation results of a pod's claims.
func (n node) results(name string) ([]resourceapi.DeviceRequestAllocationResult, error) {
	pod, err := n.pods.Get(name)
	if err != nil {
		return nil, err
	}
	var devices []resourceapi.DeviceRequestAllocationResult
	for i := range pod.Spec.ResourceClaims {
		claimName, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		claim, err := n.claims.Get(*claimName)
		if err != nil {
			return nil, err
		}
		if claim.Status.Allocation == nil {
			return nil, fmt.Errorf("claim %s has no allocation", *claimName)
		}
		devices = append(devices, claim.Status.Allocation.Devices.Results...)
	}
	return devices, nil
}

// names returns the names of devices.
func names(devices []resourceapi.DeviceRequestAllocationResult) string {
	var list []string
	for _, d := range devices {
		list = append(list, d.Device)
	}
	return strings.Join(list, ", ")
}
