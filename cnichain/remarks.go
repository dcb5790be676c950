package cnichain

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Remarks says of a valid topology what its author should know all the same: what the schemas of its plugins warn of,
// and which plugins have no schema, so that their configuration is not checked. Each is said once. Nothing is said of
// plugins that others run.
func Remarks(topology *v1alpha1.NetworkTopology, schemas Schemas) []string {
	if topology.Spec.Attachment == v1alpha1.AttachmentExternal {
		return nil
	}
	ipams := schemas.ipams()
	plugins := schemas.plugins()
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

// MisspeltPlugins says which of the CNI plugins that a policy names are probably other ones: those without a schema
// whose names are almost that of a plugin with one. A plugin of somebody's own is none of them.
func MisspeltPlugins(names []string, schemas Schemas) []string {
	known := schemas.plugins()
	var remarks []string
	for _, name := range names {
		if _, found := schemas.Lookup(name); found {
			continue
		}
		if near := Nearest(name, known); near != "" {
			remarks = append(remarks, fmt.Sprintf("plugin %s is none that the driver knows: did you mean %s?", name,
				near))
		}
	}
	return remarks
}

// plugins are the CNI types that have schemas and are no IPAM plugins, sorted.
func (s Schemas) plugins() []string {
	ipams := s.ipams()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.byType)),
		func(cniType string) bool { return slices.Contains(ipams, cniType) })
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
