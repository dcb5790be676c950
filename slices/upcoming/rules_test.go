package upcoming

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// These are the limits for one slice (KEP-5234).
const (
	maxDevices          = 128
	maxFields           = 4096 // attributes and capacities of all devices and mixins
	maxCounters         = 256  // in all counter sets and their mixins
	maxConsumedCounters = 2048 // in all consumptions and their mixins
	maxFieldsOfDevice   = 32   // including those from its mixins
)

// Validate checks slices for other tests: it returns all violations of the rules that the KEPs add to those of the API.
// It does not check references to counter sets, which may be in other slices of the pool.
func Validate(s Slice) field.ErrorList {
	var v validator
	if s.Mixins != nil {
		v.mixins(s.Mixins, field.NewPath("mixins"))
	}
	for i, set := range s.SharedCounters {
		v.counterSet(set, field.NewPath("sharedCounters").Index(i))
	}
	for i, d := range s.Devices {
		v.device(d, field.NewPath("devices").Index(i))
	}
	v.atMost(len(s.Devices), maxDevices, "devices")
	v.atMost(v.fields, maxFields, "devices")
	v.atMost(v.counters, maxCounters, "sharedCounters")
	v.atMost(v.consumed, maxConsumedCounters, "devices")
	if flat, err := Flatten(s); err == nil { // otherwise, the error was already reported above
		for i, d := range flat.Devices {
			if n := len(d.Attributes) + len(d.Capacity); n > maxFieldsOfDevice {
				v.add(field.TooMany(field.NewPath("devices").Index(i), n, maxFieldsOfDevice))
			}
		}
	}
	return v.errs
}

// validator collects errors and counts the fields of a slice.
type validator struct {
	errs field.ErrorList
	// fields counts attributes and capacities.
	fields, counters, consumed int
	// deviceMixins, consumptionMixins and setMixins contain the names of mixins.
	deviceMixins, consumptionMixins, setMixins sets.Set[string]
}

func (v *validator) add(errs ...*field.Error) { v.errs = append(v.errs, errs...) }

func (v *validator) atMost(n, limit int, where string) {
	if n > limit {
		v.add(field.TooMany(field.NewPath(where), n, limit))
	}
}

// mixins checks the mixins in a slice and records their names for checking the objects that include them. The fields of
// a mixin count toward the slice's limit only once, however many devices include it.
func (v *validator) mixins(m *Mixins, path *field.Path) {
	v.deviceMixins, v.consumptionMixins, v.setMixins = sets.New[string](), sets.New[string](), sets.New[string]()
	for i, mixin := range m.Device {
		v.mixinName(mixin.Name, v.deviceMixins, path.Child("device").Index(i))
		v.fields += len(mixin.Attributes) + len(mixin.Capacity)
	}
	for i, mixin := range m.DeviceCounterConsumption {
		location := path.Child("deviceCounterConsumption").Index(i)
		v.mixinName(mixin.Name, v.consumptionMixins, location)
		v.consumption(mixin.Counters, location)
	}
	for i, mixin := range m.CounterSet {
		location := path.Child("counterSet").Index(i)
		v.mixinName(mixin.Name, v.setMixins, location)
		v.totals(mixin.Counters, location)
	}
}

// mixinName checks that a name is a DNS label and is unique within its list.
func (v *validator) mixinName(name string, known sets.Set[string], path *field.Path) {
	path = path.Child("name")
	for _, reason := range validation.IsDNS1123Label(name) {
		v.add(field.Invalid(path, name, reason))
	}
	if known.Has(name) {
		v.add(field.Duplicate(path, name))
	}
	known.Insert(name)
}

// includes checks that all included mixins exist and that there are not too many includes.
func (v *validator) includes(includes []string, known sets.Set[string], path *field.Path) {
	path = path.Child("includes")
	if len(includes) > maxIncludes {
		v.add(field.TooMany(path, len(includes), maxIncludes))
	}
	for i, include := range includes {
		if !known.Has(include) {
			v.add(field.NotFound(path.Index(i), include))
		}
	}
}

func (v *validator) counterSet(set CounterSet, path *field.Path) {
	v.includes(set.Includes, v.setMixins, path)
	v.totals(set.Counters, path)
}

// totals checks the counters in a set.
func (v *validator) totals(counters map[string]Counter, path *field.Path) {
	v.counters += len(counters)
	for name, c := range counters {
		location := path.Child("counters").Key(name)
		if c.Value == nil {
			v.add(field.Required(location.Child("value"), "a counter of a set has a total"))
		}
		if c.ValueFrom != nil {
			v.add(field.Forbidden(location.Child("valueFrom"), "only what a device consumes can come from a claim"))
		}
	}
}

// device checks a device. The device's own attributes and capacities count toward the slice's limit.
func (v *validator) device(d Device, path *field.Path) {
	v.includes(d.Includes, v.deviceMixins, path)
	v.fields += len(d.Attributes) + len(d.Capacity)
	for i, c := range d.ConsumesCounters {
		location := path.Child("consumesCounters").Index(i)
		v.includes(c.Includes, v.consumptionMixins, location)
		v.consumption(c.Counters, location)
	}
}

// consumption checks a device's consumption from one set.
func (v *validator) consumption(counters map[string]Counter, path *field.Path) {
	v.consumed += len(counters)
	for name, c := range counters {
		location := path.Child("counters").Key(name)
		if (c.Value == nil) == (c.ValueFrom == nil) {
			v.add(field.Invalid(location, name, "the consumption of a device is either a value or from a claim"))
		}
		if c.RequestPolicy != nil {
			v.add(field.Forbidden(location.Child("requestPolicy"), "the counter of the set has the request policy"))
		}
		if c.ValueFrom != nil && c.ValueFrom.CapacityKey == "" {
			v.add(field.Required(location.Child("valueFrom", "capacityKey"),
				"the name of a capacity that claims request"))
		}
	}
}
