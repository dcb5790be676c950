package simulate

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// short returns which of the required devices are held by claims, and which counters are too low given all allocated
// claims. It only illustrates the allocator's decision: even if it finds nothing, the refusal names the claims in the
// way.
func (s *Simulator) short(results []resourceapi.AllocationResult, inTheWay []*resourceapi.ResourceClaim) []string {
	var texts []string
	wanted := map[deviceKey]bool{}
	for i := range results {
		for _, result := range results[i].Devices.Results {
			key := keyOf(&result)
			wanted[key] = true
			for _, claim := range inTheWay {
				// The method capacities covers shared devices.
				holds := result.ShareID == nil && slices.ContainsFunc(claim.Status.Allocation.Devices.Results,
					func(r resourceapi.DeviceRequestAllocationResult) bool { return keyOf(&r) == key })
				if holds {
					texts = append(texts, fmt.Sprintf("device %s of pool %s is held by claim %s/%s", key.name, key.pool,
						claim.Namespace, claim.Name))
				}
			}
		}
	}
	held := map[deviceKey]bool{}
	for _, claim := range s.cluster.Claims {
		for _, result := range claim.Status.Allocation.Devices.Results {
			held[keyOf(&result)] = true
		}
	}
	texts = append(texts, s.capacities(results)...)
	texts = append(texts, s.counters(wanted, held)...)
	slices.Sort(texts)
	return slices.Compact(texts)
}

// capacities describes the shared devices whose remaining capacity is too low, and the claims that hold the rest.
func (s *Simulator) capacities(results []resourceapi.AllocationResult) []string {
	asked := map[deviceKey]map[resourceapi.QualifiedName]resource.Quantity{}
	for i := range results {
		for _, result := range results[i].Devices.Results {
			addAmounts(asked, keyOf(&result), result.ConsumedCapacity)
		}
	}
	used, holders := map[deviceKey]map[resourceapi.QualifiedName]resource.Quantity{}, map[deviceKey][]string{}
	for _, claim := range s.cluster.Claims {
		for _, result := range claim.Status.Allocation.Devices.Results {
			addAmounts(used, keyOf(&result), result.ConsumedCapacity)
			holders[keyOf(&result)] = append(holders[keyOf(&result)], claim.Namespace+"/"+claim.Name)
		}
	}
	var texts []string
	for _, slice := range s.cluster.Slices {
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			key := deviceKey{slice.Spec.Driver, slice.Spec.Pool.Name, d.Name}
			for name, amount := range asked[key] {
				all := d.Capacity[name].Value
				left := all.DeepCopy()
				left.Sub(used[key][name])
				if amount.Cmp(left) <= 0 {
					continue
				}
				slices.Sort(holders[key])
				texts = append(texts,
					fmt.Sprintf("device %s of pool %s has %s of %s %s left, and %s is requested; held by %s",
						key.name, key.pool, left.String(), all.String(), bareName(name), amount.String(),
						strings.Join(slices.Compact(holders[key]), ", ")))
			}
		}
	}
	return texts
}

// addAmounts adds amounts to the sums for one device.
func addAmounts(
	sums map[deviceKey]map[resourceapi.QualifiedName]resource.Quantity, key deviceKey,
	amounts map[resourceapi.QualifiedName]resource.Quantity,
) {
	if sums[key] == nil {
		sums[key] = map[resourceapi.QualifiedName]resource.Quantity{}
	}
	for name, amount := range amounts {
		sum := sums[key][name]
		sum.Add(amount)
		sums[key][name] = sum
	}
}

// bareName returns the name of a capacity without its domain.
func bareName(name resourceapi.QualifiedName) string {
	if _, bare, found := strings.Cut(string(name), "/"); found {
		return bare
	}
	return string(name)
}

type deviceKey struct{ driver, pool, name string }

func keyOf(result *resourceapi.DeviceRequestAllocationResult) deviceKey {
	return deviceKey{result.Driver, result.Pool, result.Device}
}

type counterKey struct{ driver, pool, set, name string }

// counters describes the counters whose remaining value is too low for the wanted devices. A shared device consumes its
// counters only once, so a wanted device that is already held adds nothing to the demand.
func (s *Simulator) counters(wanted, held map[deviceKey]bool) []string {
	total, used, needed := map[counterKey]resource.Quantity{}, map[counterKey]resource.Quantity{},
		map[counterKey]resource.Quantity{}
	for _, slice := range s.cluster.Slices {
		spec := &slice.Spec
		for _, set := range spec.SharedCounters {
			for name, counter := range set.Counters {
				total[counterKey{spec.Driver, spec.Pool.Name, set.Name, name}] = counter.Value
			}
		}
		for _, d := range spec.Devices {
			key := deviceKey{spec.Driver, spec.Pool.Name, d.Name}
			sums := needed
			switch {
			case held[key]:
				sums = used
			case !wanted[key]:
				continue
			}
			for _, consumption := range d.ConsumesCounters {
				for name, counter := range consumption.Counters {
					key := counterKey{spec.Driver, spec.Pool.Name, consumption.CounterSet, name}
					sum := sums[key]
					sum.Add(counter.Value)
					sums[key] = sum
				}
			}
		}
	}
	var texts []string
	for key, amount := range needed {
		left := total[key].DeepCopy()
		left.Sub(used[key])
		if amount.Cmp(left) > 0 {
			all := total[key]
			texts = append(texts, fmt.Sprintf("counter %s of %s in pool %s has %s of %s left, and %s is needed",
				key.name, key.set, key.pool, left.String(), all.String(), amount.String()))
		}
	}
	return texts
}
