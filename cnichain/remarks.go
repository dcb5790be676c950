package cnichain

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/internal/template"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/policy/nearest"
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
	add := func(remark string) {
		if remark != "" && !slices.Contains(remarks, remark) {
			remarks = append(remarks, remark)
		}
	}
	for i := range topology.Spec.Steps {
		step := &topology.Spec.Steps[i]
		add(schemas.remark(step.Type, plugins))
		add(schemas.remark(IPAMType(rawConfig(step)), ipams))
		add(schemas.hostRemark(step))
		add(staticRemark(step))
		add(gatewayRemark(step))
		add(stateRemark(step))
	}
	return remarks
}

// inPodParameters are the parameters by which plugins are told that the links that they stand on are in the pod: a
// convention of the reference plugins (vlan, macvlan, ipvlan) and of bond. Without it they look on the host.
func inPodParameters() []string { return []string{"linkInContainer", "linksInContainer"} }

// hostRemark says of a step that its plugin looks for another step's interface, which is in the pod, on the host; empty
// if it does not. There may be a link of that name, so it is no error: the pod would get an interface on a stranger.
func (s Schemas) hostRemark(step *v1alpha1.Step) string {
	schema, known := s.Lookup(step.Type)
	if !known || schema.Config == nil {
		return ""
	}
	var config map[string]any
	if json.Unmarshal(rawConfig(step), &config) != nil {
		return "" // validation has said so
	}
	for _, parameter := range inPodParameters() {
		_, takes := schema.Config.Properties[parameter]
		if value, given := config[parameter]; !takes || given && value != false { // a template may be true
			continue
		}
		if parent := interfaceOf(rawConfig(step)); parent != "" {
			return fmt.Sprintf("step %s: %s looks for the interface of step %s on the host, where it is not: "+
				"set %s: true", step.Name, step.Type, parent, parameter)
		}
	}
	return ""
}

// staticRemark says of a step that every pod gets the same addresses; empty if they are not written out.
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
			return fmt.Sprintf("step %s: every pod gets the address %s: if there may be two at a time, use host-local "+
				"or an AddressRange", step.Name, given.Address)
		}
	}
	return ""
}

// gatewayRemark says of a step that its gateway is in no network of its addresses; empty if there is none such. IPAM
// plugins take it, and some plugins make a route to it, so it is no error.
func gatewayRemark(step *v1alpha1.Step) string {
	gateway, network := claimspec.StrayGateway(step)
	if gateway == "" {
		return ""
	}
	return fmt.Sprintf("step %s: the gateway %s is outside of the network %s: most plugins cannot make routes through "+
		"it", step.Name, gateway, network)
}

// stateRemark says of a step that its plugins keep what they have done in a folder of the driver's container; empty if
// they don't. Addresses would be given out once more after the pod of the driver is replaced. The driver's pod may
// mount the folder, so it is no error.
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
			return fmt.Sprintf("step %s: what is kept in dataDir %s, such as addresses in use, is lost when the "+
				"driver's pod is replaced, unless that mounts the folder of the host (node.extraMounts of the "+
				"chart): remove dataDir, or use a folder below /var/lib/cni", step.Name, folder)
		}
	}
	return ""
}

// interfaceOf returns the first step whose interface a configuration names by a template; empty if there is none.
func interfaceOf(config json.RawMessage) (step string) {
	_, _ = template.New().RenderJSON(config, func(t template.Token) (any, error) { // a bad template is told elsewhere
		if t.Field == template.FieldInterfaceName && step == "" {
			step = t.Root
		}
		return "", nil
	})
	return step
}

// MisspeltPlugins says which of the CNI plugins that a policy names are probably other ones: those without a schema
// whose names are almost that of a plugin with one. A plugin of somebody's own is none of them.
func MisspeltPlugins(names []string, schemas Schemas) []string {
	var remarks []string
	for _, name := range names {
		if near := schemas.MeantPlugin(name); near != "" {
			remarks = append(remarks, fmt.Sprintf("plugin %s is none that the driver knows: did you mean %s?", name,
				near))
		}
	}
	return remarks
}

// MeantPlugin returns the plugin with a schema that is probably meant by a name of a plugin without one; empty if there
// is none.
func (s Schemas) MeantPlugin(name string) string {
	if _, found := s.Lookup(name); found {
		return ""
	}
	return nearest.Word(name, s.plugins())
}

// MeantType returns the plugin with a schema, also an IPAM plugin, that is probably meant by a name of one without;
// empty if there is none.
func (s Schemas) MeantType(name string) string {
	if _, found := s.Lookup(name); found {
		return ""
	}
	return nearest.Word(name, slices.Sorted(maps.Keys(s.byType)))
}

// plugins are the CNI types that have schemas and are no IPAM plugins, sorted.
func (s Schemas) plugins() []string {
	ipams := s.ipams()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.byType)),
		func(cniType string) bool { return slices.Contains(ipams, cniType) })
}

// modifiersWith are the CNI types that change an interface of another step and have a capability, sorted.
func (s Schemas) modifiersWith(capability v1alpha1.Capability) []string {
	return slices.DeleteFunc(s.plugins(), func(cniType string) bool {
		schema, _ := s.Lookup(cniType)
		return schema.Output.Interfaces != interfacesModifies || !slices.Contains(schema.Capabilities, capability)
	})
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
	if near := nearest.Word(cniType, alike); near != "" {
		remark += fmt.Sprintf("; did you mean %s?", near)
	}
	return remark
}
