package cnichain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
)

// parseResult reads what a plugin printed after a successful ADD: exactly one result, of the version that it was called
// with unless it says another.
func parseResult(stdout []byte, cniVersion string) (*types100.Result, error) {
	decoder := json.NewDecoder(bytes.NewReader(stdout))
	var document json.RawMessage
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("printed no CNI result: %w", err)
	}
	var trailing json.RawMessage
	if err := decoder.Decode(&trailing); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("printed more than one document: %s", shorten(string(trailing), 256))
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
	result, err := create.Create(header.CNIVersion, document)
	if err != nil {
		return nil, fmt.Errorf("printed no CNI result of version %s: %w", header.CNIVersion, err)
	}
	converted, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("cannot convert the CNI result: %w", err)
	}
	return converted, nil
}

// mergeResults puts results over each other: interfaces by sandbox and name, later ones winning; addresses with their
// interface index re-based; routes; the last DNS that says anything. Any may be nil.
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

// mergeInterfaces returns, for each interface of the result, its index in merged.
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

// resultAs writes a result in the version that a plugin is called with.
func resultAs(result *types100.Result, cniVersion string) (json.RawMessage, error) {
	converted, err := result.GetAsVersion(cniVersion)
	if err != nil {
		return nil, fmt.Errorf("cannot write prevResult as CNI %s: %w", cniVersion, err)
	}
	return json.Marshal(converted)
}

func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:limit] + "…"
}
