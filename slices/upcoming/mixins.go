package upcoming

import (
	"fmt"
	"maps"
)

// Flatten returns a slice without mixins, copying their content to the objects that include them. If several mixins
// contain the same field, the mixin that is included last takes precedence, and fields of the including object take
// precedence over all mixins (KEP-5234). Flatten returns an error if an included mixin does not exist. The argument is
// not modified.
func Flatten(s Slice) (Slice, error) {
	if s.Mixins == nil {
		return s, nil
	}
	parts := byName(s.Mixins)
	var flat Slice
	for _, set := range s.SharedCounters {
		var err error
		if set.Counters, err = layers(parts.sets, set.Includes, set.Counters); err != nil {
			return Slice{}, fmt.Errorf("cannot flatten counter set %s: %w", set.Name, err)
		}
		set.Includes = nil
		flat.SharedCounters = append(flat.SharedCounters, set)
	}
	for _, d := range s.Devices {
		var err error
		if d, err = parts.flatten(d); err != nil {
			return Slice{}, fmt.Errorf("cannot flatten device %s: %w", d.Name, err)
		}
		flat.Devices = append(flat.Devices, d)
	}
	return flat, nil
}

// mixinParts contains the content of all mixins, by kind and name.
type mixinParts struct {
	attributes   parts[name, attribute]
	capacity     parts[name, capacity]
	consumptions parts[string, Counter]
	sets         parts[string, Counter]
}

type parts[K comparable, V any] map[string]map[K]V

// byName indexes mixins by name. Validation ensures that names are unique in each list.
func byName(m *Mixins) mixinParts {
	all := mixinParts{parts[name, attribute]{}, parts[name, capacity]{}, parts[string, Counter]{},
		parts[string, Counter]{}}
	for _, mixin := range m.Device {
		all.attributes[mixin.Name] = mixin.Attributes
		all.capacity[mixin.Name] = mixin.Capacity
	}
	for _, mixin := range m.DeviceCounterConsumption {
		all.consumptions[mixin.Name] = mixin.Counters
	}
	for _, mixin := range m.CounterSet {
		all.sets[mixin.Name] = mixin.Counters
	}
	return all
}

// flatten returns a device with the content of the included mixins instead of the includes.
func (p mixinParts) flatten(d Device) (Device, error) {
	flat := d
	flat.Includes, flat.ConsumesCounters = nil, nil
	var err error
	if flat.Attributes, err = layers(p.attributes, d.Includes, d.Attributes); err != nil {
		return d, err
	}
	if flat.Capacity, err = layers(p.capacity, d.Includes, d.Capacity); err != nil {
		return d, err
	}
	for _, c := range d.ConsumesCounters {
		if c.Counters, err = layers(p.consumptions, c.Includes, c.Counters); err != nil {
			return d, fmt.Errorf("its consumption of %s: %w", c.CounterSet, err)
		}
		c.Includes = nil
		flat.ConsumesCounters = append(flat.ConsumesCounters, c)
	}
	return flat, nil
}

// layers merges the included parts in order, and then the direct fields on top of them.
func layers[K comparable, V any](all parts[K, V], includes []string, direct map[K]V) (map[K]V, error) {
	if len(includes) == 0 {
		return direct, nil
	}
	flat := map[K]V{}
	for _, include := range includes {
		part, ok := all[include]
		if !ok {
			return nil, fmt.Errorf("the slice has no mixin %q", include)
		}
		maps.Copy(flat, part)
	}
	maps.Copy(flat, direct)
	if len(flat) == 0 {
		return nil, nil
	}
	return flat, nil
}
