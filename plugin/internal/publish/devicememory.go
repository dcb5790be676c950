package publish

import (
	"maps"
	"reflect"
	"time"

	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/internal/claims"
)

// settleTime is how long an interface must have had its name before the name is stored, because udev renames new
// interfaces.
const settleTime = 10 * time.Second

// deviceMemory stores values that must not change with every scan of the host: the names of PCI functions, because
// claims refer to them, and the speeds of links, because a link that is down or returning to the host reports none. It
// is persistent. It is not safe for concurrent use.
//
// For example, if eth2 is renamed to lan0, it is published as eth2 until the next boot, because claims may refer to
// that name.
type deviceMemory struct {
	bucket *journal.Bucket[remembered]
	clock  clock.PassiveClock
	kept   remembered
	// fresh records when an interface was first seen with its current name.
	fresh map[discovery.PCIAddress]sighting
}

type remembered struct {
	// BootID identifies the boot when the memory was written. Names are valid for one boot, so a renamed interface is
	// published under its new name after a reboot; only claims keep a name for longer.
	BootID string `json:"bootID"`
	// Names contains the published names of physical functions and NICs.
	Names map[discovery.PCIAddress]discovery.IfName `json:"names"`
	// Speeds maps the identities of hardware links, and of links on top of them, to their speeds in Mbit/s. The speeds
	// of pod links are not stored, since every pod would cause a write.
	Speeds map[string]int `json:"speeds"`
	// Lost contains the identities of the links that have lost their carrier, in sorted order.
	Lost []string `json:"lost,omitempty"`
}

type sighting struct {
	name  discovery.IfName
	since time.Time
}

const memoryKey = "devices"

// loadDeviceMemory reads the memory stored by the previous driver process. It skips unreadable parts and returns them.
// Without a journal, the memory is lost when the process exits.
func loadDeviceMemory(
	db *journal.DB, bootID string, clock clock.PassiveClock,
) (*deviceMemory, []journal.Damaged, error) {
	m := &deviceMemory{clock: clock, fresh: map[discovery.PCIAddress]sighting{}}
	var damaged []journal.Damaged
	if db != nil {
		bucket, err := journal.NewBucket[remembered](db, "node")
		if err != nil {
			return nil, nil, err
		}
		records, unreadable, err := bucket.All()
		if err != nil {
			return nil, nil, err
		}
		m.bucket, m.kept, damaged = bucket, records[memoryKey], unreadable
	}
	if m.kept.BootID != bootID {
		m.kept.BootID, m.kept.Names, m.kept.Lost = bootID, nil, nil
	}
	return m, damaged, nil
}

// restore returns a copy of facts in which devices have their stored names, or the names under which claims hold them,
// and links that report no speed have their last known speed.
func (m *deviceMemory) restore(facts discovery.Facts, inUse ...discovery.Device) discovery.Facts {
	names := map[discovery.PCIAddress]discovery.IfName{}
	maps.Copy(names, m.kept.Names)
	for _, device := range inUse {
		if device.PFAddress != "" && device.PFName != "" {
			names[device.PFAddress] = device.PFName
		} else if device.PCIAddress != "" {
			names[device.PCIAddress] = device.Name
		}
	}
	facts = facts.Named(names)
	devices := make([]discovery.Device, len(facts.Devices))
	for i, device := range facts.Devices {
		if device.LinkSpeed == 0 {
			device.LinkSpeed = m.kept.Speeds[claims.Identity(device)]
		}
		devices[i] = device
	}
	facts.Devices = devices
	return facts
}

// keep durably stores the names and speeds in facts, and the list of links that have lost their carrier, before any
// other component uses them. It drops the speeds of devices that no longer exist.
func (m *deviceMemory) keep(facts discovery.Facts, inUse []discovery.Device, lost []string) error {
	held := map[discovery.PCIAddress]bool{}
	for _, device := range inUse {
		held[device.PCIAddress], held[device.PFAddress] = true, true
	}
	m.forgetFresh(facts)
	now := remembered{BootID: m.kept.BootID, Lost: lost, Names: map[discovery.PCIAddress]discovery.IfName{},
		Speeds: map[string]int{}}
	maps.Copy(now.Names, m.kept.Names) // including functions that are currently missing, since they may return
	for i := range facts.Devices {
		device := &facts.Devices[i]
		if device.LinkSpeed > 0 && (carriesCable(device.Type) || device.Type == discovery.TypeVF) {
			now.Speeds[claims.Identity(*device)] = device.LinkSpeed
		}
		// A function without an interface has only its address as its name.
		if device.PCIAddress != "" && device.PFAddress == "" &&
			(held[device.PCIAddress] || device.Interface != "" && m.settled(device)) {
			now.Names[device.PCIAddress] = device.Name
		}
	}
	// The host is read for every pod, so write to the disk only if something has changed.
	if reflect.DeepEqual(now, m.kept) {
		return nil
	}
	if m.bucket != nil {
		if err := m.bucket.Put(memoryKey, now); err != nil {
			return err
		}
	}
	m.kept = now
	return nil
}

// forgetFresh removes missing interfaces from fresh: if an interface returns, its name must settle again.
func (m *deviceMemory) forgetFresh(facts discovery.Facts) {
	present := map[discovery.PCIAddress]bool{}
	for i := range facts.Devices {
		present[facts.Devices[i].PCIAddress] = true
	}
	maps.DeleteFunc(m.fresh, func(address discovery.PCIAddress, _ sighting) bool { return !present[address] })
}

// retryAfter returns the time until the next name may be considered settled, or 0 if no name is pending.
func (m *deviceMemory) retryAfter() time.Duration {
	var soonest time.Duration
	for address, seen := range m.fresh {
		if _, kept := m.kept.Names[address]; kept {
			continue
		}
		if left := max(settleTime-m.clock.Since(seen.since), time.Millisecond); soonest == 0 || left < soonest {
			soonest = left
		}
	}
	return soonest
}

func (m *deviceMemory) settled(device *discovery.Device) bool {
	seen, ok := m.fresh[device.PCIAddress]
	if !ok || seen.name != device.Name {
		seen = sighting{name: device.Name, since: m.clock.Now()}
		m.fresh[device.PCIAddress] = seen
	}
	return m.clock.Since(seen.since) >= settleTime
}
