package cnichain

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// refuse reports a value that a plugin always rejects.
func (c *contracts) refuse(path *field.Path, format string, arguments ...any) {
	c.add(field.Invalid(path, field.OmitValueType{}, fmt.Sprintf(format, arguments...)))
}

// refusals reports configuration that well-known plugins always reject during ADD, and that schemas cannot describe
// because several parameters or steps are involved. It accepts templates, since their values are not known. interfaces
// are the names of the steps that create the interfaces of the step's parents.
func (c *contracts) refusals(step *v1alpha1.Step, path *field.Path, config map[string]any, interfaces []string) {
	location := path.Child("config")
	if mac, err := net.ParseMAC(c.literal(config["mac"])); err == nil && (mac[0]&1 == 1 || !slices.ContainsFunc(mac,
		func(b byte) bool { return b != 0 })) {
		c.refuse(location.Child("mac"), "is a group address or zero: write an address such as 02:00:00:00:00:05")
	}
	switch step.Type {
	case "bandwidth":
		for _, direction := range []string{"ingress", "egress"} {
			rate, burst := config[direction+"Rate"], config[direction+"Burst"]
			if makers := c.makers(interfaces, lacksHostEnd); makers != "" && isSet(rate) && isSet(burst) {
				c.refuse(path.Child("dependOn"), "bandwidth limits the host end of a veth, and %s makes none: limit "+
					"an interface of bridge, ptp or ovs", makers)
				break
			}
			_, isTemplate := rate.(string) // the schema rejects other strings
			_, isOther := burst.(string)
			if isSet(rate) != isSet(burst) && !isTemplate && !isOther {
				c.refuse(location, "bandwidth accepts %[1]sRate and %[1]sBurst only together: set both, or neither",
					direction)
			}
		}
	case "sbr":
		if makers := c.makers(interfaces, lacksIPAM); makers != "" {
			c.refuse(path.Child("dependOn"), "sbr routes by the addresses of an interface, and %s has none: set "+
				"config.ipam there", makers)
		}
	case "tuning":
		settings, _ := config["sysctl"].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			if !strings.HasPrefix(strings.TrimLeft(strings.ReplaceAll(key, ".", "/"), "/"), "net/") {
				c.refuse(location.Child("sysctl").Key(key), "is not a setting of the network, and tuning writes only "+
					"those: name one that begins with net.")
			}
		}
	case "portmap":
		c.portmap(location, config)
	case "bridge", "ovs":
		if config["hairpinMode"] == true && config["promiscMode"] == true {
			c.refuse(location.Child("promiscMode"), "bridge does not accept it together with hairpinMode: remove one")
		}
		c.trunks(location.Child("vlanTrunk"), config["vlanTrunk"])
		c.trunks(location.Child("trunk"), config["trunk"])
	}
}

// makers returns a description of the steps that create the interfaces. It returns "" unless all of these steps are
// known and have the given property.
func (c *contracts) makers(interfaces []string,
	has func(*v1alpha1.Step, *v1alpha1.CNIPluginSchemaSpec) bool) (description string) {
	for _, name := range interfaces {
		step := c.steps[name]
		schema, known := c.schemas.Lookup(step.Type)
		if !known || !has(step, &schema) {
			return ""
		}
		description = fmt.Sprintf("step %q (%s)", name, step.Type)
	}
	return description
}

// lacksHostEnd reports whether a plugin creates an interface without a peer on the host.
func lacksHostEnd(_ *v1alpha1.Step, schema *v1alpha1.CNIPluginSchemaSpec) bool {
	return schema.Output.Devices == devicesMove ||
		len(schema.LinkTypes) > 0 && !slices.Contains(schema.LinkTypes, "veth")
}

// lacksIPAM reports whether a step's interface has no addresses because only an IPAM plugin could assign them and none
// is configured.
func lacksIPAM(step *v1alpha1.Step, schema *v1alpha1.CNIPluginSchemaSpec) bool {
	return IPAMType(rawConfig(step)) == "" && hasIPAM(schema)
}

// hasIPAM reports whether a plugin gets its interface's addresses from an IPAM plugin.
func hasIPAM(schema *v1alpha1.CNIPluginSchemaSpec) bool {
	return schema.Config != nil && hasProperty(schema.Config, "ipam") && schema.PodNetworks == nil
}

// portmap rejects parameters for more than one backend, and port mappings without ports.
func (c *contracts) portmap(path *field.Path, config map[string]any) {
	backends := map[string]bool{c.literal(config["backend"]): true, "": true}
	if isSet(config["externalSetMarkChain"]) {
		backends["iptables"] = true
		if isSet(config["markMasqBit"]) {
			c.refuse(path.Child("markMasqBit"), "portmap does not accept it together with externalSetMarkChain: "+
				"remove one")
		}
	}
	for _, key := range []string{"conditionsV4", "conditionsV6"} {
		conditions, _ := config[key].([]any)
		if first := c.literal(append(conditions, "")[0]); first != "" {
			backends[map[bool]string{true: "iptables", false: "nftables"}[strings.ContainsAny(first[:1], "-!")]] = true
		}
	}
	if len(backends) > 2 {
		c.refuse(path, "has parameters of iptables and of nftables: externalSetMarkChain and conditions that begin "+
			"with - or ! are for iptables, other conditions for nftables")
	}
	given, _ := config["runtimeConfig"].(map[string]any)
	mappings, _ := given["portMappings"].([]any)
	for i, item := range mappings {
		mapping, _ := item.(map[string]any)
		for _, key := range []string{"hostPort", "containerPort"} {
			if port, isNumber := mapping[key].(json.Number); mapping[key] == nil || isNumber && port == "0" {
				c.refuse(path.Child("runtimeConfig", "portMappings").Index(i).Child(key), "portmap needs a port")
			}
		}
	}
}

// trunks rejects VLAN ranges that have a missing end, or whose ends are in the wrong order.
func (c *contracts) trunks(path *field.Path, value any) {
	list, _ := value.([]any)
	for i, item := range list {
		trunk, _ := item.(map[string]any)
		first, isFirst := trunk["minID"].(json.Number)
		last, isLast := trunk["maxID"].(json.Number)
		low, _ := first.Int64() // the schema check reports numbers that are not integers
		high, _ := last.Int64()
		switch {
		case (trunk["minID"] == nil) != (trunk["maxID"] == nil):
			c.refuse(path.Index(i), "has only one of minID and maxID: set both, or id")
		case isFirst && isLast && high < low:
			c.refuse(path.Index(i), "has a maxID that is less than minID: swap them")
		}
	}
}

// literal returns the value if it is a string without a template, and "" otherwise.
func (c *contracts) literal(value any) string {
	if text, isText := value.(string); isText && !c.templates.HasTokens(text) {
		return text
	}
	return ""
}

// isSet reports whether a value differs from the default that plugins use for a missing parameter.
func isSet(value any) bool {
	return value != nil && value != json.Number("0") && value != "" && value != false
}

// minIPv6 is the minimum MTU for IPv6. The kernel disables IPv6 on interfaces with a smaller MTU.
const minIPv6 = 1280

// assigned reports addresses and routes from an IPAM plugin that the kernel never accepts for the interface.
func (c *contracts) assigned(step *v1alpha1.Step, path *field.Path, config, ipam map[string]any) {
	location := path.Child("ipam")
	all, exact := claimspec.AssignedBy(step)
	if step.AddressRange == "" && claimspec.LacksAddresses(step) && !claimspec.NeedsIPs(step) {
		c.add(field.Required(location.Child("addresses"), "plugins attach no interface without an address: write the "+
			"addresses here, or let claims set ips"))
	}
	mtu, _ := config["mtu"].(json.Number)
	size, _ := mtu.Int64()
	for i, a := range all {
		before := slices.IndexFunc(all, func(b claimspec.Assigned) bool {
			return a.Addr() == b.Addr() && (a.Bits() == b.Bits() || a.Addr().Is6())
		})
		switch element := location.Child("addresses").Index(i); {
		case size > 0 && size < minIPv6 && a.Addr().Is6():
			c.refuse(path.Child("mtu"), "is less than %d, the minimum for the IPv6 address %s", minIPv6, a.Prefix)
		case !exact:
		case before != i:
			c.add(field.Duplicate(element.Child("address"), a.String()))
		case a.Addr().Is6() && (a.Addr().IsMulticast() || a.Addr().IsLoopback() || a.Addr().IsUnspecified()):
			c.refuse(element.Child("address"), "is not a unicast address of this interface: write another one")
		case step.Type == "ptp" && !a.Gateway.IsValid():
			c.add(field.Required(element.Child("gateway"), "ptp gives this address to the host end of the veth"))
		}
	}
	r := &routes{contracts: c, assigned: all, exact: exact, isDefault: isSet(config["isDefaultGateway"]),
		seen: map[string]int{}, refused: map[netip.Addr]bool{}}
	list, _ := ipam["routes"].([]any)
	for i, item := range list {
		if object, isObject := item.(map[string]any); isObject {
			r.route(location.Child("routes").Index(i), i, object)
		}
	}
}

// routes checks one IPAM plugin's routes, in order.
type routes struct {
	*contracts
	assigned  []claimspec.Assigned
	exact     bool
	isDefault bool // the plugin adds default routes through the gateways
	onLink    []netip.Prefix
	seen      map[string]int
	refused   map[netip.Addr]bool // gateways; each is reported once
}

// route checks one route the way plugins add it: through the route's own gateway, through the first gateway of its
// address family, or without a gateway.
func (r *routes) route(path *field.Path, i int, object map[string]any) {
	destination, err := netip.ParsePrefix(r.literal(object["dst"]))
	gateway, gatewayErr := netip.ParseAddr(r.literal(object["gw"]))
	if err != nil || destination.Addr().Is4In6() || object["gw"] != nil && gatewayErr != nil {
		return // a template, or reported by the format check
	}
	gateway = gateway.Unmap()
	isV4 := destination.Addr().Is4()
	family := slices.DeleteFunc(slices.Clone(r.assigned), func(a claimspec.Assigned) bool {
		return a.Addr().Is4() != isV4
	})
	switch {
	case isV4 && destination != destination.Masked():
		r.refuse(path.Child("dst"), "has host bits set: write %s", destination.Masked())
		return
	case gateway.IsValid() && gateway.Is4() != isV4:
		r.refuse(path.Child("gw"), "is of another IP family than %s", destination)
		return
	case r.isDefault && destination.Bits() == 0 && len(object) == 1 && len(family) > 0:
		r.refuse(path.Child("dst"), "is the route that isDefaultGateway adds: remove one of them")
		return
	}
	for _, a := range r.assigned {
		if !gateway.IsValid() && a.Gateway.IsValid() && a.Gateway.Is4() == isV4 {
			gateway = a.Gateway
		}
	}
	key := fmt.Sprint(destination.Masked(), gateway, object["priority"], object["table"], object["scope"])
	if before, duplicate := r.seen[key]; duplicate {
		r.add(field.Duplicate(path, fmt.Sprintf("%s, as routes[%d]", destination, before)))
		return
	}
	r.seen[key] = i
	if !gateway.IsValid() {
		r.onLink = append(r.onLink, destination)
	} else if reason := r.unreachable(gateway, family); reason != "" && !r.refused[gateway] {
		r.refused[gateway] = true
		r.refuse(path, "goes through the gateway %s, which is %s: write the address of a router", gateway, reason)
	}
}

// unreachable returns the reason why the kernel rejects routes through a gateway, based on the addresses of the
// gateway's family. It returns "" if the kernel accepts the routes, or if that depends on addresses that are not known
// here.
func (r *routes) unreachable(gateway netip.Addr, family []claimspec.Assigned) string {
	if len(r.assigned) == 0 || gateway.IsLinkLocalUnicast() || gateway.IsUnspecified() {
		return ""
	}
	isOnLink := slices.ContainsFunc(r.onLink, func(p netip.Prefix) bool { return p.Contains(gateway) })
	for _, a := range family {
		switch {
		case gateway.Is4() && a.Bits() < 31 && addresses.Last(a.Masked()) == gateway:
			return "a broadcast address"
		case r.exact && gateway.Is6() && a.Addr() == gateway:
			return "the address of the interface itself"
		}
		isOnLink = isOnLink || a.Masked().Contains(gateway)
	}
	if isOnLink {
		return ""
	}
	return "outside of the networks of the addresses"
}
