package cnichain

import (
	"fmt"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// Roots of template tokens that are not steps.
const (
	rootPod    = "pod"
	rootClaim  = "claim"
	rootNode   = "node"
	rootDevice = "device"
)

func reservedRoots() []string { return []string{rootPod, rootClaim, rootNode, rootDevice} }

// fields of a step that templates may name.
const (
	fieldInterfaceName = "interfaceName"
	fieldMAC           = "mac"
	fieldSandbox       = "sandbox"
	fieldInterfaces    = "interfaces"
	fieldPCIAddress    = "pciAddress"
	fieldIPs           = "ips"
	partAddress        = "address"
	partGateway        = "gateway"
)

func dryObject(t token) (any, error) {
	allowed := map[string][]string{rootPod: {"name", "namespace", "uid"}, rootClaim: {"name", "namespace", "uid"}, rootNode: {"name"}}
	if !slices.Contains(allowed[t.root], t.field) || t.index >= 0 {
		return nil, fmt.Errorf("%s has no %s; it has %v", t.root, t.field, allowed[t.root])
	}
	return "name", nil
}

func dryStep(t token) (any, error) {
	switch t.field {
	case fieldInterfaceName, fieldMAC, fieldSandbox, fieldPCIAddress:
		if t.index < 0 {
			return "value", nil
		}
	case fieldInterfaces:
		if t.index < 0 {
			return []any{"net1"}, nil
		}
	case fieldIPs:
		if t.index >= 0 && (t.part == partAddress || t.part == partGateway) {
			return "192.0.2.1", nil
		}
	}
	return nil, fmt.Errorf("a step has no %q; it has interfaceName, mac, sandbox, interfaces, pciAddress, ips[N].address and ips[N].gateway", t.String()[len(t.root)+1:])
}

// stepValue resolves a token that names a step that has been run.
func stepValue(t token, record *StepRecord) (any, error) {
	switch t.field {
	case fieldInterfaceName:
		return record.IfName, nil
	case fieldPCIAddress:
		if record.Step.Device == nil || record.Step.Device.PCIAddress == "" {
			return nil, fmt.Errorf("step %s has no device with a PCI address", t.root)
		}
		return record.Step.Device.PCIAddress, nil
	}
	result := record.Merged
	if result == nil {
		return nil, fmt.Errorf("step %s has no result", t.root)
	}
	switch t.field {
	case fieldMAC, fieldSandbox:
		return interfaceValue(t, record.IfName, result)
	case fieldInterfaces:
		names := make([]any, len(result.Interfaces))
		for i, link := range result.Interfaces {
			names[i] = link.Name
		}
		return names, nil
	}
	return ipValue(t, result)
}

func interfaceValue(t token, ifName string, result *types100.Result) (any, error) {
	for _, link := range result.Interfaces {
		if link.Name == ifName && link.Sandbox != "" {
			if t.field == fieldMAC {
				return link.Mac, nil
			}
			return link.Sandbox, nil
		}
	}
	return nil, fmt.Errorf("the result of step %s does not have its interface %s", t.root, ifName)
}

func ipValue(t token, result *types100.Result) (any, error) {
	if t.index >= len(result.IPs) {
		return nil, fmt.Errorf("step %s has %d addresses, so there is no ips[%d]", t.root, len(result.IPs), t.index)
	}
	ip := result.IPs[t.index]
	if t.part == partAddress {
		return ip.Address.String(), nil
	}
	if ip.Gateway == nil {
		return nil, fmt.Errorf("ips[%d] of step %s has no gateway", t.index, t.root)
	}
	return ip.Gateway.String(), nil
}
