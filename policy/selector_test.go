package policy_test

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
)

// expand replaces @x with an access to the attribute x in the driver's domain.
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
		`@type`:                                                          "type is a string, but a selector must be true or false",
		`@type ==`:                                                       "cannot compile",
		`1 + 1`:                                                          "yields true or false",
		`type == "vf"`:                                                   "cannot compile",
		`@typ == "vf"`: `did you mean ` +
			`device.attributes["dra.networking"].type?`,
		`@pfname == "x"`: `did you mean ` +
			`device.attributes["dra.networking"].pfName?`,
		`@custom == 1`: "guard it with has(",
		`device.capacity["dra.networking"].x.isGreaterThan(quantity("1"))`: "have no capacity",
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
	const vlan = `write device.attributes["dra.networking"].?vlanID.orValue(-1) instead, or ` +
		`has(device.attributes["dra.networking"].vlanID) && before it`
	for expression, want := range map[string]string{
		`@pfName == "enp3s0f0" && @vfIndex > 3 && @mtu >= 9000 && !@rdma`: "",
		`device.driver == "dra.networking" && @type == "vf"`:              "",
		`@vlanID == 0`:                                                                     vlan,
		`@type == "vf" && @vlanID == 0`:                                                    vlan,
		`@?vlanID.orValue(-1) == 0`:                                                        "",
		`has(@vlanID) && @vlanID == 0`:                                                     "",
		`@vlanID == 0 && has(@vlanID)`:                                                     "",
		`has(@vlanID) && @type == "vf" && @vlanID > 0`:                                     "",
		`has(@vlanID) || @vlanID > 0`:                                                      vlan,
		`!has(@vlanID) || @vlanID > 0`:                                                     "",
		`!(has(@vlanID) && @vlanID > 0)`:                                                   "",
		`has(@vlanID) ? @vlanID > 0 : false`:                                               "",
		`has(@vlanID) ? false : @vlanID > 0`:                                               vlan,
		`(has(@vlanID) || has(@operState)) && @vlanID > 0`:                                 vlan,
		`(has(@vlanID) && has(@operState)) && @vlanID > 0`:                                 "",
		`"vlanID" in device.attributes["dra.networking"] && @vlanID > 0`:                   "",
		`device.attributes["dra.networking"]["vlanID"] == 0`:                               vlan,
		`cel.bind(a, device.attributes["dra.networking"], a.vlanID == 0)`:                  vlan,
		`cel.bind(a, device.attributes["dra.networking"], has(a.vlanID) && a.vlanID == 0)`: "",
		`cel.bind(a, device.attributes, a["dra.networking"].vlanID == 0)`:                  vlan,
		`device.attributes[device.driver].vlanID == 0`:                                     vlan,
		`[1].exists(a, @vlanID == a)`:                                                      vlan,
		`@operState == "up"`:                                                               `.?operState.orValue("")`,
		`@representor`:                                                                     `.?representor.orValue(false)`,
		`@switchID == "a"`:                                                                 `(only one whose policy has publish: [switchID])`,
		`@vlanFiltering && @numaNode == 0 && @bridgeName.contains("a")`:                    "",
		`device.attributes["resource.kubernetes.io"].pcieRoot == ""`:                       "",
		`(device.attributes["dra.networking"]).pfName == ""`:                               "",
		`device.attributes["dra.networking"][r"pfName"] == ""`:                             `cannot guard the reading of pfName`,
		"(device.attributes // (\n[\"dra.networking\"]).pfName == \"\"":                    `cannot guard the reading of pfName`,
		"(device.attributes // )\n[\"dra.networking\"].pfName == \"\")":                    `cannot guard the reading of pfName`,
		`@physicalNetworkName == "a"`:                                                      `write has(device.attributes["dra.networking"].physicalNetworkName) && before it`,
		`@ifNmae == "a"`: `no device has an attribute dra.networking/ifNmae: did you mean ` +
			`device.attributes["dra.networking"].ifName? If a policy adds it, write has(`,
		`@rack == 1`: `write has(device.attributes["dra.networking"].rack) && before it`,
		`device.attributes["example.com"].mtu == 1`:                                  `write has(device.attributes["example.com"].mtu) && before it`,
		`has(@ifNmae) && @ifNmae == "a"`:                                             "",
		`device.attributes["cni.dra.networking"].sriov`:                              `device.attributes["cni.dra.networking"].?sriov.orValue(false)`,
		`device.attributes["cni.dra.networking"].?sriov.orValue(false)`:              "",
		`device.capacity["dra.networking"].x.isGreaterThan(quantity("1"))`:           `has(device.capacity["dra.networking"].x)`,
		`has(device.attributes["resource.kubernetes.io"].pcieRoot) && @type == "vf"`: "",
		`has(device.attributes[@type].x) && device.attributes[@driver].x == 1`: "an attribute name is " +
			"computed",
		`@type == "vf" &&`: "cannot compile",
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

// A policy may add an attribute with any name, so a guarded access to a misspelled attribute only leads to a remark.
func TestClassRemarks(t *testing.T) {
	const remark = `no device has an attribute dra.networking/ifNmae unless a policy adds it: did you mean ` +
		`device.attributes["dra.networking"].ifName?`
	for expression, want := range map[string]string{
		`has(@ifNmae) && @ifNmae == "a"`:                                                 remark,
		`@?ifNmae.orValue("") == "a"`:                                                    remark,
		`device.attributes["dra.networking"][?"ifNmae"].orValue("") == "a"`:              remark,
		`cel.bind(a, device.attributes["dra.networking"], has(a.ifNmae))`:                remark,
		`has(device.attributes["dra.example.com"].vendor)`:                               "",
		`has(device.attributes["example.com"].ifName)`:                                   "",
		`has(device.attributes["resource.kubernetes.io"].pcieRoot)`:                      "",
		`@ifName == "a" && has(@switchID) && has(@rack) && @?building.hasValue()`:        "",
		`has(device.attributes["example.com"].ifNmae)`:                                   "",
		`device.attributes["cni.dra.networking"].?srio.orValue(false)`:                   "",
		`has(device.capacity["dra.networking"].mt) && device.driver == "dra.networking"`: "",
		`@type ==`: "",
	} {
		remarks := policy.ClassRemarks(expand(expression))
		if want == "" && len(remarks) > 0 ||
			want != "" && (len(remarks) != 1 || !strings.Contains(remarks[0], want)) {
			t.Errorf("%s: got %q, want ... %s ...", expression, remarks, want)
		}
	}
}

// A class reads the same attributes as a policy, regardless of the syntax that the author chose.
func TestClassExpression(t *testing.T) {
	const domain = `device.attributes["dra.networking"]`
	for expression, want := range map[string]string{
		`@type == "vf" && @rdma`:       `@type == "vf" && @rdma`,
		`@pfName == "a"`:               `(has(@pfName) ? @pfName : "") == "a"`,
		`@vfIndex > 1 && @vfIndex < 3`: `(has(@vfIndex) ? @vfIndex : -1) > 1 && (has(@vfIndex) ? @vfIndex : -1) < 3`,
		`"é" != @pfName && !@vlanFiltering`: `"é" != (has(@pfName) ? @pfName : "") && !(has(@vlanFiltering) ? ` +
			`@vlanFiltering : false)`,
		domain + ` ["mtu" ] > 1`: `(has(` + domain + ` .mtu) ? ` + domain + ` .mtu : 0) > 1`,
		domain + "['mtu'] > 1":   `(has(@mtu) ? @mtu : 0) > 1`,
		domain + " . mtu > 1":    `(has(` + domain + ` .mtu) ? ` + domain + ` .mtu : 0) > 1`,
		`cel.bind(a, ` + domain + `, a.pfName == "x")`: `cel.bind(a, ` + domain +
			`, (has(a.pfName) ? a.pfName : "") == "x")`,
		`["a"].exists(n, n == @pfName)`:  `["a"].exists(n, n == (has(@pfName) ? @pfName : ""))`,
		`has(@pfName) && @pfName == "a"`: `has(@pfName) && @pfName == "a"`,
		`@?pfName.orValue("") == "a"`:    `@?pfName.orValue("") == "a"`,
		`@switchID == "a"`:               `@switchID == "a"`,
		`(@mtu) > 1 && (1 < @mtu)`:       `((has(@mtu) ? @mtu : 0)) > 1 && (1 < (has(@mtu) ? @mtu : 0))`,
		`(` + domain + `).mtu > 1`:       `(has((` + domain + `).mtu) ? (` + domain + `).mtu : 0) > 1`,
		`!( (device.attributes)["dra.networking"] ).vlanFiltering`: `!(has(( (device.attributes)["dra.networking"] ).` +
			`vlanFiltering) ? ( (device.attributes)["dra.networking"] ).vlanFiltering : false)`,
		`optional.of(@pfName).optMap(n, n == "a").orValue(false)`: `optional.of((has(@pfName) ? @pfName : "")).` +
			`optMap(n, n == "a").orValue(false)`,
		`device.attributes["resource.kubernetes.io"].pcieRoot == "a"`: `(has(device.attributes["resource.` +
			`kubernetes.io"].pcieRoot) ? device.attributes["resource.kubernetes.io"].pcieRoot : "") == "a"`,
		`device.attributes["dra.networking"].pfName // the NIC` + "\n == \"a\"": `(has(@pfName) ? @pfName : "")` +
			" // the NIC\n == \"a\"",
	} {
		got, err := policy.ClassExpression(expand(expression))
		if err != nil || got != expand(want) {
			t.Errorf("%s: got %s (%v), want %s", expression, got, err, expand(want))
			continue
		}
		if again, err := policy.ClassExpression(got); err != nil || again != got {
			t.Errorf("%s: completing it again returned %s (%v), want no change", got, again, err)
		}
	}
}

// An expression selects the same devices in a class as in a policy, however its attribute accesses are written.
func TestClassExpressionMeansTheSame(t *testing.T) {
	devices := []discovery.Device{
		{Name: "a", Type: "nic", VFIndex: discovery.None, NUMANode: discovery.None, VLANID: discovery.None},
		{Name: "b", Type: "vf", PFName: "p", VFIndex: 0, NUMANode: 0, VLANID: discovery.None, MTU: 1500, Vendor: "15b3"},
		{Name: "c", Type: "bridge", BridgeType: "linux", BridgeName: "c", VLANFiltering: true, VFIndex: discovery.None,
			NUMANode: discovery.None, VLANID: discovery.None, MTU: 9000},
	}
	both := map[bool]int{}
	for _, expression := range []string{
		`@pfName == ""`,
		`!(@pfName == "") || -@vfIndex == 1`,
		`@mtu > 1400 ? @pfName == "p" : @vfIndex == -1`,
		`@pfName == "p" ? true : @mtu in [0, 9000]`,
		`@pfName in ["", "p"] && @vfIndex + 1 < 2`,
		`["", "p"].exists(n, n == @pfName) && [0, 1500].all(n, n <= @mtu)`,
		`[@mtu, @vfIndex].filter(n, n > 0).map(n, n * 2).exists(n, n == 3000)`,
		`["p"].exists(device, device == "p") && @pfName == "p"`,
		`cel.bind(a, device.attributes["dra.networking"], cel.bind(b, a, ["x"].all(a, b.pfName + a == "x")))`,
		`cel.bind(m, @mtu, cel.bind(a, device.attributes, m == a["dra.networking"].mtu)) && @mtu == 0`,
		`@vlanFiltering != (@pfName == "p")`,
		`has(@type) && (has(@linkSpeed) || @linkSpeed == 0) && @bridgeName == ""`,
		`@ifName + @pfName == "bp" || "device.attributes[\"dra.networking\"].pfName" == @pfName`,
		`@vendor.startsWith("15") || @vendor.matches("^$")`,
		`{"a": @pfName, "b": @bridgeType}["b"] == "linux"`,
		`@numaNode == device.attributes["resource.kubernetes.io"].numaNode && @numaNode < 0`,
	} {
		expression = expand(expression)
		complete, err := policy.ClassExpression(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		for _, d := range devices {
			want, err := matches(t, expression, policy.Attributes(d))
			if err != nil {
				t.Errorf("%s in a policy: %v", expression, err)
			}
			got, err := matches(t, complete, policy.Published(d))
			if err != nil || got != want {
				t.Errorf("%s on %s: %t, %v; in a policy: %t", complete, d.Name, got, err, want)
			}
			both[want]++
		}
	}
	if both[true] < 10 || both[false] < 10 {
		t.Errorf("want at least 10 matches and 10 mismatches, got %v", both)
	}
}

func matches(
	t *testing.T, expression string, attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute,
) (bool, error) {
	t.Helper()
	compiled := dracel.GetCompiler(dracel.Features{}).CompileCELExpression(expression, dracel.Options{})
	if compiled.Error != nil {
		t.Fatalf("%s: %v", expression, compiled.Error)
	}
	match, _, err := compiled.DeviceMatches(t.Context(), dracel.Device{Driver: "dra.networking", Attributes: attributes})
	return match, err
}

// A literal of a different type is only rejected if it is definitely wrong.
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

		`@ifName`: `ifName is a string, but a selector must be true or false: compare it, as in ` +
			`device.attributes["dra.networking"].ifName == "…"`,
		`@?numaNode.orValue(-1)`: `numaNode is a number, but a selector must be true or false`,
		`@rdma`:                  "",

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
