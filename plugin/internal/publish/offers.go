package publish

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// offers contains the devices that can currently be allocated to claims. It is safe for concurrent use.
type offers struct {
	mu sync.Mutex
	// entries maps IDs to entries, in which each Spec contains only the taints, since the rest of the Specs would
	// account for half of the driver's memory. The map is nil until the devices are known.
	entries map[draslices.EntryID]draslices.Entry
	failure error // why the devices are unknown
}

func (o *offers) set(computed []draslices.Entry) {
	entries := make(map[draslices.EntryID]draslices.Entry, len(computed))
	for _, entry := range computed {
		entry.Spec = resourceapi.Device{Taints: entry.Spec.Taints}
		entries[draslices.EntryID{Pool: entry.Pool, Name: entry.Name}] = entry
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.entries = entries
}

// fail records the reason why the devices could not be computed. The previous offers remain valid.
func (o *offers) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failure = err
}

// readiness returns the reason why the devices are still unknown, or nil if they are known.
func (o *offers) readiness() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.entries != nil:
		return nil
	case o.failure == nil:
		return errors.New("the node's devices are not known yet: the driver is starting")
	}
	return fmt.Errorf("the node's devices are not known yet: %w", o.failure)
}

func (o *offers) find(result *resourceapi.DeviceRequestAllocationResult) (draslices.Entry, error) {
	if err := o.readiness(); err != nil {
		return draslices.Entry{}, err
	}
	o.mu.Lock()
	entry, known := o.entries[draslices.EntryID{Pool: result.Pool, Name: result.Device}]
	o.mu.Unlock()
	if !known {
		return entry, fmt.Errorf("device %s of pool %s is no longer offered: its policy or the device itself no "+
			"longer exists; delete the claim to get another one allocated", result.Device, result.Pool)
	}
	if entry.Withdrawn { // its taint does not keep out pods that tolerate it
		return entry, fmt.Errorf("device %s of pool %s is no longer offered: no policy offers it in this way, and it "+
			"is listed only until the claims that hold it are released; delete the claim to get another one allocated",
			result.Device, result.Pool)
	}
	return entry, nil
}

func (o *offers) list() []draslices.Entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.SortedFunc(maps.Values(o.entries), func(a, b draslices.Entry) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
	})
}

// digestOf returns a digest of the resources. It encodes them slice by slice, since the encoder keeps a buffer that is
// as large as the largest encoded value.
func digestOf(resources resourceslice.DriverResources) (digest [sha256.Size]byte, err error) {
	hash := sha256.New()
	encoder := json.NewEncoder(hash)
	for _, name := range slices.Sorted(maps.Keys(resources.Pools)) {
		pool := resources.Pools[name]
		parts := pool.Slices
		pool.Slices = nil
		if err := errors.Join(encoder.Encode(name), encoder.Encode(pool)); err != nil {
			return digest, err
		}
		for i := range parts {
			if err := encoder.Encode(parts[i]); err != nil {
				return digest, err
			}
		}
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}
