package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// NetworkStatus is the annotation in which Multus and other components list a pod's networks (Kubernetes Network Custom
// Resource Definition De-facto Standard, section 3.4).
const NetworkStatus = "k8s.v1.cni.cncf.io/network-status"

// Networks writes the interfaces of pods into this annotation in the background, alongside the entries from other
// components. The entries are computed from the attachments, so nothing is lost in a crash.
type Networks struct {
	client kubernetes.Interface
	claims *claims.Store
	// sandboxes returns the current sandboxes on the node.
	sandboxes func() []nodestate.Sandbox
	queue     queue
}

// NewNetworks creates the component; Run starts it.
func NewNetworks(client kubernetes.Interface, store *claims.Store, sandboxes func() []nodestate.Sandbox) *Networks {
	return &Networks{client: client, claims: store, sandboxes: sandboxes, queue: newQueue()}
}

// Changed requests an update of the annotation on each of a claim's pods. It does not block. On a nil receiver, it does
// nothing.
func (n *Networks) Changed(claimUID string) {
	if n != nil {
		n.queue.Add(claimUID)
	}
}

// Run writes annotations until ctx is done. On a nil receiver, it returns immediately.
func (n *Networks) Run(ctx context.Context) error {
	if n != nil {
		n.queue.run(ctx, n.claims.All(), n.write, "Cannot write the network status of a pod; trying again")
	}
	return nil
}

// write writes the annotations of all pods that use a claim. A failure for one pod must not affect the others, since it
// may be caused by the existing annotation, which the pod's author can set to anything.
func (n *Networks) write(ctx context.Context, claimUID string) error {
	var problems []error
	for _, box := range n.sandboxes() {
		if box.State != nodestate.SandboxReady || !slices.Contains(box.Claims, claimUID) {
			continue
		}
		if err := n.annotate(ctx, box.Pod, n.entries(&box)); err != nil {
			problems = append(problems, fmt.Errorf("pod %s: %w", box.Pod, err))
		}
	}
	return errors.Join(problems...)
}

// networkEntry is an entry in the annotation's list. The driver recognizes its own entries by a field that readers
// ignore.
type networkEntry struct {
	Name       string              `json:"name"`
	Interface  string              `json:"interface,omitempty"`
	IPs        []string            `json:"ips,omitempty"`
	MAC        string              `json:"mac,omitempty"`
	DeviceInfo *nodeapi.DeviceInfo `json:"device-info,omitempty"`
	ClaimUID   string              `json:"dra.networking/claim"`
}

// entries returns the interfaces that the driver has attached to a pod. An entry's name consists of the pod's namespace
// and the topology's name: if the topology was imported from a NetworkAttachmentDefinition, this is also the name of
// the definition.
func (n *Networks) entries(box *nodestate.Sandbox) []networkEntry {
	var entries []networkEntry
	for i := range box.Interfaces {
		link := &box.Interfaces[i]
		record, prepared := n.claims.Get(link.ClaimUID)
		if !prepared || link.Interface == "" && len(link.DeviceNodes) == 0 {
			continue
		}
		entry := networkEntry{Name: box.Pod.Namespace + "/" + topologyOf(&record, link), Interface: link.Interface,
			MAC: link.MAC, ClaimUID: link.ClaimUID}
		for _, address := range link.IPs {
			if prefix, err := netip.ParsePrefix(address); err == nil {
				entry.IPs = append(entry.IPs, prefix.Addr().String())
			}
		}
		entry.DeviceInfo = deviceInfo(&record, link)
		entries = append(entries, entry)
	}
	return entries
}

func topologyOf(record *claims.Record, link *nodestate.Interface) string {
	for i := range record.Plans {
		for j := range record.Plans[i].Steps {
			if device := record.Plans[i].Steps[j].Device; device != nil && device.Pool == link.Pool &&
				device.Name == link.Device {
				return record.Plans[i].Topology
			}
		}
	}
	return record.Claim.Name
}

// deviceInfo returns the device information for a PCI function that a pod uses exclusively, or nil for any other link.
func deviceInfo(record *claims.Record, link *nodestate.Interface) *nodeapi.DeviceInfo {
	i := slices.IndexFunc(record.Devices,
		func(d claims.HeldDevice) bool { return d.Pool == link.Pool && d.Name == link.Device })
	if i < 0 || !record.Devices[i].Exclusive || record.Devices[i].Facts.PCIAddress == "" {
		return nil
	}
	facts := &record.Devices[i].Facts
	info := nodeapi.NewDeviceInfo(nodeapi.PCIDeviceInfo{Address: string(facts.PCIAddress),
		PFAddress: string(facts.PFAddress)})
	info.WrittenBy = "" // the entry itself identifies the driver
	return &info
}

// annotate replaces the driver's entries in a pod's annotation. If another client changes the pod concurrently, the API
// server rejects the patch, so no entry is lost.
func (n *Networks) annotate(ctx context.Context, pod executor.Pod, entries []networkEntry) error {
	if len(entries) == 0 {
		return nil
	}
	pods := n.client.CoreV1().Pods(pod.Namespace)
	found, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && string(found.UID) != pod.UID {
		return nil
	}
	if err != nil {
		return err
	}
	value, err := merge(found.Annotations[NetworkStatus], entries)
	if err != nil || value == found.Annotations[NetworkStatus] {
		return err
	}
	// The UID causes the API server to reject the patch if the name now belongs to another pod, and the resource
	// version causes it to reject the patch if the pod has changed since it was read. In both cases, the update is
	// retried from the start.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID,
		"resourceVersion": found.ResourceVersion, "annotations": map[string]string{NetworkStatus: value}}})
	if err != nil {
		return err
	}
	_, err = pods.Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; set features.networkStatus of the chart, which permits it", err)
	}
	return err
}

// merge replaces the driver's previous entries in a list. Entries from other components keep all of their fields and
// are placed first.
func merge(value string, entries []networkEntry) (string, error) {
	var all []json.RawMessage
	if value != "" {
		if err := json.Unmarshal([]byte(value), &all); err != nil {
			return "", fmt.Errorf("cannot add to annotation %s, which is not a list: %w; correct the "+
				"annotation", NetworkStatus, err)
		}
	}
	all = slices.DeleteFunc(all, func(entry json.RawMessage) bool {
		var mine networkEntry
		return json.Unmarshal(entry, &mine) == nil && mine.ClaimUID != ""
	})
	for i := range entries {
		data, err := json.Marshal(&entries[i])
		if err != nil {
			return "", err
		}
		all = append(all, data)
	}
	merged, err := json.MarshalIndent(all, "", "    ") // indented as in Multus, for readability
	return string(merged), err
}
