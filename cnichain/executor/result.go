package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/dra-networking/dra-network-driver/cnichain/sanitize"
)

// parseResult parses the output of a successful ADD, which must be exactly one result. The result is assumed to be in
// the CNI version of the call unless it specifies another version.
func parseResult(stdout []byte, cniVersion string) (*types100.Result, error) {
	decoder := json.NewDecoder(bytes.NewReader(stdout))
	var document json.RawMessage
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("printed no CNI result: %w", err)
	}
	var trailing json.RawMessage
	if err := decoder.Decode(&trailing); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("printed more than one document: %s", sanitize.Shorten(string(trailing), 256))
	}
	var header struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(document, &header); err != nil {
		return nil, fmt.Errorf("printed no CNI result: %w", err)
	}
	if header.CNIVersion == "" {
		header.CNIVersion = cniVersion
	}
	if err := checkLists(document); err != nil {
		return nil, err
	}
	result, err := create.Create(header.CNIVersion, document)
	if err != nil {
		return nil, fmt.Errorf("printed no CNI result of version %s: %w", header.CNIVersion, err)
	}
	converted, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("cannot convert the CNI result: %w", err)
	}
	for i, ip := range converted.IPs {
		if ip.Address.IP == nil {
			return nil, fmt.Errorf("printed a CNI result whose ips[%d] has no address", i)
		}
	}
	return converted, nil
}

// mostEntries is the maximum length of each list in a plugin's result. The limit exists because the entries are copied
// to the journal, the claim's status and the input of later plugins.
const mostEntries = 1024

// checkLists rejects results that the CNI library's types cannot represent: the library accepts null as an entry, and
// then dereferences a nil pointer.
func checkLists(document json.RawMessage) error {
	type lists struct {
		Interfaces, IPs, Routes []any
		DNS, IP4, IP6           map[string]any
	}
	var given lists
	if err := json.Unmarshal(document, &given); err != nil {
		return fmt.Errorf("printed no CNI result: %w", err)
	}
	named := map[string]any{"interfaces": given.Interfaces, "ips": given.IPs, "routes": given.Routes}
	for name, object := range map[string]map[string]any{"dns": given.DNS, "ip4": given.IP4, "ip6": given.IP6} {
		for key, value := range object {
			named[name+"."+key] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		list, _ := named[name].([]any)
		if len(list) > mostEntries {
			return fmt.Errorf("printed a CNI result with %d entries in %s: the limit is %d", len(list), name,
				mostEntries)
		}
		if i := slices.Index(list, nil); i >= 0 {
			return fmt.Errorf("printed a CNI result whose %s[%d] is null", name, i)
		}
	}
	return nil
}

// mergeResults merges results: interfaces by sandbox and name, where later interfaces replace earlier ones; addresses,
// with adjusted interface indexes; routes; and the last nonempty DNS configuration. Any result may be nil.
func mergeResults(results ...*types100.Result) *types100.Result {
	merged := &types100.Result{CNIVersion: types100.ImplementedSpecVersion}
	for _, result := range results {
		if result == nil {
			continue
		}
		positions := mergeInterfaces(merged, result)
		mergeIPs(merged, result, positions)
		mergeRoutes(merged, result)
		if !result.DNS.IsEmpty() {
			merged.DNS = *result.DNS.Copy()
		}
	}
	return merged
}

// mergeInterfaces returns, for each interface in result, its index in merged.
func mergeInterfaces(merged, result *types100.Result) []int {
	positions := make([]int, len(result.Interfaces))
	for i, link := range result.Interfaces {
		positions[i] = -1
		for j, known := range merged.Interfaces {
			if known.Name == link.Name && known.Sandbox == link.Sandbox {
				merged.Interfaces[j] = link.Copy()
				positions[i] = j
			}
		}
		if positions[i] < 0 {
			positions[i] = len(merged.Interfaces)
			merged.Interfaces = append(merged.Interfaces, link.Copy())
		}
	}
	return positions
}

// mergeIPs adds the addresses in result. Their interface indexes refer to the interfaces in result; positions maps
// these indexes to the indexes in merged. Some plugins print indexes that are out of range; mergeIPs drops such an
// index but keeps the address.
func mergeIPs(merged, result *types100.Result, positions []int) {
	for _, ip := range result.IPs {
		ip = ip.Copy()
		if ip.Interface != nil && *ip.Interface >= 0 && *ip.Interface < len(positions) {
			ip.Interface = types100.Int(positions[*ip.Interface])
		} else {
			ip.Interface = nil
		}
		if !hasIP(merged.IPs, ip) {
			merged.IPs = append(merged.IPs, ip)
		}
	}
}

// hasIP reports whether ips already contains an address for the same interface. The same address on two interfaces is
// not a duplicate.
func hasIP(ips []*types100.IPConfig, wanted *types100.IPConfig) bool {
	for _, ip := range ips {
		sameLink := ip.Interface == nil && wanted.Interface == nil ||
			ip.Interface != nil && wanted.Interface != nil && *ip.Interface == *wanted.Interface
		if sameLink && ip.Address.String() == wanted.Address.String() {
			return true
		}
	}
	return false
}

// mergeRoutes adds the routes that merged does not contain yet. Parents with a common ancestor share its routes.
func mergeRoutes(merged, result *types100.Result) {
	seen := map[string]bool{}
	for _, route := range merged.Routes {
		seen[route.String()] = true
	}
	for _, route := range result.Routes {
		if !seen[route.String()] {
			merged.Routes = append(merged.Routes, route.Copy())
		}
	}
}

// resultAs encodes a result in the CNI version used to call a plugin.
func resultAs(result *types100.Result, cniVersion string) (json.RawMessage, error) {
	converted, err := result.GetAsVersion(cniVersion)
	if err != nil {
		return nil, fmt.Errorf("cannot write prevResult as CNI %s: %w", cniVersion, err)
	}
	return json.Marshal(converted)
}
