package nodeattributes

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// Apply returns the facts with the attributes from the files added to the devices. Each attribute comes from the most
// specific row: one that selects the device itself, or else one that selects its physical function, or else one for all
// devices. Among equally specific rows, the first row in the first file takes precedence. If another of these rows has
// a different value, Apply adds a problem to the facts. Apply does not modify its arguments.
func Apply(facts discovery.Facts, files []File) discovery.Facts {
	functions := map[discovery.PCIAddress]*discovery.Device{}
	for i := range facts.Devices {
		functions[facts.Devices[i].PCIAddress] = &facts.Devices[i]
	}
	facts.Problems = slices.Clone(facts.Problems)
	for _, list := range []*[]discovery.Device{&facts.Devices, &facts.Orphans} {
		*list = slices.Clone(*list)
		for i := range *list {
			d := &(*list)[i]
			pf := functions[d.PFAddress]
			if pf == nil || d.PFAddress == "" {
				pf = &discovery.Device{PCIAddress: d.PFAddress}
			}
			var conflicts []string
			d.Attributes, conflicts = attributesOf(d, pf, files)
			for _, message := range conflicts {
				facts.Problems = append(facts.Problems, discovery.Problem{Device: string(d.Name), Message: message})
			}
		}
	}
	return facts
}

// attributesOf returns the attributes that rows assign to a device, directly or through its physical function, and the
// conflicts between rows.
func attributesOf(
	d, pf *discovery.Device, files []File,
) (found map[resourceapi.QualifiedName]resourceapi.DeviceAttribute, conflicts []string) {
	found = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	for _, selects := range []func(*Row) bool{
		func(r *Row) bool { return r.selects(d) },
		func(r *Row) bool { return r.selects(pf) },
		func(r *Row) bool { return r.AllDevices },
	} {
		specific := maps.Clone(found) // from more specific rows
		sources := map[resourceapi.QualifiedName]string{}
		for _, file := range files {
			for i := range file.Devices {
				if !selects(&file.Devices[i]) {
					continue
				}
				for _, id := range slices.Sorted(maps.Keys(file.Devices[i].Attributes)) {
					v, name := file.Devices[i].Attributes[id], resourceapi.QualifiedName(id)
					value := resourceapi.DeviceAttribute{StringValue: v.String, IntValue: v.Int, BoolValue: v.Bool}
					first, taken := found[name]
					if _, overridden := specific[name]; overridden {
						continue
					}
					if !taken {
						found[name], sources[name] = value, file.Name
					} else if !reflect.DeepEqual(first, value) {
						conflicts = append(conflicts, fmt.Sprintf("cannot use another value of attribute %s from "+
							"attribute file %s: it has a value from %s; remove one of them", name, file.Name,
							sources[name]))
					}
				}
			}
		}
	}
	if len(found) == 0 {
		found = nil // the same value as without any files, for the journal and for comparisons
	}
	return found, conflicts
}
