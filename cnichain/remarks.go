package cnichain

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Remarks returns hints about a valid topology: the remarks from its plugins' schemas, and a hint for each plugin
// without a schema, since its configuration is not checked. Duplicate hints are omitted. Plugins that other components
// run are skipped.
func Remarks(topology *v1alpha1.NetworkTopology, schemas Schemas) []string {
	if topology.Spec.Attachment == v1alpha1.AttachmentExternal {
		return nil
	}
	var remarks []string
	add := func(remark string) {
		if remark != "" && !slices.Contains(remarks, remark) {
			remarks = append(remarks, remark)
		}
	}
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		add(schemas.remark(step.Type))
		add(schemas.remark(IPAMType(rawConfig(step))))
		add(schemas.hostRemark(step))
		add(staticRemark(step))
		add(stateRemark(step))
	}
	if step := DefaultRouteStep(&topology.Spec); step != nil {
		add(fmt.Sprintf("step %s: it adds a default route, so a pod that has one from the cluster network does not "+
			"start: remove the route, or set defaultRoute: true if the network is meant to carry the pod's other traffic",
			step.Name))
	}
	return remarks
}

// DefaultRouteStep returns the first step whose configuration adds a default route although no step is allowed to add
// one, or nil if there is no such step. It does not detect routes from DHCP servers or unknown plugins, or routes that
// a later step moves to another table.
func DefaultRouteStep(spec *v1alpha1.NetworkTopologySpec) *v1alpha1.Step {
	if slices.ContainsFunc(spec.Steps, func(step v1alpha1.Step) bool {
		return step.DefaultRoute || step.Type == "sbr" || step.Type == "vrf"
	}) {
		return nil
	}
	for i := range spec.Steps {
		var config struct {
			IsDefaultGateway bool `json:"isDefaultGateway"`
			IPAM             struct {
				Routes []struct {
					Dst             netip.Prefix `json:"dst"`
					Priority, Table int
				} `json:"routes"`
			} `json:"ipam"`
		}
		if spec.Steps[i].Driver != "" || json.Unmarshal(rawConfig(&spec.Steps[i]), &config) != nil {
			continue // there is no interface, validation reports the problem, or a template hides the value
		}
		if config.IsDefaultGateway {
			return &spec.Steps[i]
		}
		for _, route := range config.IPAM.Routes {
			if route.Dst.IsValid() && route.Dst.Bits() == 0 && route.Priority == 0 && route.Table == 0 {
				return &spec.Steps[i]
			}
		}
	}
	return nil
}

// inPodParameters returns the parameters that make a plugin look for its lower device in the pod. These parameters are
// a convention of the reference plugins (vlan, macvlan, ipvlan) and of bond. Without them, these plugins search the
// host.
func inPodParameters() []string { return []string{"linkInContainer", "linksInContainer"} }

// hostRemark returns a warning if a step's plugin looks for another step's interface on the host, although that
// interface is in the pod; otherwise, it returns "". This is not an error, since the host may have a link with that
// name, but the pod would get an interface on an unrelated link.
func (s Schemas) hostRemark(step *v1alpha1.Step) string {
	schema, known := s.Lookup(step.Type)
	if !known || schema.Config == nil {
		return ""
	}
	var config map[string]any
	if json.Unmarshal(rawConfig(step), &config) != nil {
		return "" // validation reports this problem
	}
	for _, parameter := range inPodParameters() {
		_, takes := schema.Config.Properties[parameter]
		if value, given := config[parameter]; !takes || given && value != false { // a template may be true
			continue
		}
		if parent := interfaceOf(rawConfig(step)); parent != "" {
			return fmt.Sprintf("step %s: %s looks for the interface of step %s on the host, where it does not "+
				"exist: set %s: true", step.Name, step.Type, parent, parameter)
		}
	}
	return ""
}

// staticRemark returns a warning if a step assigns the same address to every pod; otherwise, it returns "".
func staticRemark(step *v1alpha1.Step) string {
	var config struct {
		IPAM struct {
			Type      string `json:"type"`
			Addresses []struct {
				Address string `json:"address"`
			} `json:"addresses"`
		} `json:"ipam"`
	}
	if json.Unmarshal(rawConfig(step), &config) != nil || config.IPAM.Type != "static" {
		return ""
	}
	for _, given := range config.IPAM.Addresses {
		if given.Address != "" && !strings.Contains(given.Address, "{{") {
			return fmt.Sprintf("step %s: every pod gets the address %s: if two pods may exist at the same time, set "+
				"addressRange of the step, or ipam type host-local, whose addresses are unique on each node only",
				step.Name, given.Address)
		}
	}
	return ""
}

// stateRemark returns a warning if a step's plugins keep state in a directory in the driver's container; otherwise, it
// returns "". This state would be lost when the driver's pod is replaced, and addresses could then be assigned twice.
// This is not an error, since the driver's pod may mount the directory from the host.
func stateRemark(step *v1alpha1.Step) string {
	var config struct {
		DataDir string `json:"dataDir"`
		IPAM    struct {
			DataDir string `json:"dataDir"`
		} `json:"ipam"`
	}
	if json.Unmarshal(rawConfig(step), &config) != nil {
		return ""
	}
	for _, folder := range []string{config.DataDir, config.IPAM.DataDir} {
		mounted := slices.ContainsFunc([]string{"/var/lib/cni/", "/run/cni/", "/var/run/cni/"}, func(top string) bool {
			return strings.HasPrefix(path.Clean(folder)+"/", top)
		})
		if folder != "" && !mounted && !strings.Contains(folder, "{{") {
			return fmt.Sprintf("step %s: data in dataDir %s, such as addresses in use, is lost when the "+
				"driver's pod is replaced, unless that mounts the folder of the host (node.extraMounts of the "+
				"chart): remove dataDir, or use a folder below /var/lib/cni", step.Name, folder)
		}
	}
	return ""
}

// interfaceOf returns the name of the first step whose interface is referenced by a template in the configuration, or
// "" if there is none.
func interfaceOf(config json.RawMessage) (step string) {
	_, _ = template.New().RenderJSON(config, func(t template.Token) (any, error) { // ignore invalid templates
		if t.Field == template.FieldInterfaceName && step == "" {
			step = t.Root
		}
		return "", nil
	})
	return step
}

// plugins returns the sorted CNI types with schemas, except IPAM plugins.
func (s Schemas) plugins() []string {
	ipams := s.ipams()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.byType)),
		func(cniType string) bool { return slices.Contains(ipams, cniType) })
}

// modifiersWith returns the sorted CNI types that modify another step's interface and have a capability.
func (s Schemas) modifiersWith(capability v1alpha1.Capability) []string {
	return slices.DeleteFunc(s.plugins(), func(cniType string) bool {
		schema, _ := s.Lookup(cniType)
		return schema.Output.Interfaces != interfacesModifies || !slices.Contains(schema.Capabilities, capability)
	})
}

// remark returns the hint for users of a plugin, or "" if there is none.
func (s Schemas) remark(cniType string) string {
	spec, known := s.Lookup(cniType)
	switch {
	case cniType == "" || known && spec.Remark == "":
		return ""
	case known:
		return fmt.Sprintf("plugin %s: %s", cniType, spec.Remark)
	}
	return fmt.Sprintf("no schema for plugin %s, so its configuration is not checked", cniType)
}
