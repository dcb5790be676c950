package slices

import (
	"cmp"
	"fmt"
	stdslices "slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/policy"
)

// Features describes the capabilities of the cluster and the node, and the driver's options.
type Features struct {
	// CNIBinaries contains the file names of the CNI plugins that are installed on the node. Other plugins are not
	// published: a pod that needs one of them would be scheduled to this node but never start.
	CNIBinaries sets.Set[string]
	// UnusableCNIs maps each CNI plugin that cannot work on the node to the missing prerequisite and a suggested fix.
	// These plugins are not published either.
	UnusableCNIs map[string]string
	// MovingCNIs contains the CNI plugins that move a device into the pod, which the kernel cannot do for bridges and
	// bonds.
	MovingCNIs sets.Set[string]
	// StackingCNIs contains the CNI plugins that create a macvlan or ipvlan on top of the device, which must be
	// Ethernet.
	StackingCNIs sets.Set[string]
	// PCIAddressCNIs contains the CNI plugins that only find a device by its PCI address. They cannot distinguish
	// between several interfaces of one PCI function.
	PCIAddressCNIs sets.Set[string]
	// ListAttributes publishes the CNI plugins of an entry as a single list, policy.SupportedCNIs, instead of as one
	// boolean per plugin. It requires the feature DRAListTypeAttributes in every API server and scheduler in the
	// cluster; older versions reject the slices.
	ListAttributes bool
	// CompatibilityGroups enforces the exclusions between a device's entries with compatibility groups instead of
	// counters that mirror each other. It requires the feature DRADeviceCompatibilityGroups in every API server and
	// scheduler in the cluster: an API server without the feature drops the groups, so that nothing keeps the entries
	// apart.
	CompatibilityGroups bool
	// CountBandwidth counts the bandwidth of virtual functions even if their shares cannot exceed the link's bandwidth.
	// This is necessary for slices that allow a claim to request more than a share.
	CountBandwidth bool
	// Held contains the entries that claims hold, as published when the claims were prepared. Their bandwidth and their
	// exclusions are preserved, so that nothing changes for a claim in use. The counters that implement this may
	// change, since the scheduler adds up the current consumption of the entries.
	Held map[EntryID]Holding
}

// Working returns the given CNI plugins that can work on the node, in the same order.
func (f *Features) Working(plugins []string) []string {
	return stdslices.DeleteFunc(stdslices.Clone(plugins), func(plugin string) bool {
		return !f.CNIBinaries.Has(plugin) || f.UnusableCNIs[plugin] != ""
	})
}

// WhyNoneWorks returns the reason why none of a policy's CNI plugins can work on the node, so that no DeviceClass
// selects the devices offered for these plugins.
func (f *Features) WhyNoneWorks(plugins []string) string {
	var reasons []string
	for _, plugin := range plugins {
		if missing := f.UnusableCNIs[plugin]; missing != "" {
			reasons = append(reasons, plugin+": "+missing)
		}
	}
	if len(reasons) > 0 {
		return "no CNI plugin of its policy can work on the node: " + strings.Join(reasons, "; ")
	}
	return "no CNI plugin of its policy is installed on the node: " + strings.Join(plugins, ", ")
}

// EntryID identifies an entry by the pool name and device name used in allocations.
type EntryID struct {
	Pool, Name string
}

// Result is the data to be published for a node.
type Result struct {
	// Resources is the complete desired state, in the form that the resourceslice controller expects.
	Resources resourceslice.DriverResources
	// Entries contains the published devices, sorted by pool and then in publication order.
	Entries []Entry
	// Problems describes the entries that could not be published or that differ from what their policy defines. It is
	// sorted.
	Problems []policy.Problem
}

// Entry is a published device, which an allocation identifies by its pool and device name.
type Entry struct {
	Pool    string
	Name    string
	Device  discovery.Device
	Persona policy.Persona
	// Bandwidth is the bandwidth, in Mbit/s, that the entry consumes on its physical function, even if there is no
	// counter for it. It is 0 if the entry consumes none.
	Bandwidth int64
	// Withdrawn is true if a claim still holds the entry but no policy offers it. Other claims must not get it.
	Withdrawn bool
	// Spec is the device as published.
	Spec resourceapi.Device
}

// Find returns the entry for an allocation result.
func (r Result) Find(pool, device string) (Entry, bool) {
	i := stdslices.IndexFunc(r.Entries, func(e Entry) bool { return e.Pool == pool && e.Name == device })
	if i < 0 {
		return Entry{}, false
	}
	return r.Entries[i], true
}

// Build returns the data to be published for the node. Devices that can exclude each other, that is, a physical
// function and its virtual and scalable functions, share a pool. Every other device has its own pool, named
// <node>/<interface>. Build returns an error only if the node's name cannot be part of a pool name.
func Build(node string, decision policy.Decision, features Features) (Result, error) {
	if reasons := validation.IsDNS1123Subdomain(node); len(reasons) > 0 {
		return Result{}, fmt.Errorf("cannot name pools of node %q: %s", node, strings.Join(reasons, ", "))
	}
	b := builder{features: features, held: byDevice(features.Held)}
	result := Result{Resources: resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{}}}
	var all [][]Entry
	for _, d := range domains(decision) {
		name := node + "/" + label(string(d.name))
		if len(name) > resourceapi.PoolNameMaxLength {
			b.problem("", d.name, "is not published: the name of its pool %s has more than %d characters", name,
				resourceapi.PoolNameMaxLength)
			continue
		}
		entries, counterSets := b.domain(name, d)
		if len(entries) == 0 {
			continue
		}
		for i := range entries {
			entries[i].Pool = name
		}
		all = append(all, entries)
		result.Resources.Pools[name] = pool(entries, counterSets)
	}
	result.Entries = stdslices.Concat(all...)
	stdslices.SortStableFunc(result.Entries, func(a, b Entry) int { return cmp.Compare(a.Pool, b.Pool) })
	result.Problems = b.sortedProblems()
	return result, nil
}

// conflictDomain contains devices that may exclude each other: a physical function with its virtual and scalable
// functions, or any other device on its own.
type conflictDomain struct {
	name discovery.IfName
	// main is nil if there are virtual functions whose physical function is not known.
	main *policy.DeviceDecision
	// vfs contains first the scalable functions, sorted by name, then the virtual functions, sorted by index.
	vfs []policy.DeviceDecision
}

// domains groups the devices into conflict domains, sorted by name.
func domains(decision policy.Decision) []conflictDomain {
	byName := map[discovery.IfName]*conflictDomain{}
	domainOf := func(name discovery.IfName) *conflictDomain {
		if byName[name] == nil {
			byName[name] = &conflictDomain{name: name}
		}
		return byName[name]
	}
	for _, d := range decision.Devices {
		if d.Device.PFName != "" {
			domain := domainOf(d.Device.PFName)
			domain.vfs = append(domain.vfs, d)
			continue
		}
		domainOf(d.Device.Name).main = &d
	}
	var sorted []conflictDomain
	for _, domain := range byName {
		stdslices.SortFunc(domain.vfs, func(a, b policy.DeviceDecision) int {
			return cmp.Or(cmp.Compare(a.Device.VFIndex, b.Device.VFIndex), cmp.Compare(a.Device.Name, b.Device.Name))
		})
		sorted = append(sorted, *domain)
	}
	stdslices.SortFunc(sorted, func(a, b conflictDomain) int { return cmp.Compare(a.name, b.name) })
	return sorted
}

// builder holds the input of a build and collects its problems.
type builder struct {
	features Features
	// held lists the entries that claims hold, by device.
	held     map[heldDevice][]EntryID
	problems map[policy.Problem]bool
}

// problem records a problem. Duplicates are ignored.
func (b *builder) problem(policyName string, device discovery.IfName, format string, args ...any) {
	b.add(policy.Problem{Policy: policyName, Device: string(device), Message: fmt.Sprintf(format, args...)})
}

// remark records a problem that does not prevent a device from being offered as its policy requires. Duplicates are
// ignored.
func (b *builder) remark(policyName string, device discovery.IfName, format string, args ...any) {
	b.add(policy.Problem{Policy: policyName, Device: string(device), Message: fmt.Sprintf(format, args...),
		Remark: true})
}

func (b *builder) add(p policy.Problem) {
	if b.problems == nil {
		b.problems = map[policy.Problem]bool{}
	}
	b.problems[p] = true
}

// sortedProblems returns the problems in a stable order.
func (b *builder) sortedProblems() []policy.Problem {
	var sorted []policy.Problem
	for p := range b.problems {
		sorted = append(sorted, p)
	}
	stdslices.SortFunc(sorted, func(p, q policy.Problem) int {
		return cmp.Or(cmp.Compare(p.Policy, q.Policy), cmp.Compare(p.Device, q.Device),
			cmp.Compare(p.Message, q.Message))
	})
	return sorted
}

// domain returns the counter sets of a conflict domain, and its entries in publication order: shared entries, exclusive
// entries, virtual functions by index, and tiers in ascending order. The order matters because the scheduler allocates
// the first entry that fits.
//
// domain first computes the entries, then the properties that depend on several entries, such as bandwidth, and finally
// the counters, which depend on all of these. Each step drops entries that do not fit. Entries held by claims are
// dropped only as a last resort, since the scheduler would then count their share as free.
func (b *builder) domain(pool string, d conflictDomain) ([]Entry, []resourceapi.CounterSet) {
	var main []Entry
	link := d.link()
	if d.main != nil {
		personas := b.attachable(d.main.Device,
			inOrder(stdslices.Concat(d.main.Personas, b.bandwidthOnRequest(d, link))))
		main = b.keep(pool, d.main.Device, b.withoutDuplicates(b.entries(d.main.Device, personas)))
	}
	vfs := make([]function, 0, len(d.vfs))
	for _, vf := range d.vfs {
		entries := b.keep(pool, vf.Device, b.withoutDuplicates(b.functionEntries(pool, link, vf)))
		vfs = append(vfs, function{device: vf.Device, entries: entries})
	}
	b.withinSet(pool, vfs)
	plan, err := b.plan(d, main, vfs, b.budget(pool, link, main, vfs))
	if err != nil {
		b.problem("", d.name, "is not published: %v", err)
		main = b.onlyHeld(pool, main)
		if plan, err = planCounters(d, main, vfs, b.budget(pool, link, main, vfs)); err != nil {
			main = nil
			plan, _ = planCounters(d, main, vfs, b.budget(pool, link, main, vfs))
		}
	}
	if plan == nil {
		return main, nil
	}
	counterSets := append(plan.sets, planFunctions(d, vfs, plan)...)
	all := [][]Entry{main}
	for _, vf := range vfs {
		all = append(all, vf.entries)
	}
	entries := stdslices.Concat(all...)
	b.coverHeld(pool, entries, counterSets)
	return entries, counterSets
}

func (b *builder) isHeld(pool string, e Entry) bool {
	_, held := b.features.Held[EntryID{Pool: pool, Name: e.Name}]
	return held
}

// onlyHeld returns the entries that claims hold: even if a domain cannot be published completely, held devices must not
// become free.
func (b *builder) onlyHeld(pool string, entries []Entry) []Entry {
	return stdslices.DeleteFunc(entries, func(e Entry) bool { return !b.isHeld(pool, e) })
}

// coverHeld raises counters to the amounts that claims hold. If entries that are held concurrently now exclude each
// other, a counter must not become negative, which would block the whole pool.
//
// For example, two claims share a device, and a new policy puts their entries into the same exclusion group. Each entry
// then also consumes the other entry's mirror. Together, the entries consume twice the counter's value, so the counter
// is raised to that amount.
func (b *builder) coverHeld(pool string, entries []Entry, counterSets []resourceapi.CounterSet) {
	for _, set := range counterSets {
		held := amounts{}
		for _, e := range entries {
			for _, c := range e.Spec.ConsumesCounters {
				if c.CounterSet != set.Name || !b.isHeld(pool, e) {
					continue
				}
				for name, counter := range c.Counters {
					sum := held[name].DeepCopy()
					sum.Add(counter.Value)
					held[name] = sum
				}
			}
		}
		for name, sum := range held {
			if counter := set.Counters[name]; counter.Value.Cmp(sum) < 0 {
				set.Counters[name] = resourceapi.Counter{Value: sum}
			}
		}
	}
}

// plan enforces the exclusions between the entries of a domain, with compatibility groups if the cluster supports them
// and they can express the rules, and with counters otherwise.
func (b *builder) plan(d conflictDomain, main []Entry, vfs []function, budget amounts) (*plan, error) {
	if b.features.CompatibilityGroups {
		plan, err := planGroups(d, main, vfs, budget)
		if err == nil {
			return plan, nil
		}
		b.remark("", d.name, "counters instead of compatibility groups separate its entries: %v", err)
	}
	return planCounters(d, main, vfs, budget)
}

// withoutDuplicates omits entries whose name an earlier entry already has.
func (b *builder) withoutDuplicates(entries []Entry) []Entry {
	taken := map[string]string{}
	return stdslices.DeleteFunc(entries, func(e Entry) bool {
		other, duplicate := taken[e.Name]
		if duplicate {
			b.problem(e.Persona.Policy, e.Device.Name, "its entry is not published: policy %s already gives an entry "+
				"the name %q: change deviceNameSuffix", other, e.Name)
			return true
		}
		taken[e.Name] = e.Persona.Policy
		return false
	})
}

// pool distributes counter sets and devices across slices. A pool with several devices has counters, so its slices are
// subject to the lower size limit, which also applies to list attributes. Counter sets get their own slices, since the
// API does not allow counter sets and devices in the same slice.
func pool(entries []Entry, counterSets []resourceapi.CounterSet) resourceslice.Pool {
	var p resourceslice.Pool
	for chunk := range stdslices.Chunk(counterSets, resourceapi.ResourceSliceMaxCounterSets) {
		p.Slices = append(p.Slices, resourceslice.Slice{SharedCounters: chunk})
	}
	for chunk := range stdslices.Chunk(entries, resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures) {
		slice := resourceslice.Slice{Devices: make([]resourceapi.Device, 0, len(chunk))}
		for _, e := range chunk {
			slice.Devices = append(slice.Devices, e.Spec)
		}
		p.Slices = append(p.Slices, slice)
	}
	return p
}
