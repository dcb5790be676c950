package slices_test

import (
	"fmt"
	"math/rand/v2"
	stdslices "slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// machine is a machine in the property test. It models the NICs and the offers that policies make for them. The oracle
// reads only this model, not the driver's results.
type (
	machine struct {
		nics []modelNIC
	}
	// modelNIC is a NIC, possibly with virtual functions if it is a physical function.
	modelNIC struct {
		name   string
		speed  int64
		offers []offer
		// requests contains the bandwidth settings (a default or tiers) from the policy for the first exclusive offer.
		requests []int64
		// pf is true if the NIC can have virtual functions.
		pf  bool
		vfs []vfunc
	}
	vfunc struct {
		index int
		// enslaved is true if the function is a port of a bridge on the machine.
		enslaved bool
		offers   []offer
	}
	// offer is a policy for one device.
	offer struct {
		suffix  string
		plugins []string // plugins that share the device, or take all of it if exclusive
		mixed   []string // plugins that take the whole device, although others share it
		// exclusive is true if the device is not shared.
		exclusive bool
		group     string
		stock     []stock
		// bandwidth is empty, or contains a single default or several tiers. Only exclusive offers define bandwidth.
		bandwidth []int64
	}
	// stock is one capacity of a device.
	stock struct {
		name         string
		value, usual int64
	}
)

// devices returns the devices that discovery finds on the machine.
func (m machine) devices() []discovery.Device {
	var all []discovery.Device
	for _, c := range m.nics {
		devices := pf(c.name, len(c.vfs))
		if !c.pf && len(c.vfs) == 0 {
			devices = []discovery.Device{nic(c.name)}
		}
		devices[0].LinkSpeed = int(c.speed)
		for i, vf := range c.vfs {
			d := &devices[i+1]
			d.VFIndex, d.Name = vf.index, discovery.IfName(vf.name(c))
			if vf.enslaved {
				d.Master, d.MasterKind = "br-data", "bridge"
			}
		}
		all = append(all, devices...)
	}
	return all
}

func (vf vfunc) name(c modelNIC) string { return fmt.Sprintf("%sv%d", c.name, vf.index) }

// policies returns the specs of policies that define the offers.
func (m machine) policies() []string {
	var specs []string
	for _, c := range m.nics {
		first := true
		for _, o := range c.offers {
			var requests []int64
			if o.exclusive && first {
				first, requests = false, c.requests
			}
			specs = append(specs, o.spec(c.name, requests))
		}
		for _, vf := range c.vfs {
			for _, o := range vf.offers {
				specs = append(specs, o.spec(vf.name(c), o.bandwidth))
			}
		}
	}
	return specs
}

func (o offer) spec(device string, bandwidth []int64) string {
	var capacity, plugins []string
	for _, s := range o.stock {
		request := fmt.Sprintf(`, requestPolicy: {default: "%d"}`, s.usual)
		if o.exclusive {
			request = ""
		}
		capacity = append(capacity, fmt.Sprintf(`%s: {value: "%d"%s}`, s.name, s.value, request))
	}
	if n := len(bandwidth); n > 0 {
		request := fmt.Sprintf(`default: "%d"`, bandwidth[0])
		if n > 1 {
			request += fmt.Sprintf(`, validValues: ["%s"]`,
				strings.Trim(strings.ReplaceAll(fmt.Sprint(bandwidth), " ", `", "`), "[]"))
		}
		capacity = append(capacity,
			fmt.Sprintf(`bandwidth: {value: "%d", requestPolicy: {%s}}`, bandwidth[n-1], request))
	}
	for _, p := range o.plugins {
		plugins = append(plugins, fmt.Sprintf("{name: %s, exclusive: %t}", p, o.exclusive))
	}
	for _, p := range o.mixed {
		plugins = append(plugins, fmt.Sprintf("{name: %s, exclusive: true}", p))
	}
	return fmt.Sprintf(`{selector: {cel: 'device.attributes["dra.networking"].ifName == "%s"'}, exposure: `+
		`{deviceNameSuffix: "%s", `+
		`allowMultipleAllocations: %t, exclusionGroup: "%s", capacity: {%s}, supportedCNIPlugins: [%s]}}`,
		device, o.suffix, !o.exclusive, o.group, strings.Join(capacity, ", "), strings.Join(plugins, ", "))
}

// These types describe a sequence of claims and releases.
type (
	step struct {
		// claims contains the claims that arrive in the same scheduling cycle.
		claims []testClaim
		// release is the number of the claim to release, or 0 for none.
		release int
	}
	testClaim struct {
		number   int
		requests []wish
	}
	// wish is a request in a claim.
	wish struct {
		plugin string
		// stock is the capacity that the request takes an amount from; empty if the request takes none.
		stock  string
		amount int64
	}
)

func (s step) String() string {
	if s.release > 0 {
		return fmt.Sprintf("release claim %d", s.release)
	}
	var claims []string
	for _, c := range s.claims {
		var requests []string
		for _, w := range c.requests {
			text := w.plugin
			if w.stock != "" {
				text += fmt.Sprintf(" with %d %s", w.amount, w.stock)
			}
			requests = append(requests, text)
		}
		claims = append(claims, fmt.Sprintf("claim %d: %s", c.number, strings.Join(requests, ", ")))
	}
	return strings.Join(claims, "; in the same cycle ")
}

// plugins returns the plugins for which at least one device on the machine is offered.
func (m machine) plugins() []string {
	var all []string
	for _, t := range m.things() {
		all = append(all, t.plugins...)
	}
	stdslices.Sort(all)
	return stdslices.Compact(all)
}

// dice generates random machines and sequences.
type dice struct{ *rand.Rand }

func (d dice) pick(n int) int { return d.IntN(n) }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

// plugins returns one or two of the four plugins used in policies and claims.
func (d dice) plugins() []string {
	all := []string{"macvlan", "ipvlan", "host-device", "sriov"}
	d.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+d.pick(2)]
}

func (d dice) machine() machine {
	var m machine
	for i := range 1 + d.pick(2) {
		c := modelNIC{name: fmt.Sprintf("eth%d", i), speed: []int64{0, 90, 1000, 2550, 10000}[d.pick(5)],
			offers: d.offers(d.pick(4), false)}
		if d.chance(20) {
			c.requests = d.bandwidth()
		}
		index := 0
		for range d.pick(4) {
			index += 1 + d.pick(20)/19 // sometimes an index is skipped
			vf := vfunc{index: index, enslaved: d.chance(5), offers: d.offers(d.pick(4), true)}
			c.vfs = append(c.vfs, vf)
		}
		c.pf = len(c.vfs) > 0 || d.chance(50)
		m.nics = append(m.nics, c)
	}
	return m
}

// bandwidth returns either a single default or several tiers.
func (d dice) bandwidth() []int64 {
	all := []int64{100, 500, 1000, 5000}
	start := d.pick(len(all))
	return all[start : start+1+d.pick(len(all)-start)]
}

func (d dice) offers(n int, vf bool) []offer {
	var offers []offer
	for i := range n {
		o := offer{suffix: []string{"", "-a", "-b"}[i], plugins: d.plugins(), exclusive: d.chance(40)}
		switch {
		case o.exclusive && vf && d.chance(40):
			o.bandwidth = d.bandwidth()
		case !o.exclusive:
			o.stock = []stock{{name: []string{"units", "ports"}[d.pick(2)], value: 1 + d.Int64N(4), usual: 1}}
			if d.chance(20) {
				o.stock = append(o.stock, stock{"bandwidth", 100 * (1 + d.Int64N(10)), 100})
			}
			o.group = []string{"", "", "x", "y"}[d.pick(4)]
			if left := d.without(o.plugins); d.chance(25) {
				o.mixed = left
			}
		}
		offers = append(offers, o)
	}
	return offers
}

// without returns a plugin that is not in taken.
func (d dice) without(taken []string) []string {
	for {
		if p := d.plugins()[:1]; !stdslices.Contains(taken, p[0]) {
			return p
		}
	}
}

// steps returns claims and releases. Most of the claims are for devices on the machine.
func (d dice) steps(m machine) []step {
	plugins := m.plugins()
	if len(plugins) == 0 || d.chance(5) {
		plugins = []string{"macvlan", "ipvlan", "host-device", "sriov"}
	}
	var steps []step
	claims := 0
	for range 3 + d.pick(10) {
		if claims > 0 && d.chance(25) {
			steps = append(steps, step{release: 1 + d.pick(claims)})
			continue
		}
		var s step
		for range 1 + d.pick(4)/3 {
			claims++
			claim := testClaim{number: claims}
			for range 1 + d.pick(5)/3 {
				claim.requests = append(claim.requests, d.wish(plugins))
			}
			s.claims = append(s.claims, claim)
		}
		steps = append(steps, s)
	}
	return steps
}

func (d dice) wish(plugins []string) wish {
	w := wish{plugin: plugins[d.pick(len(plugins))]}
	switch d.pick(5) {
	case 0:
		w.stock, w.amount = "bandwidth", []int64{100, 400, 1000, 5000}[d.pick(4)]
	case 1:
		w.stock, w.amount = "units", 1+d.Int64N(2)
	}
	return w
}
