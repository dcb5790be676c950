package policy

import (
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// personas returns the entries that a valid expose policy defines for a device: one entry, or two if the policy has
// both exclusive and shared plugins. All entries have the same attributes.
func personas(p *v1alpha1.DeviceExposurePolicy, attributes policyAttributes) []Persona {
	entries := withoutAttributes(p)
	for i := range entries {
		entries[i].AdditionalAttributes = maps.Clone(attributes.values)
		entries[i].AttributeSources = attributes.sources
	}
	return entries
}

// withoutAttributes returns the entries without their attributes. Exclusive and shared plugins get separate entries,
// since a single entry can be allocated either once or multiple times, but not both.
func withoutAttributes(p *v1alpha1.DeviceExposurePolicy) []Persona {
	e := p.Spec.Exposure
	if !e.AllowMultipleAllocations {
		return []Persona{persona(p, e.DeviceNameSuffix, true, e.SupportedCNIPlugins)}
	}
	var exclusive, shared []v1alpha1.CNIPlugin
	for _, plugin := range e.SupportedCNIPlugins {
		if plugin.Exclusive {
			exclusive = append(exclusive, plugin)
		} else {
			shared = append(shared, plugin)
		}
	}
	entries := []Persona{persona(p, e.DeviceNameSuffix, false, shared)}
	if len(exclusive) > 0 {
		entries = append(entries, persona(p, e.DeviceNameSuffix+v1alpha1.ExclusiveSuffix, true, exclusive))
	}
	return entries
}

func persona(p *v1alpha1.DeviceExposurePolicy, suffix string, exclusive bool, plugins []v1alpha1.CNIPlugin) Persona {
	e := p.Spec.Exposure
	entry := Persona{
		Suffix:     suffix,
		Policy:     p.Name,
		Exclusive:  exclusive,
		AllowInUse: exclusive && e.AllowInUse,
		Publish:    slices.Clone(e.Publish),
	}
	for _, plugin := range plugins {
		entry.Plugins = append(entry.Plugins, plugin.Name)
	}
	if exclusive {
		entry.LinkBandwidth = requestPolicy(e.LinkBandwidth, nil, v1alpha1.Bandwidth)
	} else {
		entry.ExclusionGroup = e.ExclusionGroup
		entry.ConsumePerAllocation = consumption(plugins)
	}
	for _, counter := range slices.Sorted(maps.Keys(e.Capacity)) {
		c := e.Capacity[counter]
		request := requestPolicy(c.RequestPolicy, entry.ConsumePerAllocation, counter)
		if exclusive && e.AllowMultipleAllocations {
			request = nil // the request policy is for shared plugins; exclusive plugins take the whole counter
		}
		entry.Capacity = append(entry.Capacity,
			Capacity{Name: counter, Value: *quantity(&c.Value), RequestPolicy: request})
	}
	return entry
}

// consumption returns the amounts that the plugins consume, by counter. In a valid policy, all plugins consume the same
// amounts.
func consumption(plugins []v1alpha1.CNIPlugin) map[string]resource.Quantity {
	amounts := map[string]resource.Quantity{}
	for _, plugin := range plugins {
		for counter, amount := range plugin.ConsumePerAllocation {
			amounts[counter] = amount.Quantity.DeepCopy()
		}
	}
	return amounts
}

// requestPolicy converts a request policy. The consumption per allocation replaces a missing default.
func requestPolicy(
	p *v1alpha1.RequestPolicy, consume map[string]resource.Quantity, counter string,
) *resourceapi.CapacityRequestPolicy {
	amount, consumed := consume[counter]
	if p == nil && !consumed {
		return nil
	}
	var translated resourceapi.CapacityRequestPolicy
	if p != nil {
		translated.Default = quantity(p.Default)
		for i := range p.ValidValues {
			translated.ValidValues = append(translated.ValidValues, *quantity(&p.ValidValues[i]))
		}
		if r := p.ValidRange; r != nil {
			translated.ValidRange = &resourceapi.CapacityRequestPolicyRange{Min: quantity(r.Min), Max: quantity(r.Max),
				Step: quantity(r.Step)}
		}
	}
	if translated.Default == nil && consumed {
		translated.Default = &amount
	}
	return &translated
}

func quantity(a *v1alpha1.Amount) *resource.Quantity {
	if a == nil {
		return nil
	}
	return new(a.Quantity.DeepCopy())
}
