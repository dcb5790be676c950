package publish

import (
	"cmp"
	"maps"
	"math"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
	"github.com/dra-networking/dra-network-driver/policy"
	policyapi "github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// claimedDevice returns the record of a device that was allocated to a claim, including the values that are passed to
// chains.
func claimedDevice(
	entry *draslices.Entry, result *resourceapi.DeviceRequestAllocationResult,
) (claims.HeldDevice, cnichain.Device) {
	persona, facts := &entry.Persona, &entry.Device
	held := claims.HeldDevice{
		Request: result.Request, Pool: result.Pool, Name: result.Device,
		ShareID: string(ptr.Deref(result.ShareID, "")), Exclusive: persona.Exclusive, Bandwidth: entry.Bandwidth,
		Facts: *facts, Persona: persona, Consumed: result.ConsumedCapacity,
	}
	attributes := plainAttributes(policy.PublishedWithAbsent(*facts, persona.Publish...))
	maps.Copy(attributes, plainAttributes(persona.AdditionalAttributes))
	maps.Copy(attributes, allocated(entry, result))
	return held, cnichain.Device{
		Pool: held.Pool, Name: held.Name, ShareID: held.ShareID, Request: held.Request, Exclusive: held.Exclusive,
		CNIs: persona.Plugins, IfName: string(facts.Interface), PCIAddress: string(facts.PCIAddress),
		AuxiliaryDevice: facts.AuxiliaryDevice, SharedFunction: facts.SharedFunction,
		PF: string(facts.PFAddress), Attributes: attributes, AllowInUse: persona.AllowInUse,
		NetworkResource: stringAttribute(persona, policyapi.AttributeResourceName),
		NetworkID: cmp.Or(stringAttribute(persona, policyapi.AttributeDeviceID), string(facts.PCIAddress),
			facts.AuxiliaryDevice, string(facts.Interface)),
	}
}

const bitsPerMbit = 1_000_000

// allocated returns the amounts of a device's counters that were allocated to a claim, for use in steps that enforce
// them. The keys have the form capacity.<counter>; the bandwidth is also available as capacity.bandwidth.bits, in bit/s
// instead of Mbit/s, and as bandwidth.
func allocated(entry *draslices.Entry, result *resourceapi.DeviceRequestAllocationResult) map[string]any {
	amounts := map[string]any{}
	if entry.Persona.Exclusive {
		for i := range entry.Persona.Capacity {
			c := &entry.Persona.Capacity[i]
			amounts["capacity."+c.Name] = c.Value.Value()
		}
	}
	for name, amount := range result.ConsumedCapacity {
		amounts["capacity."+bareName(string(name))] = amount.Value()
	}
	if entry.Bandwidth > 0 { // for a virtual function, whose entry may not have a capacity
		amounts["capacity."+policyapi.Bandwidth], amounts["bandwidth"] = entry.Bandwidth, entry.Bandwidth
	}
	if mbits, ok := amounts["capacity."+policyapi.Bandwidth].(int64); ok && mbits <= math.MaxInt64/bitsPerMbit {
		amounts["capacity."+policyapi.Bandwidth+".bits"] = mbits * bitsPerMbit
	}
	return amounts
}

// GiveBandwidth makes the bandwidth that a claim consumes from a link available to the step templates for the claim's
// function on that link, as if the function itself had a fixed amount (see allocated).
func GiveBandwidth(function, link *cnichain.Device) {
	const bandwidth = "capacity." + policyapi.Bandwidth
	for _, name := range []string{bandwidth, bandwidth + ".bits"} {
		if amount, known := link.Attributes[name]; known {
			function.Attributes[name] = amount
		}
	}
	function.Attributes["bandwidth"] = link.Attributes[bandwidth]
}

// stringAttribute returns a string attribute that a policy assigns to the device, or "" if it assigns none.
func stringAttribute(persona *policy.Persona, name resourceapi.QualifiedName) string {
	return ptr.Deref(persona.AdditionalAttributes[name].StringValue, "")
}

// Attributes returns the attributes of a published device, except the attributes that classes use to select its CNI
// plugins.
func Attributes(device *discovery.Device, persona *policy.Persona) policy.AttributeMap {
	attributes := policy.Published(*device, persona.Publish...)
	maps.Copy(attributes, persona.AdditionalAttributes)
	return attributes
}

// plainAttributes returns the attributes in the form used in templates. Attributes in the driver's domain have no
// domain prefix.
func plainAttributes(attributes policy.AttributeMap) map[string]any {
	plain := make(map[string]any, len(attributes))
	for name, attribute := range attributes {
		key := bareName(string(name))
		switch {
		case attribute.StringValue != nil:
			plain[key] = *attribute.StringValue
		case attribute.IntValue != nil:
			plain[key] = *attribute.IntValue
		case attribute.BoolValue != nil:
			plain[key] = *attribute.BoolValue
		case attribute.VersionValue != nil:
			plain[key] = *attribute.VersionValue
		}
	}
	return plain
}

func bareName(name string) string {
	const domain = v1alpha1.DriverName + "/"
	if len(name) > len(domain) && name[:len(domain)] == domain {
		return name[len(domain):]
	}
	return name
}
