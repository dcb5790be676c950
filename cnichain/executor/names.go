package executor

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// AssignNames determines, for each step of a new attachment, the name of the interface that the step creates or
// modifies. taken lists the links that already exist in the pod's namespace, including their alternative names. If a
// name's template refers to earlier steps, the name is assigned when the step runs. If two steps need the same name,
// the error names both steps.
//
// The order is: names from the pod's annotations, names from topologies and claims, and then net1, net2 and so on, in
// the order of the pod's claims. As a result, adding a claim at the end does not rename any interface.
func AssignNames(attachment *Attachment, taken []cnichain.Link) error {
	owner := map[string]string{}
	for _, link := range taken {
		owner[link.Name] = "the pod's own network"
		for _, name := range link.AltNames {
			owner[name] = "the pod's own network"
		}
	}
	if err := assignSelected(attachment); err != nil {
		return err
	}
	if err := assignFixed(attachment, owner); err != nil {
		return err
	}
	next := 1
	for i := range attachment.Steps {
		record := &attachment.Steps[i]
		switch {
		case record.IfName != "" || template.Contains(record.Step.IfName):
		case !record.Step.Makes && len(record.Step.DependsOn) > 0:
			record.IfName = attachment.Steps[record.Step.DependsOn[0]].IfName
		default:
			for owner["net"+strconv.Itoa(next)] != "" {
				next++
			}
			record.IfName = "net" + strconv.Itoa(next)
			owner[record.IfName] = record.Title()
		}
	}
	return nil
}

// assignSelected assigns the names in the pod's annotations to the interfaces on networks that pods select. If the pod
// does not have the required annotation, assignSelected returns an error before anything is attached.
func assignSelected(attachment *Attachment) error {
	var wanted []cnichain.WantedNetwork
	var records []*StepRecord
	for i := range attachment.Steps {
		record := &attachment.Steps[i]
		if record.Step.PodNetwork == nil {
			continue
		}
		wanted, records = append(wanted, record.Step.WantedNetwork(record.Topology)), append(records, record)
	}
	names, err := cnichain.SelectNetworks(wanted, attachment.Pod.Annotations, attachment.Pod.Namespace)
	if err != nil {
		return err
	}
	for i, record := range records {
		if isNamedByPod(record) {
			if err := v1alpha1.CheckClaimInterfaceName(names[i]); err != nil {
				return fmt.Errorf("cannot name the interface of %s: %w; change %s", record.Title(), err,
					nameSource(record))
			}
		}
		record.IfName = names[i]
	}
	return nil
}

// isNamedByPod reports whether the interface name comes from one of the pod's annotations.
func isNamedByPod(record *StepRecord) bool {
	return record.Step.PodNetwork != nil && record.Step.PodNetwork.NamesInterface
}

// nameSource describes where an interface name comes from.
func nameSource(record *StepRecord) string {
	if isNamedByPod(record) {
		return "the pod's annotation " + record.Step.PodNetwork.Annotation
	}
	return "ifName in the topology or interfaceName in the claim"
}

// assignFixed assigns the names from topologies and annotations, so that these names are not also assigned as net1,
// net2 and so on.
func assignFixed(attachment *Attachment, owner map[string]string) error {
	for i := range attachment.Steps {
		record := &attachment.Steps[i]
		name := cmp.Or(record.IfName, record.Step.IfName)
		if name == "" || template.Contains(name) {
			continue
		}
		if record.Step.Makes {
			if holder := owner[name]; holder != "" {
				return fmt.Errorf("cannot name the interface of %s in claim %s %q: %s already has that name; change %s",
					record.Title(), record.Claim, name, holder, nameSource(record))
			}
			owner[name] = record.Title()
		}
		record.IfName = name
	}
	return nil
}
