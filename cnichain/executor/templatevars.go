package executor

import (
	"fmt"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
)

// templateValues returns a function that resolves template tokens in a step. Tokens refer to the step's device, pod,
// claim and node, and to earlier steps in the same instance.
func templateValues(attachment *Attachment, record *StepRecord, node string) template.Lookup {
	return func(t template.Token) (any, error) {
		switch t.Root {
		case template.VarPod:
			return objectValue(t, attachment.Pod.Name, attachment.Pod.Namespace, attachment.Pod.UID)
		case template.VarClaim:
			return objectValue(t, record.Claim.Name, record.Claim.Namespace, record.Claim.UID)
		case template.VarNode:
			return node, nil
		case template.VarDevice:
			return record.Step.Device.AttributeValue(t.Field)
		}
		for i := range attachment.Steps {
			candidate := &attachment.Steps[i]
			if candidate.Claim == record.Claim && candidate.Topology == record.Topology &&
				candidate.Step.Instance == record.Step.Instance && candidate.Step.Name == t.Root {
				return stepValue(t, candidate)
			}
		}
		return nil, fmt.Errorf("no step %q", t.Root)
	}
}

// objectValue resolves a token that refers to a field of the pod or claim.
func objectValue(t template.Token, name, namespace, uid string) (any, error) {
	switch t.Field {
	case "name":
		return name, nil
	case "namespace":
		return namespace, nil
	case "uid":
		return uid, nil
	}
	return nil, fmt.Errorf("%s has no %s", t.Root, t.Field)
}

// stepValue resolves a token that refers to an earlier step.
func stepValue(t template.Token, record *StepRecord) (any, error) {
	if t.IsCapacity() {
		return record.Step.Device.AttributeValue(t.Field)
	}
	switch t.Field {
	case template.FieldInterfaceName:
		return record.IfName, nil
	case template.FieldPCIAddress:
		if record.Step.Device == nil || record.Step.Device.PCIAddress == "" {
			return nil, fmt.Errorf("step %s has no device with a PCI address", t.Root)
		}
		return record.Step.Device.PCIAddress, nil
	}
	result := record.Merged
	if result == nil {
		return nil, fmt.Errorf("step %s has no result", t.Root)
	}
	switch t.Field {
	case template.FieldMAC, template.FieldSandbox:
		return interfaceValue(t, record.IfName, result)
	case template.FieldInterfaces:
		names := make([]any, len(result.Interfaces))
		for i, link := range result.Interfaces {
			names[i] = link.Name
		}
		return names, nil
	}
	return ipValue(t, result)
}

// interfaceValue returns a field of the interface that a step created in the pod. A result may also list interfaces on
// the host, which have no sandbox but may have the same name.
func interfaceValue(t template.Token, ifName string, result *types100.Result) (any, error) {
	for _, link := range result.Interfaces {
		if link.Name == ifName && link.Sandbox != "" {
			if t.Field == template.FieldMAC {
				return link.Mac, nil
			}
			return link.Sandbox, nil
		}
	}
	return nil, fmt.Errorf("the result of step %s does not have its interface %s", t.Root, ifName)
}

func countAddresses(n int) string {
	if n == 1 {
		return "1 address"
	}
	return fmt.Sprintf("%d addresses", n)
}

// ipValue returns a part of a step's address. If the step has no address, the current step fails, because its plugin
// would interpret an empty string as "no address configured".
func ipValue(t template.Token, result *types100.Result) (any, error) {
	if t.Index >= len(result.IPs) {
		return nil, fmt.Errorf("no ips[%d] of step %s, which has %s", t.Index, t.Root,
			countAddresses(len(result.IPs)))
	}
	ip := result.IPs[t.Index]
	if t.Part == template.PartAddress {
		return ip.Address.String(), nil
	}
	if ip.Gateway == nil {
		return nil, fmt.Errorf("ips[%d] of step %s has no gateway", t.Index, t.Root)
	}
	return ip.Gateway.String(), nil
}
