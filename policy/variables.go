package policy

import (
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// variables contains the device properties that an expression can read.
type variables map[string]any

// variablesOf returns the variables for a device. With these variables, every expression has the same result as in the
// scheduler's DeviceMatches, which creates new variables for each expression. Doing so here would account for most of
// the cost of an evaluation.
func variablesOf(d *discovery.Device) variables {
	all := vocabulary(d)
	names := map[string]map[string]any{v1alpha1.AttributeDomain: make(map[string]any, len(all))}
	for _, a := range all {
		domain, id, _ := strings.Cut(string(a.name), "/")
		if names[domain] == nil {
			names[domain] = map[string]any{}
		}
		names[domain][id] = a.any
	}
	byDomain := make(map[string]any, len(names))
	for domain, values := range names {
		byDomain[domain] = values
	}
	return variables{"device": map[string]any{
		"driver":                   v1alpha1.AttributeDomain,
		"allowMultipleAllocations": false,
		"attributes":               domains{types.NewStringInterfaceMap(types.DefaultTypeAdapter, byDomain)},
		"capacity":                 domains{types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{})},
	}}
}

// domains contains the attributes or capacities by domain. Every domain exists; an unknown domain is empty.
type domains struct{ traits.Mapper }

// Find returns the attributes or capacities in a domain.
func (d domains) Find(domain ref.Val) (ref.Val, bool) {
	if names, found := d.Mapper.Find(domain); found {
		return names, true
	}
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{}), true
}
