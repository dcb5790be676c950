package cnichain

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Remarks says of a valid topology what its author should know all the same: what the schemas of its plugins warn of,
// and which plugins have no schema, so that their configuration is not checked. Each is said once.
func Remarks(topology *v1alpha1.NetworkTopology, schemas Schemas) []string {
	ipams := schemas.ipams()
	plugins := slices.DeleteFunc(slices.Sorted(maps.Keys(schemas.byType)),
		func(cniType string) bool { return slices.Contains(ipams, cniType) })
	var remarks []string
	add := func(cniType string, alike []string) {
		if remark := schemas.remark(cniType, alike); remark != "" && !slices.Contains(remarks, remark) {
			remarks = append(remarks, remark)
		}
	}
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		add(step.Type, plugins)
		add(IPAMType(rawConfig(step)), ipams)
	}
	return remarks
}

// remark is what to know of the use of a plugin, empty if there is nothing. Of those in alike it may be a misspelling.
func (s Schemas) remark(cniType string, alike []string) string {
	spec, known := s.Lookup(cniType)
	switch {
	case cniType == "" || known && spec.Remark == "":
		return ""
	case known:
		return fmt.Sprintf("plugin %s: %s", cniType, spec.Remark)
	}
	remark := fmt.Sprintf("no schema for plugin %s, so its configuration is not checked", cniType)
	if near := Nearest(cniType, alike); near != "" {
		remark += fmt.Sprintf("; did you mean %s?", near)
	}
	return remark
}
