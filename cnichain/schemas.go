package cnichain

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

//go:embed schemas/*.yaml
var builtinSchemas embed.FS //nolint:gochecknoglobals // that is how files are embedded

// Field values in a CNIPluginSchema. An empty field is equivalent to the first value in its group, since no defaults
// were applied to objects that did not pass through the API server.
const (
	prevResultNone        = "none"
	prevResultOptional    = "optional"
	prevResultRequired    = "required"
	interfacesAppends     = "appends"
	interfacesModifies    = "modifies"
	interfacesPassthrough = "passthrough"
	interfacesNone        = "none"
	interfacesDeviceFiles = "deviceFiles"
	devicesStay           = "stays"
	devicesMove           = "moves"
	DelNetnsEmpty         = "empty"
	DelNetnsStalePath     = "stalePath"
	DelNetnsSkip          = "skip"
	namesAny              = "any"
	namesSelected         = "selected"
	attributeIfName       = "ifName"
	attributePCIAddress   = "pciAddress"
	attributeAuxiliary    = "auxiliaryDevice"
)

// Schemas are the contracts of CNI plugins, by CNI type. The zero value contains no contracts. Schemas is immutable.
type Schemas struct {
	byType map[string]v1alpha1.CNIPluginSchemaSpec
}

// DefaultSchemas returns the built-in contracts.
func DefaultSchemas() Schemas { return defaultSchemas() }

var defaultSchemas = sync.OnceValue(readDefaultSchemas) //nolint:gochecknoglobals // immutable

// readDefaultSchemas parses the schemas that are embedded in the binary.
func readDefaultSchemas() Schemas {
	byType := map[string]v1alpha1.CNIPluginSchemaSpec{}
	err := fs.WalkDir(builtinSchemas, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := builtinSchemas.ReadFile(path)
		if err != nil {
			return err
		}
		return parseSchemas(byType, data)
	})
	if err != nil {
		// a programming error, which a test would detect
		panic(fmt.Sprintf("the built-in CNI plugin schemas are broken: %v", err))
	}
	return Schemas{byType: byType}
}

// All returns the contracts by CNI type.
func (s Schemas) All() map[string]v1alpha1.CNIPluginSchemaSpec { return maps.Clone(s.byType) }

// With returns a copy of the schemas in which each given schema from the cluster replaces the schema for the same CNI
// type.
//
// A contract from the cluster replaces the whole built-in contract. If the two were merged, users could not remove
// those parts of a built-in contract that do not apply to their version of the plugin.
func (s Schemas) With(schemas ...v1alpha1.CNIPluginSchema) Schemas {
	byType := maps.Clone(s.byType)
	if byType == nil {
		byType = map[string]v1alpha1.CNIPluginSchemaSpec{}
	}
	for i := range schemas {
		byType[schemas[i].Spec.CNIType] = schemas[i].Spec
	}
	return Schemas{byType: byType}
}

// Lookup returns the contract for a CNI type, and reports whether there is one.
func (s Schemas) Lookup(cniType string) (v1alpha1.CNIPluginSchemaSpec, bool) {
	spec, ok := s.byType[cniType]
	return spec, ok
}

// KernelLacks maps each CNI type that always needs a link type unsupported by the kernel to the reason and a suggested
// fix. missingOf returns those of the given link types that the kernel does not support, like host.MissingLinkTypes;
// KernelLacks returns the error from missingOf. If missingOf is nil, all types are considered supported.
func (s Schemas) KernelLacks(
	cniTypes []string, missingOf func(linkTypes []string) ([]string, error),
) (map[string]string, error) {
	needed := sets.New[string]()
	for _, cniType := range cniTypes {
		needed.Insert(s.byType[cniType].LinkTypes...)
	}
	if len(needed) == 0 || missingOf == nil {
		return nil, nil
	}
	missing, err := missingOf(sets.List(needed))
	reasons := map[string]string{}
	for _, cniType := range cniTypes {
		for _, linkType := range s.byType[cniType].LinkTypes {
			if reasons[cniType] == "" && slices.Contains(missing, linkType) {
				reasons[cniType] = fmt.Sprintf("the kernel does not support links of type %s; %s", linkType,
					InstallLinkType(linkType))
			}
		}
	}
	return reasons, err
}

// InstallLinkType returns a suggested fix for a node whose kernel does not support a link type.
func InstallLinkType(linkType string) string {
	return fmt.Sprintf("install the module %s for this kernel, so that \"modprobe rtnl-link-%s\" succeeds (some "+
		"distributions have it in a package of extra modules), or use a kernel that has it", linkModule(linkType),
		linkType)
}

// linkModule returns the kernel module for a link type. With a few exceptions, the module has the same name as the type
// (drivers/net, and MODULE_ALIAS_RTNL_LINK in net/8021q).
func linkModule(linkType string) string {
	switch linkType {
	case "vlan":
		return "8021q"
	case "bond":
		return "bonding"
	}
	return linkType
}

// Moving returns the sorted CNI types that move the allocated device into the pod.
func (s Schemas) Moving() []string {
	return s.typesWhere(func(spec *v1alpha1.CNIPluginSchemaSpec) bool { return spec.Output.Devices == devicesMove })
}

// Stacking returns the sorted CNI types that create a macvlan or ipvlan on a device.
func (s Schemas) Stacking() []string {
	return s.typesWhere(func(spec *v1alpha1.CNIPluginSchemaSpec) bool {
		return slices.Contains(spec.LinkTypes, "macvlan") || slices.Contains(spec.LinkTypes, "ipvlan")
	})
}

// ByPCIAddress returns the sorted CNI types that identify hardware by its PCI address and do not accept a link name.
func (s Schemas) ByPCIAddress() []string {
	return s.typesWhere(func(spec *v1alpha1.CNIPluginSchemaSpec) bool {
		takes := func(attribute string) bool {
			return slices.ContainsFunc(spec.DeviceParameters, func(p v1alpha1.DeviceParameter) bool {
				return p.Attribute == attribute
			})
		}
		return takes(attributePCIAddress) && !takes(attributeIfName)
	})
}

func (s Schemas) typesWhere(wanted func(*v1alpha1.CNIPluginSchemaSpec) bool) []string {
	var types []string
	for _, cniType := range slices.Sorted(maps.Keys(s.byType)) {
		if spec := s.byType[cniType]; wanted(&spec) {
			types = append(types, cniType)
		}
	}
	return types
}

// parseSchemas parses YAML documents and adds their specs to byType.
func parseSchemas(byType map[string]v1alpha1.CNIPluginSchemaSpec, data []byte) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var spec v1alpha1.CNIPluginSchemaSpec
		if err := decoder.Decode(&spec); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if spec.CNIType == "" {
			return errors.New("a schema without cniType")
		}
		if _, duplicate := byType[spec.CNIType]; duplicate {
			return fmt.Errorf("two schemas for %s", spec.CNIType)
		}
		byType[spec.CNIType] = spec
	}
}

// makesInterface reports whether a plugin of this type creates the interface CNI_IFNAME. It returns true for plugins
// without a schema.
func (s Schemas) makesInterface(cniType string) bool {
	return cmp.Or(s.byType[cniType].Output.Interfaces, interfacesAppends) == interfacesAppends
}

// AttachesInterface reports whether a step with a plugin of this type attaches or modifies an interface. It returns
// true for plugins without a schema.
func (s Schemas) AttachesInterface(cniType string) bool {
	return s.byType[cniType].Output.Interfaces != interfacesDeviceFiles
}

// ipamLeavesNoFiles reports whether the IPAM plugin writes no persistent state. It returns true if no IPAM plugin is
// configured.
func (s Schemas) ipamLeavesNoFiles(ipam string) bool {
	schema, _ := s.Lookup(ipam)
	return ipam == "" || schema.LeavesNoFiles
}

// wantsPrevResult reports whether a derived step receives its parents' results. The step's prevResult field takes
// precedence over the plugin's schema. If the field is empty and there is no schema, wantsPrevResult returns true.
func (s Schemas) wantsPrevResult(step *v1alpha1.Step) bool {
	if step.PrevResult != "" {
		return step.PrevResult == v1alpha1.PrevResultParents
	}
	spec, known := s.byType[step.Type]
	if !known {
		return true
	}
	return spec.Input.PrevResult == prevResultRequired || spec.Input.PrevResult == prevResultOptional
}
