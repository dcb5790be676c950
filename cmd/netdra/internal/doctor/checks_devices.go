package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/discovery"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

func checkProblems(input *Input) []Finding {
	var found []Finding
	for _, problem := range input.Driver.State.Problems {
		finding := Finding{Level: Warn, What: problem.Text, Where: problem.Source,
			Why: "a device is not offered, or not in every way that its policy defines",
			Do:  "fix the reported problem; for details, run netdra explain DEVICE"}
		if problem.Remark {
			finding.Why = "devices are offered as the policy defines, which may not be what its author intended"
			finding.Do = "change the policy as suggested, or ignore this if it is intended"
		}
		found = append(found, finding)
	}
	return found
}

func checkGone(input *Input) []Finding {
	var found []Finding
	for _, device := range nodeclient.Devices(input.Driver) {
		if device.State != nodeclient.Gone {
			continue
		}
		found = append(found, Finding{
			Level: Fail, What: fmt.Sprintf("device %s no longer exists on the node", device.Name),
			Where: "held by " + cmp.Or(device.HeldBy(),
				"a claim"), Why: "these pods have lost this network, and no other claim can get the device",
			Do: "restore the device, then delete these pods to attach them again",
		})
	}
	return found
}

// checkInterfaces finds interfaces that are no longer in their pods. checkGone handles interfaces whose devices are
// missing.
func checkInterfaces(input *Input) []Finding {
	gone := map[string]bool{}
	for _, device := range nodeclient.Devices(input.Driver) {
		gone[device.Pool+"/"+device.Name] = device.State == nodeclient.Gone
	}
	var found []Finding
	for i := range input.Driver.Sandboxes {
		sandbox := &input.Driver.Sandboxes[i]
		for _, link := range sandbox.Interfaces {
			if link.Missing == "" || gone[link.Pool+"/"+link.Device] {
				continue
			}
			found = append(found, Finding{
				Level: Fail, What: fmt.Sprintf("pod %s has lost its interface %s", sandbox.Pod,
					link.Missing), Where: "device " + link.Device,
				Why: "the device or one of its lower devices was removed, or an application has moved the interface",
				Do: fmt.Sprintf("delete the pod to attach it again: kubectl -n %s delete pod %s",
					sandbox.Pod.Namespace, sandbox.Pod.Name),
			})
		}
	}
	return found
}

func checkQuarantine(input *Input) []Finding {
	var found []Finding
	for i := range input.Driver.Leftovers {
		leftover := &input.Driver.Leftovers[i]
		step := leftover.Step()
		finding := Finding{
			Level: Warn, What: fmt.Sprintf("%s of pod %s could not be undone", step.Title(),
				leftover.Attachment.Pod), Where: leftover.Key, Why: leftover.Reason,
			Do: "fix the reported cause, then run: netdra release " + leftover.Key + "; if the cleanup can never " +
				"succeed, abandon it with --forget",
		}
		if device := leftover.Quarantines(); device != nil {
			finding.Level, finding.What = Fail, fmt.Sprintf("device %s has been quarantined since pod %s ended",
				device.Name, leftover.Attachment.Pod)
		}
		found = append(found, finding)
	}
	return found
}

// owners returns other programs that allocate network devices to pods. DRA drivers are identified by the name with
// which they register at the kubelet, and device plugins by their process name.
func owners() []struct{ process, driver, title string } {
	return []struct{ process, driver, title string }{
		{process: "sriovdp", title: "the SR-IOV network device plugin"},
		{driver: "sriovnetwork.k8snetworkplumbingwg.io", title: "the SR-IOV DRA driver"},
		{driver: "dra.net", title: "the DRA network driver DRANET"},
	}
}

// checkOwners finds programs that may allocate the same devices as the driver. checkDoubleOwners finds actual
// conflicts.
func checkOwners(input *Input) []Finding {
	if len(input.Driver.Published) == 0 {
		return nil
	}
	var found []Finding
	for _, owner := range owners() {
		where := ""
		switch {
		case owner.process != "" && input.process(owner.process) != nil:
			where = "process " + owner.process
		case owner.driver != "" && slices.Contains(input.Registered, owner.driver):
			where = "kubelet's plugin " + owner.driver
		default:
			continue
		}
		found = append(found, Finding{
			Level: Warn, What: owner.title + " also runs on this node", Where: where,
			Why: "a device that both offer may be allocated twice, since neither considers the allocations of the " +
				"other",
			Do: "make sure that its configuration and the DeviceExposurePolicies name different devices, or remove it",
		})
	}
	if input.Multus == "" {
		return found
	}
	duplicates := attachedTwice(input)
	if len(duplicates) == 0 {
		duplicates = append(duplicates, Finding{
			Level: Warn, What: "Multus also attaches networks to pods of this node", Where: input.Multus,
			Why: "it attaches the device that a NetworkAttachmentDefinition names, even if a claim holds it",
			Do:  "make sure that no NetworkAttachmentDefinition names a device that netdra devices lists",
		})
	}
	return append(found, duplicates...)
}

// multusAnnotation is the pod annotation that lists the networks for Multus to attach.
const multusAnnotation = "k8s.v1.cni.cncf.io/networks"

// attachedTwice finds plugins that read the same pod annotation as Multus. For such a plugin, both it and Multus would
// create the interface.
func attachedTwice(input *Input) []Finding {
	var found []Finding
	for _, name := range sortedKeys(input.Plugins) {
		if plugin := input.Plugins[name]; plugin.PodAnnotation != multusAnnotation || plugin.Path == "" {
			continue
		}
		found = append(found, Finding{
			Level: Fail, What: fmt.Sprintf("Multus also attaches the networks that pods select for CNI plugin %s",
				name),
			Where: input.Multus,
			Why: "pods with claims for " + strings.Join(topologiesWith(input, name), ", ") + " cannot start: they " +
				"already have an interface of that name",
			Do: "let Multus attach these networks and remove the topologies, or do not run Multus on this node",
		})
	}
	return found
}

func checkDoubleOwners(input *Input) []Finding {
	var found []Finding
	seen := map[string]bool{}
	for _, pooled := range input.Pooled {
		// A device plugin may identify a device by PCI address or by interface name.
		named := func(e draslices.Entry) bool {
			return pooled.ID == string(e.Device.PCIAddress) || pooled.ID == string(e.Device.Interface)
		}
		i := slices.IndexFunc(input.Driver.Published, named)
		if i < 0 || pooled.ID == "" || seen[pooled.ID+" "+pooled.Resource] {
			continue
		}
		seen[pooled.ID+" "+pooled.Resource] = true
		finding := Finding{
			Level: Fail, What: fmt.Sprintf("device %s (%s) has two owners: a device plugin also offers it",
				input.Driver.Published[i].Name, pooled.ID), Where: pooled.Resource,
			Why: "the device may be allocated twice, since neither owner considers the allocations of the other",
			Do: "remove it from the pool of the device plugin, or exclude it with a DeviceExposurePolicy; the " +
				"kubelet removes a plugin five minutes after it has ended",
		}
		if pooled.Pod != "" {
			finding.What = fmt.Sprintf("device %s (%s) has two owners: a device plugin has allocated it to the pod "+
				"with UID %s", input.Driver.Published[i].Name, pooled.ID, pooled.Pod)
		}
		found = append(found, finding)
	}
	return found
}

// checkManagers finds devices for exclusive use that are configured by a network manager. Shared links stay on the
// host, where a network manager may configure them.
func checkManagers(input *Input) []Finding {
	var found []Finding
	for _, link := range input.Links {
		if link.Manager == "" || !exclusively(input.Driver.Published, link.Name) {
			continue
		}
		do := fmt.Sprintf("nmcli device set %s managed no, and make it permanent with [keyfile] "+
			"unmanaged-devices=interface-name:%s", link.Name, link.Name)
		if link.Manager != "NetworkManager" {
			do = fmt.Sprintf("exclude %s in the [Match] section of the .network file that networkctl status %s shows, "+
				"or set Unmanaged=yes for it", link.Name, link.Name)
		}
		found = append(found, Finding{
			Level: Warn, What: fmt.Sprintf("%s configures %s, which pods use exclusively", link.Manager,
				link.Name), Where: "interface " + link.Name,
			Why: "it configures addresses and routes when the device returns to the host, so the next pod gets " +
				"the device with these or not at all", Do: do,
		})
	}
	return found
}

func exclusively(published []draslices.Entry, name string) bool {
	return slices.ContainsFunc(published, func(e draslices.Entry) bool {
		return e.Persona.Exclusive && string(e.Device.Interface) == name
	})
}

// checkIOMMU reports a missing IOMMU or a missing vfio-pci driver if a topology needs it and the node has a device that
// uses it.
func checkIOMMU(input *Input) []Finding {
	var topologies []string
	for i := range input.Driver.State.Topologies {
		if topology := &input.Driver.State.Topologies[i]; slices.Contains(topology.Drivers, "vfio-pci") {
			topologies = append(topologies, topology.Name)
		}
	}
	hardware := slices.ContainsFunc(input.Driver.Published, func(e draslices.Entry) bool {
		return e.Device.PCIAddress != "" && (e.Device.Type == discovery.TypeVF || e.Device.Type == discovery.TypeNIC ||
			e.Device.Type == discovery.TypePF)
	})
	if len(topologies) == 0 || !hardware {
		return nil
	}
	finding := Finding{Level: Warn, Where: "/sys/kernel/iommu_groups", Why: "pods with claims for topology " +
		strings.Join(topologies, ", ") + " cannot be attached on this node"}
	switch {
	case input.IOMMUGroups == 0:
		finding.What, finding.Do = "the IOMMU is not enabled, but vfio-pci needs it", "enable it in the "+
			"firmware, and boot with intel_iommu=on or amd_iommu=on"
	case !input.VFIO:
		finding.What, finding.Where, finding.Do = "the kernel driver vfio-pci is not loaded", "/sys/bus/pci/drivers",
			"modprobe vfio-pci, and add it to /etc/modules-load.d"
	default:
		return nil
	}
	return []Finding{finding}
}
