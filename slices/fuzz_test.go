package slices_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
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

func (c *choices) name() string {
	all := []string{"eth0", "enp3s0f0np0", "Eth_1.100", "br.x", "a", "-", "0", strings.Repeat("l", 15), "veth-" +
		strings.Repeat("é", 5)}
	return all[c.pick(len(all))]
}

// persona returns a persona that a valid policy could define.
func (c *choices) persona(number int) policy.Persona {
	p := policy.Persona{
		Suffix: []string{"", "-a", "-b", "-exclusive", "-" + strings.Repeat("x", 31)}[c.pick(5)],
		Policy: fmt.Sprintf("policy-%02d", number), Exclusive: c.pick(2) == 0,
		AdditionalAttributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{},
	}
	for i := range c.pick(17) {
		p.AdditionalAttributes[resourceapi.QualifiedName(fmt.Sprintf("example.com/a%d",
			i))] = resourceapi.DeviceAttribute{IntValue: ptr.To(int64(i))}
	}
	for i := range 1 + c.pick(6) {
		p.Plugins = append(p.Plugins, []string{"macvlan", "ipvlan", "host-device", "sriov", "bridge", "missing"}[i])
	}
	if !p.Exclusive {
		p.ExclusionGroup = []string{"", "x", "y"}[c.pick(3)]
		for i := range c.pick(17) {
			p.Capacity = append(p.Capacity,
				policy.Capacity{Name: fmt.Sprintf("c%02d_Name", i),
					Value: *resource.NewQuantity(int64(1+c.pick(9)), resource.DecimalSI)})
		}
	} else if n := c.pick(12); n > 0 {
		request := &resourceapi.CapacityRequestPolicy{}
		for i := range n - 1 {
			request.ValidValues = append(request.ValidValues,
				*resource.NewQuantity(int64(1+i)*2500, resource.DecimalSI))
		}
		p.Capacity = []policy.Capacity{{Name: "bandwidth", Value: resource.MustParse("25k"), RequestPolicy: request}}
	}
	return p
}

// decision returns the decision for a machine with up to three NICs, possibly with many virtual functions, and the held
// entries.
func (c *choices) decision() (policy.Decision, map[draslices.EntryID]draslices.Holding) {
	var d policy.Decision
	held := map[draslices.EntryID]draslices.Holding{}
	seen := map[discovery.IfName]bool{}
	number := 0
	add := func(device discovery.Device, personas []policy.Persona) {
		if !seen[device.Name] {
			seen[device.Name] = true
			d.Devices = append(d.Devices, policy.DeviceDecision{Device: device, Personas: personas})
		}
	}
	personas := func() []policy.Persona {
		var all []policy.Persona
		for range c.pick(5) {
			number++
			all = append(all, c.persona(number))
		}
		return all
	}
	for range 1 + c.pick(3) {
		name := c.name()
		devices := pf(name, c.pick(70)*c.pick(2))
		devices[0].LinkSpeed = 1000 * c.pick(101)
		if c.pick(4) > 0 { // otherwise the physical function is unknown
			add(devices[0], personas())
		}
		all := personas()
		for _, vf := range devices[1:] {
			if c.pick(8) == 7 {
				vf.Master = "br-data"
			}
			add(vf, all)
			if c.pick(8) == 7 {
				holding := draslices.Holding{Device: vf.Name, Bandwidth: int64(100 * c.pick(200))}
				if c.pick(2) == 1 {
					number++
					persona := c.persona(number)
					persona.Suffix = ""
					holding.Persona = &persona
				}
				held[draslices.EntryID{Pool: "worker-1/" + name, Name: string(vf.Name)}] = holding
			}
		}
	}
	return d, held
}

// FuzzBuild checks that every decision results in valid slices, and that the order of devices does not matter.
func FuzzBuild(f *testing.F) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 3))
		data := make([]byte, 64*(1+seed)+seed%4) // the length determines the features
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		decision, held := (&choices{data}).decision()
		all := features()
		all.Held = held
		all.ListAttributes, all.CompatibilityGroups = len(data)%2 == 1, len(data)%4 > 1
		result, err := draslices.Build("worker-1", decision, all)
		if err != nil {
			t.Fatal(err)
		}
		checkValid(t, result)
		random := rand.New(rand.NewPCG(uint64(len(data)), 4))
		for range 2 {
			random.Shuffle(len(decision.Devices),
				func(i, j int) { decision.Devices[i], decision.Devices[j] = decision.Devices[j], decision.Devices[i] })
			for _, d := range decision.Devices {
				random.Shuffle(len(d.Personas),
					func(i, j int) { d.Personas[i], d.Personas[j] = d.Personas[j], d.Personas[i] })
			}
			again, err := draslices.Build("worker-1", decision, all)
			if err != nil || !equality.Semantic.DeepEqual(result, again) {
				t.Fatalf("changing the order of devices changed the result (%v):\n%s", err, cmp.Diff(result,
					again))
			}
		}
	})
}

// The order of policies and of devices does not matter.
func TestOrderDoesNotMatter(t *testing.T) {
	for seed := range uint64(rounds(80)) {
		d := dice{rand.New(rand.NewPCG(seed, 6))}
		m := d.machine()
		devices, list := m.devices(), policies(t, m.policies()...)
		want := build(t, devices, m.policies()...)
		d.Shuffle(len(devices), func(i, j int) { devices[i], devices[j] = devices[j], devices[i] })
		d.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		got, err := draslices.Build("worker-1",
			policy.Resolve(discovery.Facts{Devices: devices}, list, policy.Node{Name: "worker-1"}), features())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("seed %d: changing the order changed the result (%v):\n%s\nthe machine is\n%s", seed, err, diff, m)
		}
	}
}
