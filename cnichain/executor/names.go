package executor

import (
	"fmt"
	"strconv"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
)

// AssignNames gives every step of a new attachment the interface that it makes or works on. taken are the names and
// altnames that the pod's namespace has already. Names that hold templates of earlier steps are given when the step is
// run. Errors name both steps that want one name.
func AssignNames(attachment *Attachment, taken []cnichain.Link) error {
	owner := map[string]string{}
	for _, link := range taken {
		owner[link.Name] = "the pod's own network"
		for _, name := range link.AltNames {
			owner[name] = "the pod's own network"
		}
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

// assignFixed gives out the names that topologies ask for, so that net1, net2 don't take them.
func assignFixed(attachment *Attachment, owner map[string]string) error {
	for i := range attachment.Steps {
		record := &attachment.Steps[i]
		name := record.Step.IfName
		if name == "" || template.Contains(name) {
			continue
		}
		if record.Step.Makes {
			if holder := owner[name]; holder != "" {
				return fmt.Errorf("cannot name the interface of %s in claim %s %q: %s already has that name; change "+
					"ifName in the topology or interfaceName in the claim",
					record.Title(), record.Claim, name, holder)
			}
			owner[name] = record.Title()
		}
		record.IfName = name
	}
	return nil
}
