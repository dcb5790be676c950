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

func deviceChecks() []check {
	return []check{
		{group: groupDevices, name: "problems", fine: "the driver has no problem with devices", needs: needsDriver,
			inspect: checkProblems},
		{group: groupDevices, name: "gone-devices", fine: "every device that a claim holds exists", needs: needsDriver,
			inspect: checkGone},
		{group: groupDevices, name: "pod-interfaces", fine: "no pod has lost an attached interface", needs: needsDriver,
			inspect: checkInterfaces},
		{group: groupDevices, name: "quarantine", fine: "no device is held back", needs: needsDriver,
			inspect: checkQuarantine},
		{group: groupDevices, name: "other-owners", fine: "nobody else gives these devices to pods", needs: needsDriver,
			inspect: checkOwners},
		{group: groupDevices, name: "double-owners", fine: "no device is in the pool of a device plugin, too",
			needs: needsDriver, inspect: checkDoubleOwners},
		{group: groupDevices, name: "network-managers", fine: "no network manager configures a device that pods get",
			needs: needsDriver, inspect: checkManagers},
		{group: groupDevices, name: "iommu",
			fine:  "devices can be given to applications that drive them themselves, or no topology does so",
			needs: needsDriver, inspect: checkIOMMU},
		{group: groupDevices, name: "rdma", fine: "no published device lacks the driver of its RDMA part",
			needs: needsDriver, inspect: checkRDMA},
	}
}

func checkProblems(input *Input) []Finding {
	var found []Finding
	for _, problem := range input.Driver.State.Problems {
		finding := Finding{Level: Warn, What: problem.Text, Where: problem.Source,
			Why: "a device is not offered, or not for all that its policy says",
			Do:  "fix what it says; netdra explain DEVICE says more"}
		if problem.Remark {
			finding.Why = "devices are offered as their policy says, which may not be what its author means"
			finding.Do = "change the policy as it says, or leave it if that is meant"
		}
		found = append(found, finding)
	}
	return found
}

// checkGone finds devices that no longer exist, with the pods that use them.
func checkGone(input *Input) []Finding {
	var found []Finding
	for _, device := range nodeclient.Devices(input.Driver) {
		if device.State != nodeclient.Gone {
			continue
		}
		found = append(found, Finding{
			Level: Fail, What: fmt.Sprintf("device %s no longer exists on the node", device.Name),
			Where: "held by " + cmp.Or(device.HeldBy(),
				"a claim"), Why: "these pods have no network by it, and their claims keep it from others",
			Do: "bring the device back, then delete these pods to have them attached again",
		})
	}
	return found
}

// checkInterfaces finds interfaces that have vanished from pods. checkGone covers interfaces of missing devices.
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
				Why: "the device or a link below it was removed, or an application has moved the interface",
				Do: fmt.Sprintf("delete the pod to have it attached again: kubectl -n %s delete pod %s",
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
			Do: "put right what the reason says, then: netdra release " + leftover.Key + "; if that can never " +
				"succeed, give it up with --forget",
		}
		if device := leftover.Quarantines(); device != nil {
			finding.Level, finding.What = Fail, fmt.Sprintf("device %s is in quarantine since pod %s has ended",
				device.Name, leftover.Attachment.Pod)
		}
		found = append(found, finding)
	}
	return found
}

// owners are other programs that give network devices to pods, by the name of a process or of a driver that kubelet
// knows. Kubelet knows DRA drivers by the names under which they register; a device plugin is known by its process
// only.
func owners() []struct{ process, driver, title string } {
	return []struct{ process, driver, title string }{
		{process: "sriovdp", title: "the SR-IOV network device plugin"},
		{driver: "sriovnetwork.k8snetworkplumbingwg.io", title: "the SR-IOV DRA driver"},
		{driver: "dra.net", title: "the DRA network driver DRANET"},
	}
}

// checkOwners finds programs that could give away the same devices. That they do is certain only for checkDoubleOwners,
// so these are warnings.
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
			Level: Warn, What: owner.title + " runs on this node, too", Where: where,
			Why: "neither knows what the other has given away: a device that both offer goes to two pods",
			Do:  "see that its configuration and the DeviceExposurePolicies name different devices, or remove it",
		})
	}
	if input.Multus == "" {
		return found
	}
	duplicates := attachedTwice(input)
	if len(duplicates) == 0 {
		duplicates = append(duplicates, Finding{
			Level: Warn, What: "Multus attaches networks to pods of this node, too", Where: input.Multus,
			Why: "it takes whatever a NetworkAttachmentDefinition names, without asking whether a claim has it",
			Do:  "see that no NetworkAttachmentDefinition names a device that netdra devices lists",
		})
	}
	return append(found, duplicates...)
}

// multusAnnotation is the annotation by which pods select what Multus attaches.
const multusAnnotation = "k8s.v1.cni.cncf.io/networks"

// attachedTwice finds plugins of topologies that follow the same annotation of the pod as Multus: both would create the
// same interface.
func attachedTwice(input *Input) []Finding {
	var found []Finding
	for _, name := range sortedKeys(input.Plugins) {
		if plugin := input.Plugins[name]; plugin.PodAnnotation != multusAnnotation || plugin.Path == "" {
			continue
		}
		found = append(found, Finding{
			Level: Fail, What: fmt.Sprintf("Multus attaches the networks that pods must select for CNI plugin %s",
				name),
			Where: input.Multus,
			Why: "pods wait with claims for " + strings.Join(topologiesWith(input, name), ", ") + ": the pod has an " +
				"interface of that name already",
			Do: "let Multus attach these networks, and remove the topologies; or keep Multus from this node",
		})
	}
	return found
}

// checkDoubleOwners finds published devices that a device plugin gives to pods, too.
func checkDoubleOwners(input *Input) []Finding {
	var found []Finding
	seen := map[string]bool{}
	for _, pooled := range input.Pooled {
		// A device plugin may call a device by its address or by its link.
		named := func(e draslices.Entry) bool {
			return pooled.ID == string(e.Device.PCIAddress) || pooled.ID == string(e.Device.Interface)
		}
		i := slices.IndexFunc(input.Driver.Published, named)
		if i < 0 || pooled.ID == "" || seen[pooled.ID+" "+pooled.Resource] {
			continue
		}
		seen[pooled.ID+" "+pooled.Resource] = true
		finding := Finding{
			Level: Fail, What: fmt.Sprintf("device %s (%s) has two owners: a device plugin offers it, too",
				input.Driver.Published[i].Name, pooled.ID), Where: pooled.Resource,
			Why: "neither knows what the other has given away: the device goes to two pods",
			Do: "take it out of the pool of the device plugin, or exclude it with a DeviceExposurePolicy; kubelet " +
				"forgets a plugin five minutes after it has ended",
		}
		if pooled.Pod != "" {
			finding.What = fmt.Sprintf("device %s (%s) has two owners: a device plugin has given it to the pod with "+
				"UID %s", input.Driver.Published[i].Name, pooled.ID, pooled.Pod)
		}
		found = append(found, finding)
	}
	return found
}

// checkManagers leaves out links that pods only share: those stay on the host, where a network manager may look after
// them.
func checkManagers(input *Input) []Finding {
	var found []Finding
	for _, link := range input.Links {
		if link.Manager == "" || !exclusively(input.Driver.Published, link.Name) {
			continue
		}
		do := fmt.Sprintf("nmcli device set %s managed no, and keep it so: [keyfile] "+
			"unmanaged-devices=interface-name:%s", link.Name, link.Name)
		if link.Manager != "NetworkManager" {
			do = fmt.Sprintf("take %s from the [Match] of the .network file that networkctl status %s names, or set "+
				"Unmanaged=yes for it", link.Name, link.Name)
		}
		found = append(found, Finding{
			Level: Warn, What: fmt.Sprintf("%s configures %s, which pods get as a whole", link.Manager,
				link.Name), Where: "interface " + link.Name,
			Why: "when the device returns to the host it is given addresses and routes, and its next owner gets " +
				"it with those or not at all", Do: do,
		})
	}
	return found
}

// exclusively reports whether an interface is offered as a whole.
func exclusively(published []draslices.Entry, name string) bool {
	return slices.ContainsFunc(published, func(e draslices.Entry) bool {
		return e.Persona.Exclusive && string(e.Device.Interface) == name
	})
}

// checkIOMMU is silent without a topology that gives functions to applications, and without hardware for them: most
// nodes need no IOMMU.
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
		finding.What, finding.Do = "the kernel uses no IOMMU, and vfio-pci needs one", "switch it on in the "+
			"firmware, and boot with intel_iommu=on or amd_iommu=on"
	case !input.VFIO:
		finding.What, finding.Where, finding.Do = "the kernel's driver vfio-pci is not loaded", "/sys/bus/pci/drivers",
			"modprobe vfio-pci, and name it in /etc/modules-load.d"
	default:
		return nil
	}
	return []Finding{finding}
}
