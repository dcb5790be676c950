package ovnkube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

const (
	layer2   = "layer2"
	layer3   = "layer3"
	localnet = "localnet"
)

const (
	// defaultNetwork is the name of the network to which all pods are connected. Its configuration does not specify a
	// topology.
	defaultNetwork = "default"
	// defaultMTU is 1500 minus the Geneve overhead.
	defaultMTU = 1400
)

// parseConf parses a configuration in the same way as the real server, which uses only a few fields, because the
// NetworkAttachmentDefinition defines the network. A configured MTU overrides the default.
func parseConf(data []byte) (*netConf, error) {
	conf := &netConf{MTU: defaultMTU}
	if err := json.Unmarshal(data, conf); err != nil {
		return nil, err
	}
	switch {
	case conf.Type != PluginType:
		return nil, fmt.Errorf("type %q is not managed by OVN", conf.Type)
	case conf.Topology == "":
		conf.Name = defaultNetwork
	case conf.NADName == "":
		return nil, fmt.Errorf("missing NADName in secondary network netconf %s", conf.Name)
	case slices.Contains([]string{"", defaultNetwork, "ovn-kubernetes"}, conf.Name):
		return nil, fmt.Errorf("invalid name in secondary network netconf (%s)", conf.Name)
	}
	return conf, nil
}

// network is a network, as described by its NetworkAttachmentDefinition.
type network struct {
	netConf
	subnets, exclusions []netip.Prefix
}

// parseNetwork parses the configuration in a NetworkAttachmentDefinition in the same way as the real controllers, which
// ignore networks with errors. nad is the object's namespace/name, which the configuration must also contain.
func parseNetwork(nad string, data []byte) (*network, error) {
	conf, err := parseConf(data)
	if err != nil {
		return nil, err
	}
	n := &network{netConf: *conf}
	var subnetsErr, excludedErr error
	n.subnets, subnetsErr = prefixes(n.Subnets, n.Topology == layer3)
	n.exclusions, excludedErr = prefixes(n.ExcludeSubnets, false)
	return n, errors.Join(n.validate(nad), subnetsErr, excludedErr)
}

// validate returns an error that describes all problems. It also rejects features that the double does not support, so
// that tests do not pass merely because the double ignores a feature.
func (n *network) validate(nad string) error {
	var problems []error
	check := func(good bool, format string, args ...any) {
		if !good {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(slices.Contains([]string{layer2, layer3, localnet}, n.Topology),
		"topology must be layer2, layer3 or localnet, not %q", n.Topology)
	check(n.NADName == nad, "net-attach-def name (%s) is inconsistent with config (%s)", nad, n.NADName)
	check(slices.Contains([]string{"", "secondary"}, n.Role),
		"invalid network role %q: this double has no primary networks", n.Role)
	check(n.Topology != layer3 || !n.AllowPersistentIPs, "layer3 topology does not allow persistent IPs")
	check(n.Topology == localnet || n.VLANID == 0 && n.PhysicalNetworkName == "",
		"only a localnet has a vlanID and a physicalNetworkName")
	check(n.Topology != localnet || n.JoinSubnet == "", "localnet topology does not allow specifying joinSubnet")
	check(n.VLANID == 0, "vlanID %d: this double knows no VLANs", n.VLANID)
	check(n.ExcludeSubnets == "" || n.Subnets != "", "excludeSubnets needs subnets")
	check(n.IPAM.Type == "", "IPAM key is not supported. Use OVN-K provided IPAM via the `subnets` attribute")
	return errors.Join(problems...)
}

// prefixes parses a list of prefixes. If ofNodes is set, an element may end with the prefix length for node subnets, as
// in 10.128.0.0/14/23. Such an element is replaced with its first prefix of that length.
func prefixes(list string, ofNodes bool) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		parts := strings.Split(text, "/")
		if ofNodes && len(parts) == 3 {
			text = parts[0] + "/" + parts[2]
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a subnet: %w", text, err)
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}

// physicalNetwork returns the name of the physical network that the bridge mappings must contain for a localnet.
func (n *netConf) physicalNetwork() string {
	if n.PhysicalNetworkName != "" {
		return n.PhysicalNetworkName
	}
	return n.Name
}

// isMapped reports whether a list of bridge mappings, NETWORK:BRIDGE,..., contains a physical network.
func isMapped(list, network string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(mapping string) bool {
		parts := strings.Split(mapping, ":")
		return len(parts) == 2 && parts[0] == network
	})
}
