package policy_test

import (
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/policy"
)

// expand expands @x to the attribute x of the driver's domain.
func expand(expression string) string {
	return strings.ReplaceAll(expression, "@", `device.attributes["dra.networking"].`)
}

func TestCheckSelector(t *testing.T) {
	for expression, want := range map[string]string{
		`@type == "vf" && @pfName == "enp3s0f0" && @masterBridge == ""`:  "",
		`@ifName in ["br-int", "ovn-k8s-mp0"]`:                           "",
		`device.attributes["resource.kubernetes.io"].pcieRoot != ""`:     "",
		`cel.bind(a, device.attributes["dra.networking"], a.mtu > 1500)`: "",
		`@ifName.startsWith("en")`:                                       "",
		`@defaultRoute`:                                                  "",
		`has(@custom) && @custom == 1`:                                   "",
		`@type`:                                                          "",
		`@type ==`:                                                       "cannot compile",
		`1 + 1`:                                                          "yields true or false",
		`type == "vf"`:                                                   "cannot compile",
		`@typ == "vf"`: `did you mean ` +
			`device.attributes["dra.networking"].type?`,
		`@pfname == "x"`: `did you mean ` +
			`device.attributes["dra.networking"].pfName?`,
		`@custom == 1`: "guard it with has(",
		`device.capacity["dra.networking"].x.isGreaterThan(quantity("1"))`: "has no capacity",
		`device.attributes[@type].x == 1`:                                  "an attribute name is computed",
		`@ifName.matches(@driver.replace("a", "b"))`:                       "",
		`[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,` +
			`9].all(d, [1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, @type == "vf"))))))`: "may cost",
	} {
		err := policy.CheckSelector(expand(expression))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", expression, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want ... %s ...", expression, err, want)
		}
	}
}

func TestCheckClassSelector(t *testing.T) {
	numa := `write device.attributes["dra.networking"].?numaNode.orValue(-1) in its place, or ` +
		`has(device.attributes["dra.networking"].numaNode) && before it`
	for expression, want := range map[string]string{
		`@pfName == "enp3s0f0" && @vfIndex > 3 && @mtu >= 9000 && !@rdma`: "",
		`device.driver == "dra.networking" && @type == "vf"`:              "",
		`@numaNode == 0`:                                                                       numa,
		`@type == "vf" && @numaNode == 0`:                                                      numa,
		`@?numaNode.orValue(-1) == 0`:                                                          "",
		`has(@numaNode) && @numaNode == 0`:                                                     "",
		`@numaNode == 0 && has(@numaNode)`:                                                     "",
		`has(@numaNode) && @type == "vf" && @numaNode > 0`:                                     "",
		`has(@numaNode) || @numaNode > 0`:                                                      numa,
		`!has(@numaNode) || @numaNode > 0`:                                                     "",
		`!(has(@numaNode) && @numaNode > 0)`:                                                   "",
		`has(@numaNode) ? @numaNode > 0 : false`:                                               "",
		`has(@numaNode) ? false : @numaNode > 0`:                                               numa,
		`(has(@numaNode) || has(@operState)) && @numaNode > 0`:                                 numa,
		`(has(@numaNode) && has(@operState)) && @numaNode > 0`:                                 "",
		`"numaNode" in device.attributes["dra.networking"] && @numaNode > 0`:                   "",
		`device.attributes["dra.networking"]["numaNode"] == 0`:                                 numa,
		`cel.bind(a, device.attributes["dra.networking"], a.numaNode == 0)`:                    numa,
		`cel.bind(a, device.attributes["dra.networking"], has(a.numaNode) && a.numaNode == 0)`: "",
		`cel.bind(a, device.attributes, a["dra.networking"].numaNode == 0)`:                    numa,
		`device.attributes[device.driver].numaNode == 0`:                                       numa,
		`[1].exists(a, @numaNode == a)`:                                                        numa,
		`@operState == "up"`:                                                                   `.?operState.orValue("")`,
		`@vlanFiltering`:                                                                       `.?vlanFiltering.orValue(false)`,
		`@physicalNetworkName == "a"`:                                                          `write has(device.attributes["dra.networking"].physicalNetworkName) && before it`,
		`device.attributes["cni.dra.networking"].sriov`:                                        `device.attributes["cni.dra.networking"].?sriov.orValue(false)`,
		`device.attributes["cni.dra.networking"].?sriov.orValue(false)`:                        "",
		`device.capacity["dra.networking"].x.isGreaterThan(quantity("1"))`:                     `has(device.capacity["dra.networking"].x)`,
		`has(device.attributes["resource.kubernetes.io"].pcieRoot) && @type == "vf"`:           "",
		`has(device.attributes[@type].x) && device.attributes[@driver].x == 1`:                 "an attribute name is computed",
		`@type == "vf" &&`:                                                                     "cannot compile",
	} {
		err := policy.CheckClassSelector(expand(expression))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", expression, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want ... %s ...", expression, err, want)
		}
	}
}

// A literal of another type is refused where it is certain that it is wrong, and only there.
func TestCheckTypes(t *testing.T) {
	for expression, want := range map[string]string{
		`@mtu > "9000"`: `mtu is a number, compared with the string "9000": ` +
			`write mtu > 9000, without quotes`,
		`"1500" == @mtu`: `write 1500 == mtu, without quotes`,
		`@mtu == "big"`:  `write a number there, without quotes`,
		`@rdma == "true"`: `rdma is true or false, compared with the string ` +
			`"true": write rdma == true, without quotes`,
		`@rdma != 1`: `rdma is true or false, compared with the number 1: ` +
			`write true or false there`,
		`@vendor == 8086`: `vendor is a string, compared with the number 8086: ` +
			`write vendor == "8086", in quotes`,
		`@mtu in ["1500", "9000"]`:                                               `write mtu in [9000], without quotes`,
		`@?numaNode.orValue(-1) == "0"`:                                          `numaNode is a number, compared with the string "0"`,
		`has(@numaNode) && !(@numaNode == "0")`:                                  `numaNode is a number`,
		`device.attributes[device.driver].mtu > "1"`:                             `mtu is a number`,
		`device.attributes["dra.networking"]["mtu"] > "1"`:                       `mtu is a number`,
		`cel.bind(a, device.attributes["dra.networking"], a.mtu == "1")`:         `mtu is a number`,
		`cel.bind(m, @mtu, m == "1")`:                                            `mtu is a number`,
		`device.attributes["cni.dra.networking"].?sriov.orValue(false) == "yes"`: `sriov is true or false`,
		`device.attributes["resource.kubernetes.io"].pcieRoot == 1`:              `pcieRoot is a string`,

		`@mtu > 9000 && @mtu >= 9000u && @mtu < 9000.5 && @vfIndex != -1`: "",
		`string(@mtu) == "9000" && int(@vendor) == 8086`:                  "",
		`@rdma == true && @type == "vf" && @ifName in ["a", "b"]`:         "",
		`@physicalNetworkName == "a" || @physicalNetworkName == 1`:        "",
		`device.attributes["example.com"].mtu == "1"`:                     "",
		`device.capacity["dra.networking"].mtu == "1"`:                    "",
		`@mtu == @type`:                        "",
		`@mtu ==`:                              "",
		`@?numaNode.orValue("none") == "none"`: "",
		`has(@mtu) == true`:                    "",
		`"sriov" in device.attributes["dra.networking"].supportedCNIs`:     "",
		`device.attributes["cni.dra.networking"].?sriov.orValue(false)`:    "",
		`device.attributes["dra.networking"].?mtu.optMap(m, m) == "1500" `: "",
	} {
		err := policy.CheckTypes(expand(expression))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", expression, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want ... %s ...", expression, err, want)
		}
	}
}
