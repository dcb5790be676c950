package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/dra-networking/dra-network-driver/discovery"
)

const (
	layer2   = "layer2"
	layer3   = "layer3"
	localnet = "localnet"
)

// defaultMTU is that of OVN-Kubernetes: what is left of 1500 by Geneve.
const defaultMTU = 1400

// config is the plugin's configuration.
type config struct {
	types.NetConf
	Topology            string `json:"topology"`
	Role                string `json:"role"`
	NADName             string `json:"netAttachDefName"`
	MTU                 int    `json:"mtu"`
	Subnets             string `json:"subnets"` // 192.0.2.0/24, several with commas; of layer3 also 10.128.0.0/14/23
	ExcludeSubnets      string `json:"excludeSubnets"`
	JoinSubnet          string `json:"joinSubnet"`
	VLANID              int    `json:"vlanID"`
	AllowPersistentIPs  bool   `json:"allowPersistentIPs"`
	PhysicalNetworkName string `json:"physicalNetworkName"`
	DeviceID            string `json:"deviceID"` // PCI address of a virtual function

	subnets, excluded []netip.Prefix
}

func parse(data []byte) (*config, error) {
	c := &config{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("broken stdin args: %w", err)
	}
	var subnetsErr, excludedErr error
	c.subnets, subnetsErr = prefixes(c.Subnets, c.Topology == layer3)
	c.excluded, excludedErr = prefixes(c.ExcludeSubnets, false)
	return c, errors.Join(c.validate(), subnetsErr, excludedErr)
}

func (c *config) validate() error {
	var problems []error
	check := func(good bool, format string, args ...any) {
		if !good {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(slices.Contains([]string{layer2, layer3, localnet}, c.Topology),
		"topology must be layer2, layer3 or localnet, not %q", c.Topology)
	namespace, name, _ := strings.Cut(c.NADName, "/")
	check(namespace != "" && name != "" &&
		!strings.Contains(name, "/"), "netAttachDefName of network %s must be namespace/name, not %q",
		c.Name, c.NADName)
	check(slices.Contains([]string{"", "primary", "secondary"}, c.Role), "invalid network role %q", c.Role)
	check(c.Topology != localnet ||
		c.Role != "primary", "a localnet is always a secondary network: role must not be %s", c.Role)
	check(c.Topology != layer2 || c.Role != "primary" || c.Subnets != "", "a primary layer2 network needs subnets")
	check(c.Topology != layer3 || !c.AllowPersistentIPs, "layer3 has no persistent IPs")
	check(c.Topology == localnet || c.VLANID == 0 &&
		c.PhysicalNetworkName == "", "only a localnet has a vlanID and a physicalNetworkName")
	check(c.Topology != localnet || c.JoinSubnet == "", "a localnet has no joinSubnet: there are no services on it")
	check(c.VLANID == 0, "vlanID %d: this test plugin knows no VLANs", c.VLANID)
	check(c.ExcludeSubnets == "" || c.Subnets != "", "excludeSubnets needs subnets")
	check(c.IPAM.Type == "", "ipam %s is not supported: OVN-Kubernetes gives the addresses out of subnets", c.IPAM.Type)
	if c.DeviceID != "" {
		_, err := discovery.ParsePCIAddress(c.DeviceID)
		check(err == nil, "deviceID must be a PCI address, not %q", c.DeviceID)
	}
	check(c.DeviceID == "" || c.Topology != localnet,
		"deviceID %s is given for the localnet %s: its uplink stays on the host, so there is no virtual function to "+
			"hand over", c.DeviceID, c.Name)
	return errors.Join(problems...)
}

// prefixes reads a list. With a node's length after the cluster's, as in 10.128.0.0/14/23, it is the first such of the
// cluster.
func prefixes(list string, ofNodes bool) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		parts := strings.Split(text, "/")
		if ofNodes && len(parts) == 3 {
			text = parts[0] + "/" + parts[2]
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is no subnet: %w", text, err)
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}

// physicalNetwork is the name that a bridge mapping of a localnet must have.
func (c *config) physicalNetwork() string {
	if c.PhysicalNetworkName != "" {
		return c.PhysicalNetworkName
	}
	return c.Name
}

// checkArgs returns what CNI_ARGS lacks to name the pod of a sandbox.
func checkArgs(text, sandbox string) error {
	args := map[string]string{}
	for _, item := range strings.Split(text, ";") {
		key, value, found := strings.Cut(item, "=")
		if !found || strings.Contains(value, "=") {
			return fmt.Errorf("invalid CNI_ARG %q", item)
		}
		args[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	for _, key := range []string{"K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_UID", "K8S_POD_INFRA_CONTAINER_ID"} {
		if args[key] == "" {
			return fmt.Errorf("missing %s in CNI_ARGS %q", key, text)
		}
	}
	if args["K8S_POD_INFRA_CONTAINER_ID"] != sandbox {
		return fmt.Errorf("K8S_POD_INFRA_CONTAINER_ID is %s, but CNI_CONTAINERID %s",
			args["K8S_POD_INFRA_CONTAINER_ID"], sandbox)
	}
	return nil
}

// isMapped says whether the alias of a bridge maps a physical network.
func isMapped(alias, network string) bool {
	list, found := strings.CutPrefix(alias, "ovn-bridge-mappings=")
	return found && slices.ContainsFunc(strings.Split(list, ","), func(mapping string) bool {
		name, bridge, _ := strings.Cut(mapping, ":")
		return name == network && bridge != ""
	})
}
