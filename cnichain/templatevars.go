package cnichain

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
)

func reservedRoots() []string {
	return []string{template.VarPod, template.VarClaim, template.VarNode, template.VarDevice}
}

func dryObject(t template.Token) (any, error) {
	allowed := map[string][]string{template.VarPod: {"name", "namespace", "uid"},
		template.VarClaim: {"name", "namespace", "uid"}, template.VarNode: {"name"}}
	if !slices.Contains(allowed[t.Root], t.Field) || t.Index >= 0 {
		return nil, fmt.Errorf("%s has no such field; use %s", t.Root, strings.Join(allowed[t.Root], ", "))
	}
	return "name", nil
}

// dryStep returns a placeholder of the same type as a step's field, to check templates before anything runs. For
// addresses, it uses an address reserved for documentation (RFC 5737), which passes the format checks.
func dryStep(t template.Token) (any, error) {
	if t.IsCapacity() && t.Index < 0 {
		return json.Number("1"), nil
	}
	switch t.Field {
	case template.FieldInterfaceName, template.FieldMAC, template.FieldSandbox, template.FieldPCIAddress:
		if t.Index < 0 {
			return "value", nil
		}
	case template.FieldInterfaces:
		if t.Index < 0 {
			return []any{"net1"}, nil
		}
	case template.FieldIPs:
		if t.Index >= 0 && (t.Part == template.PartAddress || t.Part == template.PartGateway) {
			return "192.0.2.1", nil
		}
	}
	return nil, errors.New("a step has no such field; use interfaceName, mac, sandbox, interfaces, pciAddress, " +
		"capacity.bandwidth, ips[N].address or ips[N].gateway")
}
