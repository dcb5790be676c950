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

// pair is two parameters of a plugin that it accepts only together, or never together.
type pair struct {
	cniType, first, second string
	together               bool
}

func pairs() []pair {
	return []pair{
		{"bridge", "hairpinMode", "promiscMode", false},
		{"portmap", "markMasqBit", "externalSetMarkChain", false},
		{"bandwidth", "ingressRate", "ingressBurst", true},
		{"bandwidth", "egressRate", "egressBurst", true},
	}
}

// refusals reports configuration that well-known plugins always reject at ADD and that schemas cannot describe, since
// it concerns several parameters or steps. It accepts templates, whose values are not known. interfaces are the steps
// that make the interfaces of the step's parents.
func (c *contracts) refusals(path *field.Path, step *v1alpha1.Step, config map[string]any, interfaces []string) {
	location := path.Child("config")
	for _, p := range pairs() {
		first, second := config[p.first], config[p.second]
		switch {
		case p.cniType != step.Type || c.isTemplate(first) || c.isTemplate(second):
		case !p.together && isSet(first) && isSet(second):
			c.add(field.Forbidden(location.Child(p.second), fmt.Sprintf("%s does not accept %s together with %s: "+
				"remove "+
				"one of them", step.Type, p.second, p.first)))
		case p.together && isSet(first) != isSet(second):
			c.add(field.Invalid(location, field.OmitValueType{}, fmt.Sprintf("%s accepts %s and %s only together: set "+
				"both, or neither", step.Type, p.first, p.second)))
		}
	}
	if mac, err := net.ParseMAC(c.literal(config["mac"])); err == nil && (mac[0]&1 == 1 || !slices.ContainsFunc(mac,
		func(b byte) bool { return b != 0 })) {
		c.add(field.Invalid(location.Child("mac"), mac.String(), "is a group address or zero, which no interface can "+
			"have: write an address such as 02:00:00:00:00:05"))
	}
	switch step.Type {
	case "bandwidth":
		limits := slices.ContainsFunc(pairs(), func(p pair) bool { return p.together && isSet(config[p.first]) })
		if makers := c.makers(interfaces, lacksHostEnd); limits && makers != "" {
			c.add(field.Invalid(path.Child("dependOn"), step.DependOn, fmt.Sprintf("bandwidth limits the host end of "+
				"a veth, "+
				"and %s makes none: limit an interface of bridge, ptp or ovs", makers)))
		}
	case "sbr":
		if makers := c.makers(interfaces, lacksIPAM); makers != "" {
			c.add(field.Invalid(path.Child("dependOn"), step.DependOn, fmt.Sprintf("sbr routes by the addresses of an "+
				"interface, and %s has none: set config.ipam there", makers)))
		}
	case "tuning":
		c.sysctls(location.Child("sysctl"), config)
	case "portmap":
		c.portmap(location, config)
	case "bridge", "ovs":
		c.trunks(location, config)
	}
}

// makers describes the steps that make the interfaces, if all of them are known and have a property; otherwise it
// returns "".
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

// lacksHostEnd reports whether a plugin makes an interface that has no other end on the host.
func lacksHostEnd(_ *v1alpha1.Step, schema *v1alpha1.CNIPluginSchemaSpec) bool {
	return schema.Output.Devices == devicesMove ||
		len(schema.LinkTypes) > 0 && !slices.Contains(schema.LinkTypes, "veth")
}

// lacksIPAM reports whether a step's interface has no addresses, since an IPAM plugin is the only source of them.
func lacksIPAM(step *v1alpha1.Step, schema *v1alpha1.CNIPluginSchemaSpec) bool {
	return IPAMType(rawConfig(step)) == "" && schema.PodNetworks == nil && schema.Config != nil &&
		hasProperty(schema.Config, "ipam")
}

// sysctls rejects settings outside of the network, which tuning does not write.
func (c *contracts) sysctls(path *field.Path, config map[string]any) {
	settings, _ := config["sysctl"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if !strings.HasPrefix(strings.TrimLeft(strings.ReplaceAll(key, ".", "/"), "/"), "net/") {
			c.add(field.Invalid(path.Key(key), field.OmitValueType{}, "is not a setting of the network, and tuning "+
				"writes "+
				"only those: name one that begins with net."))
		}
	}
}

// portmap rejects parameters of both backends, and port mappings without ports.
func (c *contracts) portmap(path *field.Path, config map[string]any) {
	backends := map[string]bool{}
	if backend := c.literal(config["backend"]); backend != "" {
		backends[backend] = true
	}
	if c.literal(config["externalSetMarkChain"]) != "" {
		backends["iptables"] = true
	}
	for _, key := range []string{"conditionsV4", "conditionsV6"} {
		if conditions, _ := config[key].([]any); len(conditions) > 0 && c.literal(conditions[0]) != "" {
			isOption := strings.ContainsAny(c.literal(conditions[0])[:1], "-!")
			backends[map[bool]string{true: "iptables", false: "nftables"}[isOption]] = true
		}
	}
	if len(backends) > 1 {
		c.add(field.Invalid(path, field.OmitValueType{}, "has parameters of iptables and of nftables: "+
			"externalSetMarkChain and conditions that begin with - or ! are for iptables, other conditions for "+
			"nftables"))
	}
	given, _ := config["runtimeConfig"].(map[string]any)
	mappings, _ := given["portMappings"].([]any)
	for i, item := range mappings {
		mapping, isObject := item.(map[string]any)
		for _, key := range []string{"hostPort", "containerPort"} {
			if port, isNumber := mapping[key].(json.Number); isObject && (mapping[key] == nil || isNumber &&
				(port == "0" || strings.HasPrefix(port.String(), "-"))) {
				c.add(field.Required(path.Child("runtimeConfig", "portMappings").Index(i).Child(key), "portmap needs "+
					"a port "+
					"of at least 1"))
			}
		}
	}
}

// trunks rejects ranges of VLANs without an end, or with ends in the wrong order.
func (c *contracts) trunks(path *field.Path, config map[string]any) {
	for _, key := range []string{"vlanTrunk", "trunk"} { // of bridge and ovs
		trunks, _ := config[key].([]any)
		for i, item := range trunks {
			trunk, _ := item.(map[string]any)
			location := path.Child(key).Index(i)
			first, firstIsNumber := trunk["minID"].(json.Number)
			last, lastIsNumber := trunk["maxID"].(json.Number)
			low, _ := first.Int64() // the schema reports other numbers
			high, _ := last.Int64()
			switch {
			case (trunk["minID"] == nil) != (trunk["maxID"] == nil):
				c.add(field.Invalid(location, field.OmitValueType{}, "has only one of minID and maxID: set both, or "+
					"id"))
			case firstIsNumber && lastIsNumber && high < low:
				c.add(field.Invalid(location.Child("maxID"), high, fmt.Sprintf("is less than minID, which is %d: "+
					"exchange "+
					"them", low)))
			}
		}
	}
}

// isTemplate reports whether a value is only known for a pod.
func (c *contracts) isTemplate(value any) bool {
	text, isText := value.(string)
	return isText && c.templates.HasTokens(text)
}

// literal returns a text; empty for other values and for templates.
func (c *contracts) literal(value any) string {
	if text, isText := value.(string); isText && !c.templates.HasTokens(text) {
		return text
	}
	return ""
}

// isSet reports whether a value differs from the one that plugins use for a missing parameter.
func isSet(value any) bool {
	switch value := value.(type) {
	case bool:
		return value
	case json.Number:
		return value != "0"
	case string:
		return value != ""
	}
	return value != nil
}

// assigned reports addresses and routes of an IPAM plugin that the kernel never accepts for the interface.
func (c *contracts) assigned(path *field.Path, step *v1alpha1.Step, config, ipam map[string]any) {
	location := path.Child("config", "ipam")
	all, exact := claimspec.AssignedBy(step)
	if step.AddressRange == "" && claimspec.LacksAddresses(step) && !claimspec.NeedsIPs(step) {
		c.add(field.Required(location.Child("addresses"), "static assigns only the addresses that it names, and "+
			"plugins "+
			"attach no interface without an address: write them here, or let claims set ips"))
	}
	for i, a := range all {
		before := slices.IndexFunc(all, func(b claimspec.Assigned) bool {
			return a.Addr() == b.Addr() && (a.Bits() == b.Bits() || a.Addr().Is6())
		})
		switch element := location.Child("addresses").Index(i); {
		case !exact:
		case before != i:
			c.add(field.Duplicate(element.Child("address"), a.String()))
		case a.Addr().Is6() && (a.Addr().IsMulticast() || a.Addr().IsLoopback() || a.Addr().IsUnspecified()):
			c.add(field.Invalid(element.Child("address"), a.String(), "is an address that only other interfaces can "+
				"have, "+
				"or none: write a unicast address"))
		case step.Type == "ptp" && !a.Gateway.IsValid():
			c.add(field.Required(element.Child("gateway"), "ptp gives this address to the host end of the veth"))
		}
		mtu, _ := config["mtu"].(json.Number)
		if size, err := mtu.Int64(); err == nil && size > 0 && size < minIPv6 && a.Addr().Is6() && !a.Addr().Is4In6() {
			c.add(field.Invalid(path.Child("config", "mtu"), size, fmt.Sprintf("is less than %d, the least for the "+
				"IPv6 "+
				"address %s", minIPv6, a.Prefix)))
		}
	}
	r := &routes{contracts: c, assigned: all, exact: exact, isDefault: isSet(config["isDefaultGateway"]),
		seen: map[string]int{}, refused: map[netip.Addr]bool{}}
	list, _ := ipam["routes"].([]any)
	for i, item := range list {
		if object, isObject := item.(map[string]any); isObject {
			r.route(location.Child("routes"), i, object)
		}
	}
}

// minIPv6 is the minimum MTU of IPv6; the kernel disables it on interfaces with less.
const minIPv6 = 1280

// routes checks the routes of one IPAM plugin, in their order.
type routes struct {
	*contracts
	assigned  []claimspec.Assigned
	exact     bool
	isDefault bool // the plugin adds default routes through the gateways
	onLink    []netip.Prefix
	seen      map[string]int
	refused   map[netip.Addr]bool // gateways; each is reported once
}

// route checks one route as plugins add it: through its gateway or the first gateway of its family, or without any.
func (r *routes) route(path *field.Path, i int, object map[string]any) {
	destination, err := netip.ParsePrefix(r.literal(object["dst"]))
	gateway, gatewayErr := netip.ParseAddr(r.literal(object["gw"]))
	if err != nil || destination.Addr().Is4In6() || object["gw"] != nil && gatewayErr != nil {
		return // a template, or reported for the format
	}
	gateway = gateway.Unmap()
	isV4 := destination.Addr().Is4()
	switch {
	case isV4 && destination != destination.Masked():
		r.add(field.Invalid(path.Index(i).Child("dst"), destination.String(), fmt.Sprintf("has bits after its prefix: "+
			"write %s", destination.Masked())))
		return
	case gateway.IsValid() && gateway.Is4() != isV4:
		r.add(field.Invalid(path.Index(i).Child("gw"), gateway.String(), fmt.Sprintf("is of another IP family than %s",
			destination)))
		return
	case r.isDefault && destination.Bits() == 0 && len(object) == 1 && slices.ContainsFunc(r.assigned,
		func(a claimspec.Assigned) bool { return a.Addr().Is4() == isV4 }):
		r.add(field.Invalid(path.Index(i).Child("dst"), destination.String(), "is the route that isDefaultGateway "+
			"adds: "+
			"remove one of them"))
		return
	}
	for _, a := range r.assigned {
		if !gateway.IsValid() && a.Gateway.IsValid() && a.Gateway.Is4() == isV4 {
			gateway = a.Gateway
		}
	}
	key := fmt.Sprint(destination.Masked(), gateway, object["priority"], object["table"], object["scope"])
	if before, duplicate := r.seen[key]; duplicate {
		r.add(field.Duplicate(path.Index(i), fmt.Sprintf("%s, as routes[%d]", destination, before)))
		return
	}
	r.seen[key] = i
	if !gateway.IsValid() {
		r.onLink = append(r.onLink, destination)
	} else if reason := r.unreachable(gateway); reason != "" && !r.refused[gateway] {
		r.refused[gateway] = true
		r.add(field.Invalid(path.Index(i), destination.String(), fmt.Sprintf("goes through the gateway %s, %s", gateway,
			reason)))
	}
}

// unreachable returns the reason why the kernel rejects routes through a gateway; empty if it accepts them, or if that
// depends on addresses that are not known here.
func (r *routes) unreachable(gateway netip.Addr) string {
	family := slices.DeleteFunc(slices.Clone(r.assigned), func(a claimspec.Assigned) bool {
		return a.Addr().Is4() != gateway.Is4()
	})
	switch {
	case len(r.assigned) == 0 || gateway.IsLinkLocalUnicast() || gateway.IsUnspecified():
		return ""
	case slices.ContainsFunc(family, func(a claimspec.Assigned) bool {
		return gateway.Is4() && a.Bits() < 31 && addresses.Last(a.Masked()) == gateway
	}):
		return "which is a broadcast address: write that of the router"
	case r.exact && gateway.Is6() && slices.ContainsFunc(family, func(a claimspec.Assigned) bool {
		return a.Addr() == gateway
	}):
		return "which is the address of the interface itself: write that of the router"
	case slices.ContainsFunc(family, func(a claimspec.Assigned) bool { return a.Masked().Contains(gateway) }),
		slices.ContainsFunc(r.onLink, func(p netip.Prefix) bool { return p.Contains(gateway) }):
		return ""
	}
	return "which is outside of the networks of the addresses, so plugins cannot add the route: write a gateway of " +
		"one of " +
		"the networks"
}
