package policy_test

import (
	"fmt"
	"maps"
	stdslices "slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// rails returns a NIC with two functions, a device without a PCI address, and a device that has no row in the table.
func rails() discovery.Facts {
	none := discovery.Device{NUMANode: discovery.None, VFIndex: discovery.None, VLANID: discovery.None}
	device := func(name, address, pf string) discovery.Device {
		d := none
		d.Name, d.Interface, d.PCIAddress, d.PFAddress = discovery.IfName(name), discovery.IfName(name),
			discovery.PCIAddress(address), discovery.PCIAddress(pf)
		return d
	}
	return discovery.Facts{Devices: []discovery.Device{
		device("dummy0", "", ""),
		device("rail7", "0000:18:00.0", ""),
		device("rail7v0", "0000:18:00.1", "0000:18:00.0"),
		device("rail7v1", "0000:18:00.2", "0000:18:00.0"),
		device("stor0", "0000:29:00.0", ""),
	}}
}

// attributesOf prints the attributes that a policy matching all devices adds to each device, and the policy's problems.
func attributesOf(t *testing.T, facts discovery.Facts, exposure string) string {
	t.Helper()
	list := policies(t, map[string]string{"p": expand("selector: {cel: 'true'}\n" +
		"exposure:\n  supportedCNIPlugins: [{name: host-device, exclusive: true}]\n" + exposure)})
	decision := policy.Resolve(facts, list, policy.Node{Name: "n"})
	var out strings.Builder
	for _, d := range decision.Devices {
		if len(d.Personas) != 1 {
			t.Fatalf("device %s was offered %d times, want once: %v", d.Device.Name, len(d.Personas), d.Reasons)
		}
		p := d.Personas[0]
		fmt.Fprintf(&out, "%s", d.Device.Name)
		for _, s := range p.AttributeSources {
			value, has := p.AdditionalAttributes[s.Name]
			if has == (s.Absent != "") {
				t.Errorf("device %s: attribute %s present: %t, reason for its absence: %q", d.Device.Name,
					s.Name, has, s.Absent)
			}
			if has {
				fmt.Fprintf(&out, " %s=%s", s.Name, attributeText(value))
			}
		}
		if len(p.AttributeSources) < len(p.AdditionalAttributes) {
			t.Errorf("device %s: some of these attributes have no source: %v", d.Device.Name, p.AdditionalAttributes)
		}
		out.WriteString("\n")
	}
	for _, p := range decision.Problems {
		fmt.Fprintf(&out, "problem: %s\n", brief(p))
	}
	return out.String()
}

func attributeText(a resourceapi.DeviceAttribute) string {
	switch {
	case a.StringValue != nil:
		return fmt.Sprintf("%q", *a.StringValue)
	case a.IntValue != nil:
		return fmt.Sprint(*a.IntValue)
	case a.BoolValue != nil:
		return fmt.Sprint(*a.BoolValue)
	case a.VersionValue != nil:
		return "v" + *a.VersionValue
	}
	return "nothing"
}

// An attribute that cannot be published or computed is only missing from the affected device; nothing else changes.
func TestComputedAttributes(t *testing.T) {
	const four = "\ndummy0\nrail7 x/y=7\nrail7v0\nrail7v1\nstor0\n"
	for name, test := range map[string]struct {
		cel, want string
	}{
		"an integer":      {`@ifName == "rail7" ? optional.of(int(@ifName.substring(4))) : optional.none()`, four},
		"by a lookup":     {`{"0000:18:00.0": 7}[?@pciAddress]`, four},
		"null is nothing": {`@ifName == "rail7" ? dyn(7) : dyn(null)`, four},
		"a string, where it is not empty": {`@pciAddress`, `
dummy0
rail7 x/y="0000:18:00.0"
rail7v0 x/y="0000:18:00.1"
rail7v1 x/y="0000:18:00.2"
stor0 x/y="0000:29:00.0"
`},
		"a boolean": {`@ifName.startsWith("rail")`, `
dummy0 x/y=false
rail7 x/y=true
rail7v0 x/y=true
rail7v1 x/y=true
stor0 x/y=false
`},
		"a version": {`semver("1.2." + string(size(@ifName)))`, `
dummy0 x/y=v1.2.6
rail7 x/y=v1.2.5
rail7v0 x/y=v1.2.7
rail7v1 x/y=v1.2.7
stor0 x/y=v1.2.5
`},
		"an expression that fails on some": {`int(@ifName.substring(4)) // of rail7`, `
dummy0
rail7 x/y=7
rail7v0
rail7v1
stor0 x/y=0
problem: policy p: device dummy0: is published without attribute x/y: cannot evaluate the expression: type conversion error from 'string' to 'int'; it also fails on other devices (2)
`},
		"an expression that does not compile": {`int(`, `
dummy0
rail7
rail7v0
rail7v1
stor0
problem: policy p: no device has its attribute x/y: cannot compile the expression
`},
		"a value of an unknown type": {`dyn(1.5)`, `
dummy0
rail7
rail7v0
rail7v1
stor0
problem: policy p: device dummy0: is published without attribute x/y: the expression yields a double, which is not an attribute type: return a string, an integer, a boolean or a version, with string() or int() around it; it also fails on other devices (4)
`},
		"a string that is too long": {`["a","b","c","d"].map(x, x + "345678901234567").join("-") + (@ifName == "rail7" ? "" : "!")`, `
dummy0
rail7
rail7v0
rail7v1
stor0
problem: policy p: device dummy0: is published without attribute x/y: the expression yields "a345678901234567-b345678901234567-c345678901234567-d345678901234…", which has 68 bytes, and the limit is 64: shorten it, for example with substring(); it also fails on other devices (4)
`},
	} {
		t.Run(name, func(t *testing.T) {
			got := attributesOf(t, rails(),
				fmt.Sprintf("  computedAttributes: [{name: x/y, cel: %q}]", expand(test.cel)))
			if diff := cmp.Diff(strings.TrimSpace(test.want), strings.TrimSpace(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A string from sysfs may contain any bytes, but the API server only accepts UTF-8.
func TestComputedAttributesAreUTF8(t *testing.T) {
	facts := discovery.Facts{Devices: []discovery.Device{{Name: "eth0", PortName: "p\xff"}}}
	got := attributesOf(t, facts, `  computedAttributes: [{name: port, cel: '@portName'}]`)
	if !strings.Contains(got, `"p\xff", which is not valid UTF-8`) {
		t.Error(got)
	}
}

// A device gets the row for its own address or, if there is none, the row for its physical function, but never a
// mixture of both.
func TestTableOfAttributes(t *testing.T) {
	got := attributesOf(t, rails(), `
  additionalAttributes: {site: a}
  attributesByPCIAddress:
  - {pciAddress: "0000:18:00.0", attributes: {x/rail: 7, plane: b}}
  - {pciAddress: "0000:18:00.2", attributes: {x/rail: 8}}
  - {pciAddress: "0000:ff:00.2", attributes: {spare: true}}`)
	want := `
dummy0 dra.networking/site="a"
rail7 dra.networking/plane="b" dra.networking/site="a" x/rail=7
rail7v0 dra.networking/plane="b" dra.networking/site="a" x/rail=7
rail7v1 dra.networking/site="a" x/rail=8
stor0 dra.networking/site="a"
`
	if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Users can see the source of each attribute, and why a device does not have an attribute.
func TestAttributeSources(t *testing.T) {
	list := policies(t, map[string]string{"p": expand(`
selector: {cel: 'true'}
exposure:
  allowMultipleAllocations: true
  capacity: {shares: {value: 2, requestPolicy: {default: 1}}}
  supportedCNIPlugins: [{name: macvlan}, {name: host-device, exclusive: true}]
  additionalAttributes: {site: a}
  computedAttributes: [{name: short, cel: '@ifName == "stor0" ? "s" : ""'}]
  attributesByPCIAddress:
  - {pciAddress: "0000:18:00.0", attributes: {rail: 7, plane: 1}}
  - {pciAddress: "0000:18:00.2", attributes: {rail: 8}}`)})
	decision := policy.Resolve(rails(), list, policy.Node{Name: "n"})
	var out strings.Builder
	for _, d := range decision.Devices {
		shared, exclusive := d.Personas[0], d.Personas[1]
		if diff := cmp.Diff(shared.AdditionalAttributes, exclusive.AdditionalAttributes); diff != "" {
			t.Errorf("the entries of %s differ: %s", d.Device.Name, diff)
		}
		shared.AdditionalAttributes["x/of-this-entry"] = resourceapi.DeviceAttribute{}
		if len(shared.AdditionalAttributes) == len(exclusive.AdditionalAttributes) {
			t.Fatal("the entries share a map")
		}
		fmt.Fprintln(&out, d.Device.Name)
		for _, s := range shared.AttributeSources {
			fmt.Fprintf(&out, "  %s: %s: %s\n", s.Name, s.Source, s.Absent)
		}
	}
	want := `
dummy0
  dra.networking/plane: attributesByPCIAddress: the device has no PCI address
  dra.networking/rail: attributesByPCIAddress: the device has no PCI address
  dra.networking/short: computedAttributes: the expression has no value for the device
  dra.networking/site: additionalAttributes: 
rail7
  dra.networking/plane: attributesByPCIAddress[0000:18:00.0]: 
  dra.networking/rail: attributesByPCIAddress[0000:18:00.0]: 
  dra.networking/short: computedAttributes: the expression has no value for the device
  dra.networking/site: additionalAttributes: 
rail7v0
  dra.networking/plane: attributesByPCIAddress[0000:18:00.0]: 
  dra.networking/rail: attributesByPCIAddress[0000:18:00.0]: 
  dra.networking/short: computedAttributes: the expression has no value for the device
  dra.networking/site: additionalAttributes: 
rail7v1
  dra.networking/plane: attributesByPCIAddress[0000:18:00.2]: the row does not contain it
  dra.networking/rail: attributesByPCIAddress[0000:18:00.2]: 
  dra.networking/short: computedAttributes: the expression has no value for the device
  dra.networking/site: additionalAttributes: 
stor0
  dra.networking/plane: attributesByPCIAddress: no row for 0000:29:00.0
  dra.networking/rail: attributesByPCIAddress: no row for 0000:29:00.0
  dra.networking/short: computedAttributes: 
  dra.networking/site: additionalAttributes: 
`
	if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(out.String())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Once an expression has exceeded the total cost limit, it is not evaluated for the remaining devices. The attributes
// and entries from other policies are not affected.
func TestExpensiveAttributes(t *testing.T) {
	costlyValue := "size(" + strings.Replace(costly, "all(a,", "filter(a,", 1) + ")"
	if err := policy.CheckAttribute(costlyValue); err != nil {
		t.Fatalf("the expression is no longer accepted: %v", err)
	}
	list := policies(t, map[string]string{
		"costly": fmt.Sprintf("selector: {cel: 'true'}\nexposure:\n  computedAttributes: [{name: a, cel: '%s'}]\n"+
			"  supportedCNIPlugins: [{name: host-device, exclusive: true}]", costlyValue),
		"plain": "selector: {cel: 'true'}\nexposure:\n  deviceNameSuffix: -plain\n" +
			"  computedAttributes: [{name: a, cel: '1'}]\n  supportedCNIPlugins: [{name: host-device, exclusive: true}]",
	})
	const devices = 6000
	decision := policy.Resolve(links(devices), list, policy.Node{Name: "n"})
	with := map[string]int{}
	for _, d := range decision.Devices {
		for _, p := range d.Personas {
			with[p.Policy] += len(p.AdditionalAttributes)
		}
		if len(d.Personas) != 2 {
			t.Fatalf("device %s was offered %d times, want 2", d.Device.Name, len(d.Personas))
		}
	}
	if with["plain"] != devices || with["costly"] < 100 || with["costly"] == devices {
		t.Errorf("wrong number of devices per attribute: %v", with)
	}
	if len(decision.Problems) != 1 || !strings.Contains(decision.Problems[0].String(), "share a budget") {
		t.Errorf("unexpected problems: %v", decision.Problems)
	}
}

func TestCheckAttribute(t *testing.T) {
	for expression, want := range map[string]string{
		`@ifName`:              "",
		`optional.of(@ifName)`: "",
		`{"mlx5_0": 0, "mlx5_3": 1}[?@rdmaDevice]`:  "",
		`int(@rdmaDevice.substring(5))`:             "",
		`@ifName.split("np")[1]`:                    "",
		`["mlx5_0", "mlx5_3"].indexOf(@rdmaDevice)`: "may cost",
		`@?ifName`:                      "",
		`device.attributes["x.y"].?z`:   "",
		`device.attributes["x.y"].z`:    "no device has an attribute x.y/z",
		`optional.of([1])`:              "must evaluate to a primitive scalar",
		`optional.of(optional.of(1))`:   "must evaluate to a primitive scalar",
		`null`:                          "must evaluate to a primitive scalar",
		`1u`:                            "must evaluate to a primitive scalar",
		`device.capacity["x.y"].z`:      "cannot compile",
		`1) == dyn(2`:                   "cannot compile",
		`optional.of(1)) == dyn(2`:      "cannot compile",
		`@linkSpeed > "1"`:              "is a number, compared with the string",
		`optional.of(@linkSpeed > "1")`: "is a number, compared with the string",
		`optional.of(@pciAdress)`:       "did you mean",
	} {
		err := policy.CheckAttribute(strings.ReplaceAll(expand(expression), `@?`,
			`device.attributes["dra.networking"].?`))
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", expression, err, want)
		}
	}
}

// A policy with more rows than the CRD allows is rejected.
func TestTableIsBounded(t *testing.T) {
	p := policies(t, map[string]string{"p": expose("true", "", 1)})[0]
	rail := int64(1)
	for i := range 257 {
		p.Spec.Exposure.AttributesByPCIAddress = append(p.Spec.Exposure.AttributesByPCIAddress,
			v1alpha1.PCIAddressAttributes{PCIAddress: fmt.Sprintf("0000:%02x:%02x.0", i%256, i/256),
				Attributes: map[string]v1alpha1.AttributeValue{"rail": {Int: &rail}}})
	}
	problems := map[string]bool{}
	for _, problem := range v1alpha1.Validate(&p) {
		problems[problem.Field] = true
	}
	if got := stdslices.Collect(maps.Keys(problems)); !stdslices.Equal(got,
		[]string{"spec.exposure.attributesByPCIAddress"}) {
		t.Errorf("got problems with %v, want only spec.exposure.attributesByPCIAddress", got)
	}
}

// Devices get the attributes by which Multus finds them. Devices without a PCI address are identified by interface
// name.
func TestResourceName(t *testing.T) {
	got := attributesOf(t, rails(), "  resourceName: example.com/nic\n")
	for _, want := range []string{
		`dummy0 k8s.cni.cncf.io/deviceID="dummy0" k8s.cni.cncf.io/resourceName="example.com/nic"` + "\n",
		`rail7v0 k8s.cni.cncf.io/deviceID="0000:18:00.1" k8s.cni.cncf.io/resourceName="example.com/nic"` + "\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwhich lacks\n%s", got, want)
		}
	}
	bound := rails()
	bound.Devices[2].Interface = "" // the device is bound to a userspace driver
	unknown := rails()
	unknown.Devices[0].Interface = ""
	if got := attributesOf(t, bound, "  resourceName: example.com/nic\n"); !strings.Contains(got,
		`rail7v0 k8s.cni.cncf.io/deviceID="0000:18:00.1" `) {
		t.Errorf("got\n%s\nwant the device ID of rail7v0", got)
	}
	if got := attributesOf(t, unknown, "  resourceName: example.com/nic\n"); !strings.Contains(got,
		`dummy0 k8s.cni.cncf.io/resourceName="example.com/nic"`+"\n") {
		t.Errorf("got\n%s\nwant the resource name of dummy0", got)
	}
}
