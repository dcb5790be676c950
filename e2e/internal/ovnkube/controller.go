package ovnkube

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// attachmentDefinitions is the resource for NetworkAttachmentDefinitions.
func attachmentDefinitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1",
		Resource: "network-attachment-definitions"}
}

// Controller allocates addresses to the pods on a node: one for each network that a pod requests and that a
// NetworkAttachmentDefinition describes. It writes the addresses to the pods' annotations. These annotations are the
// only record of allocations, so the controller is stateless, and nothing is lost when it restarts. Likewise, the real
// controller rebuilds its allocator from the annotations. A single controller for the node is enough for tests; two
// controllers could allocate the same address.
type Controller struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	Clock   clock.Clock
	Node    string
}

// interval is the pause between syncs.
const interval = 100 * time.Millisecond

// Run syncs until ctx is done. It lists the objects each time, because in a test cluster, a watch would not be cheaper,
// and its cache could be outdated.
func (c *Controller) Run(ctx context.Context) {
	for {
		if err := c.sync(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Cannot give addresses to all pods; trying again")
		}
		select {
		case <-ctx.Done():
			return
		case <-c.Clock.After(interval):
		}
	}
}

func (c *Controller) sync(ctx context.Context) error {
	networks, err := c.networks(ctx)
	if err != nil {
		return err
	}
	pods, err := c.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + c.Node})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName != c.Node || !isAlive(pod) {
			continue
		}
		if err := c.assign(ctx, pod, networks, pods.Items); err != nil {
			klog.ErrorS(err, "Cannot give a pod addresses", "pod", klog.KObj(pod))
		}
	}
	return nil
}

// isAlive reports whether a pod still needs its addresses. A pod that has terminated still has its annotation, but its
// addresses can be allocated to other pods.
func isAlive(pod *corev1.Pod) bool {
	return !pod.Spec.HostNetwork && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// networks returns the networks defined by valid NetworkAttachmentDefinitions, keyed by namespace/name.
func (c *Controller) networks(ctx context.Context) (map[string]*network, error) {
	list, err := c.Dynamic.Resource(attachmentDefinitions()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list NetworkAttachmentDefinitions: %w", err)
	}
	networks := map[string]*network{}
	for i := range list.Items {
		config, _, err := unstructured.NestedString(list.Items[i].Object, "spec", "config")
		name := list.Items[i].GetNamespace() + "/" + list.Items[i].GetName()
		if err != nil {
			continue
		}
		if n, err := parseNetwork(name, []byte(config)); err == nil {
			networks[name] = n
		}
	}
	return networks, nil
}

// assign allocates any addresses that a pod does not have yet and writes them to its annotation. It skips networks
// whose object is missing or invalid. As with the real controller, the pod's ADD then waits for the addresses and times
// out. The patch contains the pod's UID, so it fails if another pod with the same name has been created.
func (c *Controller) assign(
	ctx context.Context, pod *corev1.Pod, networks map[string]*network, pods []corev1.Pod,
) error {
	wanted, err := selections(pod)
	if err != nil {
		return err
	}
	given, err := podNetworks(pod)
	if err != nil {
		return err
	}
	changed := false
	seen := map[string]int{}
	for _, element := range wanted {
		nad := element.nad()
		key := indexed(nad, seen[nad])
		seen[nad]++
		if _, has := given[key]; has || networks[nad] == nil {
			continue
		}
		addresses, err := allocate(networks[nad], string(pod.UID)+key, taken(pods, given))
		if err != nil {
			return err
		}
		given[key], changed = addresses, true
	}
	if !changed {
		return nil
	}
	text, err := json.Marshal(given)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]string{podNetworksAnnotation: string(text)}}})
	if err != nil {
		return err
	}
	pod.Annotations[podNetworksAnnotation] = string(text) // so that the following pods get other addresses
	_, err = c.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	return err
}

// taken returns the addresses of all pods that still need theirs, and the addresses that are currently being allocated
// to a pod.
func taken(pods []corev1.Pod, given map[string]podNetwork) map[string]bool {
	addresses := map[string]bool{}
	note := func(networks map[string]podNetwork) {
		for _, have := range networks {
			for _, address := range have.IPs {
				addresses[address] = true
			}
		}
	}
	note(given)
	for i := range pods {
		if !isAlive(&pods[i]) {
			continue
		}
		if have, err := podNetworks(&pods[i]); err == nil {
			note(have)
		}
	}
	return addresses
}

// allocate allocates the first free address in each subnet, excluding the subnet's first and last addresses. The MAC
// address is derived from the IPv4 address, or from the owner's name if there is no IPv4 address. 0a:58 followed by the
// address is the format of OVN-Kubernetes (util.IPAddrToHWAddr).
func allocate(n *network, owner string, taken map[string]bool) (podNetwork, error) {
	sum := sha256.Sum256([]byte(owner))
	mac := append(net.HardwareAddr{0x0a, 0x58}, sum[:4]...)
	given := podNetwork{Role: "secondary"}
	for _, subnet := range n.subnets {
		address, found := firstFree(subnet, n.exclusions, taken)
		if !found {
			return podNetwork{}, fmt.Errorf("subnet %s is full", subnet)
		}
		if address.Is4() && len(given.IPs) == 0 {
			mac = append(net.HardwareAddr{0x0a, 0x58}, address.AsSlice()...)
		}
		given.IPs = append(given.IPs, netip.PrefixFrom(address, subnet.Bits()).String())
	}
	given.MAC = strings.ToLower(mac.String())
	return given, nil
}

func firstFree(subnet netip.Prefix, exclusions []netip.Prefix, taken map[string]bool) (netip.Addr, bool) {
	for address := subnet.Addr().Next(); subnet.Contains(address.Next()); address = address.Next() {
		if !slices.ContainsFunc(exclusions, func(p netip.Prefix) bool { return p.Contains(address) }) &&
			!taken[netip.PrefixFrom(address, subnet.Bits()).String()] {
			return address, true
		}
	}
	return netip.Addr{}, false
}
