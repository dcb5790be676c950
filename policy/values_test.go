package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// Comparing an attribute with an impossible value selects nothing, and no other check would report this.
func TestComparisonsThatAreNeverTrue(t *testing.T) {
	for expression, want := range map[string]string{
		`@type == "PF"`:                        `type is never "PF": did you mean "pf"?`,
		`"PF" != @type`:                        `type is never "PF": did you mean "pf"?`,
		`@type in ["vf", "Bond"]`:              `type is never "Bond": did you mean "bond"?`,
		`cel.bind(d, @type, d == "NIC")`:       `type is never "NIC": did you mean "nic"?`,
		`@?pfAddress.orValue("") == "3B:00.0"`: `pfAddress is never "3B:00.0": did you mean "0000:3b:00.0"?`,
		`@pciAddress == "0000:3B:00.0"`:        `did you mean "0000:3b:00.0"?`,
		`@pciAddress == "eth0"`:                `it is an address with its domain in lower case, such as 0000:`,
		`@vendor == "0x15B3"`:                  `vendor is never "0x15B3": did you mean "15b3"?`,
		`@vendor == "Mellanox"`:                `it is the PCI ID: four hexadecimal digits in lower case`,
		`@mac == "02-00-00-00-00-AB"`:          `mac is never "02-00-00-00-00-AB": did you mean "02:00:00:00:00:ab"?`,
		`@mac == "02:00"`:                      `it is an address in lower case with colons`,
		`@altNames == "data0"`:                 `.altNames.contains(",NAME,")`,
		`@operState == "lowerlayerdown"`:       `did you mean "lower-layer-down"?`,
		`@operState == "UP"`:                   `operState is never "UP": did you mean "up"?`,
		`@eswitchMode == "offload"`:            `eswitchMode is never "offload", it is one of legacy, switchdev`,
		`@rdmaLinkLayer == "Ethernet"`:         `did you mean "ethernet"?`,
		`device.attributes["resource.kubernetes.io"].pciBusID == "03:00.0"`:                           `did you mean "0000:03:00.0"?`,
		`device.driver == "virtio_net"`:                                                               `did you mean device.attributes["dra.networking"].driver, the driver of`,
		`device.driver in ["dra.networking", "mlx5_core"]`:                                            `never "mlx5_core": did you mean`,
		`device.driver == "dra.networking" && @driver == "virtio_net"`:                                "",
		`@type == "pf" || @type == "ip6tnl" || @kind == "device"`:                                     "",
		`@pciAddress == "0000:3b:00.0" || @pciAddress == "10000:3b:00.0"`:                             "",
		`@vendor == "15b3" && @mac == "02:00:00:00:00:ab" && @mac != ""`:                              "",
		`@altNames == ",data0," || @operState in ["up", "lower-layer-down"]`:                          "",
		`@operState < "x" || @vendor >= "z"`:                                                          "",
		`@ifName == "PF0" || @driver == "MLX" || @type.startsWith("V")`:                               "",
		`has(device.attributes["example.com"].type) && device.attributes["example.com"].type == "PF"`: "",
	} {
		p := &v1alpha1.DeviceExposurePolicy{}
		p.Name = "p"
		p.Spec.Action, p.Spec.Selector.CEL = v1alpha1.ActionExclude, expand(expression)
		_, remarks := policy.Check(p)
		holds := func(remark string) bool { return strings.Contains(remark, want) }
		if want == "" && len(remarks) > 0 || want != "" && (len(remarks) != 1 || !slices.ContainsFunc(remarks, holds)) {
			t.Errorf("%s: got %q, want ... %s ...", expression, remarks, want)
		}
		if ofClass := policy.ClassRemarks(expand(expression)); want != "" && !slices.ContainsFunc(ofClass, holds) {
			t.Errorf("%s: a class has the remarks %q, want ... %s ...", expression, ofClass, want)
		}
	}
}

// Selectors may compare operState with every state that netlink can print.
func TestStatesOfLinksAreKnown(t *testing.T) {
	for state := netlink.LinkOperState(netlink.OperUnknown); state <= netlink.OperUp; state++ {
		p := &v1alpha1.DeviceExposurePolicy{}
		p.Name = "p"
		p.Spec.Action = v1alpha1.ActionExclude
		p.Spec.Selector.CEL = expand(fmt.Sprintf("@operState == %q", state))
		if problems, remarks := policy.Check(p); len(problems) > 0 || len(remarks) > 0 {
			t.Errorf("%s: %v, %q", state, problems, remarks)
		}
	}
}
