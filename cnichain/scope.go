package cnichain

import (
	"fmt"
	"slices"
)

func reservedRoots() []string { return []string{VarPod, VarClaim, VarNode, VarDevice} }

func dryObject(t Token) (any, error) {
	allowed := map[string][]string{VarPod: {"name", "namespace", "uid"}, VarClaim: {"name", "namespace", "uid"}, VarNode: {"name"}}
	if !slices.Contains(allowed[t.Root], t.Field) || t.Index >= 0 {
		return nil, fmt.Errorf("%s has no %s; it has %v", t.Root, t.Field, allowed[t.Root])
	}
	return "name", nil
}

func dryStep(t Token) (any, error) {
	switch t.Field {
	case FieldInterfaceName, FieldMAC, FieldSandbox, FieldPCIAddress:
		if t.Index < 0 {
			return "value", nil
		}
	case FieldInterfaces:
		if t.Index < 0 {
			return []any{"net1"}, nil
		}
	case FieldIPs:
		if t.Index >= 0 && (t.Part == PartAddress || t.Part == PartGateway) {
			return "192.0.2.1", nil
		}
	}
	return nil, fmt.Errorf("a step has no %q; it has interfaceName, mac, sandbox, interfaces, pciAddress, ips[N].address and ips[N].gateway", t.String()[len(t.Root)+1:])
}
