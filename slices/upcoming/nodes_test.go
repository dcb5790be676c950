package upcoming_test

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// choices makes decisions based on fuzzer input. Once all bytes have been used, every decision is 0.
type choices struct{ data []byte }

func (c *choices) pick(n int) int {
	if len(c.data) == 0 {
		return 0
	}
	b := int(c.data[0])
	c.data = c.data[1:]
	return b % n
}

// function returns a physical function followed by its n virtual functions.
func function(name string, speed, n int) []discovery.Device {
	pf := discovery.Device{Name: discovery.IfName(name), Type: discovery.TypePF, SRIOVCapable: true, TotalVFs: 128,
		NumVFs: n, LinkSpeed: speed,
		PCIAddress: "0000:03:00.0", PCIeRoot: "pci0000:00", Vendor: "15b3", VFIndex: discovery.None,
		VLANID: discovery.None}
	devices := []discovery.Device{pf}
	for i := range n {
		vf := pf
		vf.Name, vf.Type, vf.PFName, vf.VFIndex = discovery.IfName(fmt.Sprintf("%sv%d", name, i)),
			discovery.TypeVF, pf.Name, i
		vf.PCIAddress = discovery.PCIAddress(fmt.Sprintf("0000:03:%02x.%d", 1+i/8, i%8))
		vf.SRIOVCapable, vf.TotalVFs, vf.NumVFs = false, 0, 0
		devices = append(devices, vf)
	}
	return devices
}

// bandwidth returns the bandwidth setting from a policy.
func bandwidth(value string, requests *resourceapi.CapacityRequestPolicy) policy.Capacity {
	return policy.Capacity{Name: "bandwidth", Value: resource.MustParse(value), RequestPolicy: requests}
}

// persona returns a persona that a policy could define.
func (c *choices) persona(number int) policy.Persona {
	p := policy.Persona{Suffix: fmt.Sprintf("-p%d", number), Policy: fmt.Sprintf("policy-%d", number),
		Exclusive: c.pick(2) == 0, Plugins: []string{"sriov", "macvlan"}[:1+c.pick(2)]}
	for i := range c.pick(4) {
		if p.AdditionalAttributes == nil {
			p.AdditionalAttributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
		}
		p.AdditionalAttributes[resourceapi.QualifiedName(fmt.Sprintf("example.com/a%d",
			i))] = resourceapi.DeviceAttribute{IntValue: ptr.To(int64(c.pick(2)))}
	}
	if !p.Exclusive {
		p.ExclusionGroup = []string{"", "x"}[c.pick(2)]
		p.Capacity = []policy.Capacity{{Name: fmt.Sprintf("units%d", c.pick(2)),
			Value: *resource.NewQuantity(int64(1+c.pick(9)), resource.DecimalSI)}}
	} else if n := c.pick(5); n > 0 {
		requests := &resourceapi.CapacityRequestPolicy{Default: resource.NewQuantity(100, resource.DecimalSI)}
		for i := range n - 1 {
			requests.ValidValues = append(requests.ValidValues,
				*resource.NewQuantity(int64(100*(1+i)), resource.DecimalSI))
		}
		p.Capacity = []policy.Capacity{bandwidth("1k", requests)}
	}
	return p
}

// decision returns the decision for a machine with some NICs, possibly with many virtual functions.
func (c *choices) decision() policy.Decision {
	var d policy.Decision
	number := 0
	personas := func() []policy.Persona {
		var all []policy.Persona
		for range c.pick(4) {
			number++
			all = append(all, c.persona(number))
		}
		return all
	}
	for nic := range 1 + c.pick(3) {
		devices := function(fmt.Sprintf("eth%d", nic), 100*c.pick(200), c.pick(40)*c.pick(2))
		d.Devices = append(d.Devices, policy.DeviceDecision{Device: devices[0], Personas: personas()})
		all := personas()
		for _, vf := range devices[1:] {
			d.Devices = append(d.Devices, policy.DeviceDecision{Device: vf, Personas: all})
		}
	}
	return d
}

func features() draslices.Features {
	return draslices.Features{CNIBinaries: sets.New("sriov", "macvlan", "host-device")}
}

func build(t testing.TB, decision policy.Decision, features draslices.Features) draslices.Result {
	t.Helper()
	result, err := draslices.Build("worker-1", decision, features)
	if err != nil {
		t.Fatal(err)
	}
	return result
}
