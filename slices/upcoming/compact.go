package upcoming

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
)

type (
	name      = resourceapi.QualifiedName
	attribute = resourceapi.DeviceAttribute
	capacity  = resourceapi.DeviceCapacity
)

const (
	// maxIncludes is the maximum number of mixins that an object can include (KEP-5234).
	maxIncludes = 8
	// includeSize and mixinSize are upper bounds for the number of bytes that an include and a mixin add to a slice.
	includeSize = 32
	mixinSize   = 100
)

// Compact returns a slice in which mixins contain the fields that several devices or counter sets have in common. No
// field of an object comes from more than one mixin, so the order of mixins does not matter. A slice that already has
// mixins is returned unchanged. Flatten reverts Compact. The argument is not modified.
func Compact(s Slice) Slice {
	if s.Mixins != nil {
		return s
	}
	compact := Slice{Mixins: &Mixins{}, SharedCounters: slices.Clone(s.SharedCounters),
		Devices: slices.Clone(s.Devices)}
	var sets, consumptions []countersOf
	for i := range compact.SharedCounters {
		set := &compact.SharedCounters[i]
		sets = append(sets, countersOf{&set.Includes, &set.Counters})
	}
	for i := range compact.Devices {
		d := &compact.Devices[i]
		d.ConsumesCounters = slices.Clone(d.ConsumesCounters)
		for j := range d.ConsumesCounters {
			consumptions = append(consumptions, countersOf{&d.ConsumesCounters[j].Includes, &d.ConsumesCounters[j].Counters})
		}
	}
	compact.Mixins.CounterSet = compactCounters("counters", sets)
	compact.Mixins.DeviceCounterConsumption = compactCounters("consumption", consumptions)
	compact.Mixins.Device = compactDevices(compact.Devices)
	if len(compact.Mixins.CounterSet)+len(compact.Mixins.DeviceCounterConsumption)+len(compact.Mixins.Device) == 0 {
		return s
	}
	return compact
}

// countersOf contains the counters in a set or a consumption, and the mixins that the set or consumption includes.
type countersOf struct {
	includes *[]string
	counters *map[string]Counter
}

// compactCounters moves the counters that sets or consumptions have in common to mixins, even across counter sets.
func compactCounters(kind string, all []countersOf) []CounterMixin {
	objects := make([]object, len(all))
	for i, c := range all {
		objects[i] = fields("", *c.counters)
	}
	var mixins []CounterMixin
	for i, common := range factor(objects) {
		mixin := CounterMixin{Name: fmt.Sprintf("%s-%d", kind, i),
			Counters: pick(*all[common.members[0]].counters, "", common)}
		mixins = append(mixins, mixin)
		for _, member := range common.members {
			c := all[member]
			*c.includes = append(*c.includes, mixin.Name)
			*c.counters = without(*c.counters, mixin.Counters)
		}
	}
	return mixins
}

// compactDevices moves the attributes and capacities that devices have in common to mixins.
func compactDevices(devices []Device) []DeviceMixin {
	const attributes, capacities = "a:", "c:"
	objects := make([]object, len(devices))
	for i, d := range devices {
		objects[i] = fields(attributes, d.Attributes)
		maps.Copy(objects[i], fields(capacities, d.Capacity))
	}
	var mixins []DeviceMixin
	for i, common := range factor(objects) {
		first := devices[common.members[0]]
		mixin := DeviceMixin{Name: fmt.Sprintf("device-%d", i), Attributes: pick(first.Attributes, attributes, common),
			Capacity: pick(first.Capacity, capacities, common)}
		mixins = append(mixins, mixin)
		for _, member := range common.members {
			d := &devices[member]
			d.Includes = append(d.Includes, mixin.Name)
			d.Attributes = without(d.Attributes, mixin.Attributes)
			d.Capacity = without(d.Capacity, mixin.Capacity)
		}
	}
	return mixins
}

// object contains the fields of an object, with the values encoded as JSON.
type object map[string]string

// fields converts a map to an object. The prefix distinguishes fields from different maps in the same object.
func fields[K ~string, V any](prefix string, values map[K]V) object {
	o := make(object, len(values))
	for key, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			panic(fmt.Sprintf("cannot write %v as JSON: %v", value, err)) // impossible: all of these are API types
		}
		o[prefix+string(key)] = string(text)
	}
	return o
}

// common is a set of fields that several objects have in common.
type common struct {
	fields map[string]bool
	// members contains the indexes of all objects with these fields, in ascending order.
	members []int
	// saved is the number of bytes saved by moving the fields to a mixin.
	saved int
}

// factor returns the common fields for which a mixin is worthwhile, in descending order of savings. Fields are grouped
// if exactly the same objects contain them, with the same values, so no field of an object appears in two results.
func factor(objects []object) []common {
	said := map[string][]int{} // by field and value
	for i, o := range objects {
		for field, value := range o {
			said[field+"="+value] = append(said[field+"="+value], i)
		}
	}
	together := map[string]*common{} // by members
	for _, text := range slices.Sorted(maps.Keys(said)) {
		members := said[text]
		key := fmt.Sprint(members)
		if together[key] == nil {
			together[key] = &common{fields: map[string]bool{}, members: members,
				saved: -mixinSize - includeSize*len(members)}
		}
		field, _, _ := strings.Cut(text, "=")
		together[key].fields[field] = true
		together[key].saved += len(text) * (len(members) - 1)
	}
	var all []common
	for _, c := range together {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b common) int {
		return cmp.Or(-cmp.Compare(a.saved, b.saved), slices.Compare(a.members, b.members))
	})
	includes := make([]int, len(objects))
	return slices.DeleteFunc(all, func(c common) bool {
		full := slices.ContainsFunc(c.members, func(member int) bool { return includes[member] == maxIncludes })
		if c.saved <= 0 || full {
			return true
		}
		for _, member := range c.members {
			includes[member]++
		}
		return false
	})
}

// pick returns the entries of a map that are among the common fields.
func pick[K ~string, V any](values map[K]V, prefix string, common common) map[K]V {
	var picked map[K]V
	for key, value := range values {
		if common.fields[prefix+string(key)] {
			if picked == nil {
				picked = map[K]V{}
			}
			picked[key] = value
		}
	}
	return picked
}

// without returns the entries of a map that are not in picked.
func without[K comparable, V, P any](values map[K]V, picked map[K]P) map[K]V {
	var rest map[K]V
	for key, value := range values {
		if _, ok := picked[key]; !ok {
			if rest == nil {
				rest = map[K]V{}
			}
			rest[key] = value
		}
	}
	return rest
}
