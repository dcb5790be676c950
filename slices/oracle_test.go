package slices_test

import (
	"fmt"
	"maps"
	stdslices "slices"
	"strings"
)

// thing is something that can be allocated on a machine: one particular use of one device.
type thing struct {
	name   string
	device string
	nic    string
	// function is true if the device is a virtual function of the NIC.
	function bool
	// exclusive is true if the whole thing is allocated to a single claim. Otherwise, several claims can take amounts
	// from its stock.
	exclusive bool
	plugins   []string
	group     string
	stock     []stock
	// takes is the amount of bandwidth on the NIC that the thing consumes while it is in use.
	takes int64
}

// had is a thing that has been allocated to a claim, with the amounts that the claim takes.
type had struct {
	thing
	amounts map[string]int64
}

// things returns everything that can be allocated on the machine, by name.
func (m machine) things() map[string]thing {
	all := map[string]thing{}
	add := func(t thing) { all[t.name] = t }
	for _, c := range m.nics {
		first := true
		for _, o := range c.offers {
			t := thing{name: c.name + o.suffix, device: c.name, nic: c.name, exclusive: o.exclusive,
				plugins: o.plugins, group: o.group, stock: o.stock}
			if o.exclusive && first && len(c.requests) > 0 {
				t.stock = []stock{{name: "bandwidth", value: c.requests[len(c.requests)-1]}}
			}
			first = first && !o.exclusive
			add(t)
			if len(o.mixed) > 0 {
				t.name, t.exclusive, t.plugins = t.name+"-exclusive", true, o.mixed
				add(t)
			}
		}
		for _, vf := range c.vfs {
			for _, t := range c.thingsOf(vf) {
				if t.takes <= c.speed { // otherwise no claim could use it
					add(t)
				}
			}
		}
	}
	return all
}

// thingsOf returns the things for a virtual function.
func (c modelNIC) thingsOf(vf vfunc) []thing {
	fair := c.speed / int64(len(c.vfs))
	if fair >= 100 {
		fair -= fair % 100
	}
	// Shared uses that are possible at the same time split the function's fair share.
	groups := map[string]bool{}
	parties := int64(0)
	for _, o := range vf.offers {
		if !o.exclusive && (o.group == "" || !groups[o.group]) {
			groups[o.group] = true
			parties++
		}
	}
	var all []thing
	for _, o := range vf.offers {
		t := thing{name: vf.name(c) + o.suffix, device: vf.name(c), nic: c.name, function: true,
			exclusive: o.exclusive, plugins: o.plugins, group: o.group, stock: o.stock}
		if o.exclusive {
			all = append(all, t.withBandwidth(c.choices(o), fair)...)
			continue
		}
		t.takes = fair / parties
		whole := c.choices(offer{})
		if i := stdslices.IndexFunc(o.stock, func(s stock) bool { return s.name == "bandwidth" }); i >= 0 {
			t.takes, whole = o.stock[i].value, []int64{o.stock[i].value}
		}
		all = append(all, t)
		if len(o.mixed) > 0 {
			taker := t
			taker.name, taker.exclusive, taker.plugins, taker.takes = t.name+"-exclusive", true, o.mixed, 0
			taker.stock = stdslices.DeleteFunc(stdslices.Clone(o.stock),
				func(s stock) bool { return s.name == "bandwidth" })
			all = append(all, taker.withBandwidth(whole, fair)...)
		}
	}
	return all
}

// choices returns the bandwidths defined for an exclusive use of a function, either in the policy for the function or,
// if that policy defines none, in the policy for the NIC.
func (c modelNIC) choices(o offer) []int64 {
	if len(o.bandwidth) > 0 || !stdslices.ContainsFunc(c.offers, func(o offer) bool { return o.exclusive }) {
		return o.bandwidth
	}
	return c.requests
}

// withBandwidth returns one copy of the thing for each bandwidth in choices or, if choices is empty, a single copy with
// the fair share.
func (t thing) withBandwidth(choices []int64, fair int64) []thing {
	if len(choices) == 0 {
		choices = []int64{fair}
	}
	var all []thing
	for _, b := range choices {
		choice := t
		choice.takes = b
		if len(choices) > 1 {
			choice.name = fmt.Sprintf("%s-bw%d", t.name, b)
		}
		if b > 0 {
			choice.stock = append(stdslices.Clone(t.stock), stock{name: "bandwidth", value: b})
		}
		all = append(all, choice)
	}
	return all
}

// allot returns the allocation that fulfills a wish with this thing. It returns false if the thing does not match the
// wish.
func (t thing) allot(w wish) (had, bool) {
	if !stdslices.Contains(t.plugins, w.plugin) {
		return had{}, false
	}
	wanted := w.stock == ""
	h := had{thing: t, amounts: map[string]int64{}}
	for _, s := range t.stock {
		h.amounts[s.name] = s.usual
		if s.name == w.stock {
			h.amounts[s.name] = w.amount
			wanted = w.amount <= s.value
		}
	}
	return h, wanted
}

// exclusive reports whether two things must not be used at the same time.
func exclusive(a, b thing) bool {
	switch {
	case a.nic != b.nic:
		return false
	case a.device == b.device && a.name == b.name:
		return a.exclusive
	case a.device == b.device:
		return a.exclusive || b.exclusive || a.group != "" && a.group == b.group
	case a.function && b.function:
		return false
	}
	// Allocating a physical function as a whole excludes all its virtual functions.
	return !a.function && a.exclusive || !b.function && b.exclusive
}

// mistake returns the reason why the things must not be allocated at the same time, or "" if there is none.
func (m machine) mistake(all []had) string {
	used := map[string]map[string]int64{}
	taken := map[string]int64{}
	for i, h := range all {
		for _, other := range all[:i] {
			if exclusive(h.thing, other.thing) {
				return fmt.Sprintf("%s and %s exclude each other", other.name, h.name)
			}
		}
		if used[h.name] == nil {
			used[h.name] = map[string]int64{}
			taken[h.nic] += h.takes
		}
		for _, s := range h.stock {
			if used[h.name][s.name] += h.amounts[s.name]; !h.exclusive && used[h.name][s.name] > s.value {
				return fmt.Sprintf("%s has only %d %s", h.name, s.value, s.name)
			}
		}
	}
	for _, c := range m.nics {
		if taken[c.name] > c.speed {
			return fmt.Sprintf("%s has only a bandwidth of %d", c.name, c.speed)
		}
		enslaved := stdslices.ContainsFunc(c.vfs, func(vf vfunc) bool { return vf.enslaved })
		if enslaved && stdslices.ContainsFunc(all, func(h had) bool { return h.device == c.name && h.exclusive }) {
			return fmt.Sprintf("%s has a virtual function in a bridge", c.name)
		}
	}
	return ""
}

// possible returns the names of things whose allocation, in addition to the existing allocations, would fulfill all
// wishes. It returns nil if this is not possible.
func (m machine) possible(things map[string]thing, all []had, requests []wish) []string {
	if len(requests) == 0 {
		return []string{}
	}
	for _, name := range stdslices.Sorted(maps.Keys(things)) {
		h, ok := things[name].allot(requests[0])
		if !ok {
			continue
		}
		with := append(stdslices.Clone(all), h)
		if m.mistake(with) != "" {
			continue
		}
		if rest := m.possible(things, with, requests[1:]); rest != nil {
			return append([]string{name}, rest...)
		}
	}
	return nil
}

// names returns the names of allocated things.
func names(all []had) string {
	list := []string{}
	for _, h := range all {
		list = append(list, h.name)
	}
	return strings.Join(list, ", ")
}
