package upcoming

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

type (
	// Slice is the part of a ResourceSlice's spec that a driver writes.
	Slice struct {
		// Mixins contains parts that counter sets and devices in the same slice can include.
		Mixins         *Mixins      `json:"mixins,omitempty"`
		SharedCounters []CounterSet `json:"sharedCounters,omitempty"`
		Devices        []Device     `json:"devices,omitempty"`
	}
	// Mixins contains parts of counter sets, devices and consumptions. Names are unique within each kind.
	Mixins struct {
		Device                   []DeviceMixin  `json:"device,omitempty"`
		DeviceCounterConsumption []CounterMixin `json:"deviceCounterConsumption,omitempty"`
		CounterSet               []CounterMixin `json:"counterSet,omitempty"`
	}
	// DeviceMixin contains attributes and capacities.
	DeviceMixin struct {
		Name       string                                                    `json:"name"`
		Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes,omitempty"`
		Capacity   map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity,omitempty"`
	}
	// CounterMixin contains counters for sets, or consumed amounts for consumptions.
	CounterMixin struct {
		Name     string             `json:"name"`
		Counters map[string]Counter `json:"counters"`
	}
	// CounterSet is a set of counters that devices consume from.
	CounterSet struct {
		Name     string             `json:"name"`
		Includes []string           `json:"includes,omitempty"`
		Counters map[string]Counter `json:"counters,omitempty"`
	}
	// Device is an allocatable device. It omits the API fields that this driver does not use.
	Device struct {
		Name                     string                                                    `json:"name"`
		Includes                 []string                                                  `json:"includes,omitempty"`
		Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes,omitempty"`
		Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity,omitempty"`
		ConsumesCounters         []Consumption                                             `json:"consumesCounters,omitempty"`
		Taints                   []resourceapi.DeviceTaint                                 `json:"taints,omitempty"`
		AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations,omitempty"`
	}
	// Consumption is a device's consumption from a counter set.
	Consumption struct {
		CounterSet          string             `json:"counterSet"`
		Includes            []string           `json:"includes,omitempty"`
		Counters            map[string]Counter `json:"counters,omitempty"`
		CompatibilityGroups []string           `json:"compatibilityGroups,omitempty"`
	}
	// Counter is a counter in a set, or the amount that a device consumes from a counter.
	Counter struct {
		// Value is the total amount of a counter in a set, or a fixed amount that is consumed.
		Value *resource.Quantity `json:"value,omitempty"`
		// RequestPolicy defines which amounts a claim may consume from a counter in a set.
		RequestPolicy *resourceapi.CapacityRequestPolicy `json:"requestPolicy,omitempty"`
		// ValueFrom replaces Value if the claim determines the consumed amount.
		ValueFrom *ValueFrom `json:"valueFrom,omitempty"`
	}
	// ValueFrom refers to a key in the claim's capacity.requests.
	ValueFrom struct {
		CapacityKey resourceapi.QualifiedName `json:"capacityKey"`
	}
)

// Node is the data to be published for a node.
type Node struct {
	// Pools maps pool names to the slices in each pool.
	Pools map[string][]Slice
	// Entries contains the devices in the slices, sorted by pool and then in publication order. Their Spec has the type
	// from the current API, not the type used in the slices.
	Entries []draslices.Entry
	// Problems describes the entries that cannot be published as their policies define them. It is sorted.
	Problems []policy.Problem
}

// Map returns a copy of the node with change applied to every slice.
func (n Node) Map(change func(Slice) Slice) Node {
	changed := Node{Pools: map[string][]Slice{}, Entries: n.Entries, Problems: n.Problems}
	for name, slices := range n.Pools {
		for _, slice := range slices {
			changed.Pools[name] = append(changed.Pools[name], change(slice))
		}
	}
	return changed
}

// FromResult converts the data to be published for a node to this package's types.
func FromResult(result draslices.Result) Node {
	node := Node{Pools: map[string][]Slice{}, Entries: result.Entries, Problems: result.Problems}
	for name, pool := range result.Resources.Pools {
		for _, part := range pool.Slices {
			var slice Slice
			for _, set := range part.SharedCounters {
				slice.SharedCounters = append(slice.SharedCounters,
					CounterSet{Name: set.Name, Counters: counters(set.Counters)})
			}
			for i := range part.Devices {
				slice.Devices = append(slice.Devices, device(&part.Devices[i]))
			}
			node.Pools[name] = append(node.Pools[name], slice)
		}
	}
	return node
}

// device converts a device from the current API to the upcoming form, without mixins.
func device(d *resourceapi.Device) Device {
	var consumptions []Consumption
	for _, c := range d.ConsumesCounters {
		consumptions = append(consumptions, Consumption{CounterSet: c.CounterSet, Counters: counters(c.Counters),
			CompatibilityGroups: c.CompatibilityGroups})
	}
	return Device{Name: d.Name, Attributes: d.Attributes, Capacity: d.Capacity, ConsumesCounters: consumptions,
		Taints:                   d.Taints,
		AllowMultipleAllocations: d.AllowMultipleAllocations}
}

func counters(values map[string]resourceapi.Counter) map[string]Counter {
	converted := make(map[string]Counter, len(values))
	for name, c := range values {
		value := c.Value.DeepCopy()
		converted[name] = Counter{Value: &value}
	}
	return converted
}
