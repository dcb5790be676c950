package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Kinds of objects that identify a node.
const (
	kindNode  = "node"
	kindPod   = "pod"
	kindClaim = "claim"
)

// Object is an object specified by the user.
type Object struct{ Kind, Name string }

// ParseObject parses TYPE/NAME, using kubectl's type names, and reports whether text has this form. Therefore,
// NAMESPACE/NAME is parsed as a pod if the namespace is called "pod".
func ParseObject(text string) (Object, bool) {
	kind, name, found := strings.Cut(text, "/")
	if !found || name == "" || strings.Contains(name, "/") {
		return Object{}, false
	}
	for _, known := range [][]string{{kindNode, "nodes", "no"}, {kindPod, "pods", "po"},
		{kindClaim, "claims", "resourceclaim", "resourceclaims"}} {
		if slices.Contains(known, kind) {
			return Object{Kind: known[0], Name: name}, true
		}
	}
	return Object{}, false
}

// Place is the location of an object.
type Place struct {
	Node string
	// Claims are the object's claims, as NAMESPACE/NAME. Devices are this driver's devices that are allocated to the
	// claims. Both are empty for a node.
	Claims, Devices []string
}

// Locate determines an object's node, its claims and their devices.
func (c *Cluster) Locate(ctx context.Context, object Object) (*Place, error) {
	switch object.Kind {
	case kindNode:
		return &Place{Node: object.Name}, nil
	case kindPod:
		return c.locatePod(ctx, c.Namespace, object.Name)
	}
	return c.locateClaim(ctx, c.Namespace, object.Name)
}

// locatePod determines a pod's node and its claims. If the caller lacks a permission, the error names it.
func (c *Cluster) locatePod(ctx context.Context, namespace, name string) (*Place, error) {
	pod, err := c.Core.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, c.denied(fmt.Sprintf("get pod %s/%s", namespace, name), err)
	}
	if pod.Spec.NodeName == "" {
		return nil, fmt.Errorf("cannot query a node for pod %s/%s: the pod is not scheduled; for the reason, run "+
			"\"netdra simulate --pod %s/%s\"", namespace, name, namespace, name)
	}
	place := &Place{Node: pod.Spec.NodeName}
	for claim := range resourceclaim.PodClaims(pod) {
		found, err := c.Resource.ResourceClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return nil, c.denied(fmt.Sprintf("get claim %s/%s", namespace, claim), err)
		}
		if devices := devicesOf(found); len(devices) > 0 { // claims for other drivers have no devices of this driver
			place.Claims = append(place.Claims, namespace+"/"+claim)
			place.Devices = append(place.Devices, devices...)
		}
	}
	return place, nil
}

// Topologies returns the NetworkTopologies in the cluster. It reads the list as JSON from its path, which makes it
// unnecessary to link a client for the driver's API group.
func (c *Cluster) Topologies(ctx context.Context) ([]v1alpha1.NetworkTopology, error) {
	var list v1alpha1.NetworkTopologyList
	data, err := c.Raw(ctx, "/apis/"+v1alpha1.GroupVersion().String()+"/networktopologies")
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	return list.Items, err
}

// devicesOf returns this driver's devices that are allocated to a claim, without duplicates.
func devicesOf(claim *resourceapi.ResourceClaim) []string {
	if claim.Status.Allocation == nil {
		return nil
	}
	var devices []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == v1alpha1.DriverName && !slices.Contains(devices, result.Device) {
			devices = append(devices, result.Device)
		}
	}
	return devices
}

func (c *Cluster) locateClaim(ctx context.Context, namespace, name string) (*Place, error) {
	claim, err := c.Resource.ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, c.denied(fmt.Sprintf("get claim %s/%s", namespace, name), err)
	}
	place := &Place{Claims: []string{namespace + "/" + name}, Devices: devicesOf(claim)}
	if len(place.Devices) == 0 {
		return nil, fmt.Errorf("cannot query a node for claim %s/%s: no device of this driver is allocated to it; for "+
			"the reason, run \"kubectl describe pod\" or \"netdra simulate --pod\" with its pod",
			namespace, name)
	}
	// This driver's devices are local to a node. As for all slices with a nodeName, the allocator adds a node selector
	// to the allocation.
	if place.Node = selectedNode(claim.Status.Allocation.NodeSelector); place.Node == "" {
		return nil, fmt.Errorf("cannot find the node of claim %s/%s: the allocation does not contain a node; name it "+
			"with --node", namespace, name)
	}
	return place, nil
}
