package plugin

import (
	"maps"
	"reflect"
	"time"

	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/discovery"
)

// settleTime is how long an interface must have had its name before the name is kept: udev renames new ones.
const settleTime = 10 * time.Second

// memory keeps what must not change with every reading of the host: the names of PCI functions, under which claims hold
// them, and the speeds of links, which have none while they are down or on their way home. It is durable. Only one goroutine
// may use it.
type memory struct {
	bucket *journal.Bucket[remembered]
	clock  clock.PassiveClock
	kept   remembered
	// fresh has when an interface was first seen under its present name.
	fresh map[discovery.PCIAddress]sighting
}

// remembered is the durable part.
type remembered struct {
	// BootID is the boot in which it was written. Names last for one boot, so that a renamed interface is known by its new
	// name after the next; nothing but claims holds on to a name for longer.
	BootID string `json:"bootID"`
	// Names are those of physical functions and NICs.
	Names map[discovery.PCIAddress]discovery.IfName `json:"names"`
	// Speeds are in Mbit/s, by identity.
	Speeds map[string]int `json:"speeds"`
}

type sighting struct {
	name  discovery.IfName
	since time.Time
}

const memoryKey = "devices"

// loadMemory reads what an earlier driver has kept. What can't be read is forgotten and reported. Without a journal nothing
// outlives the process.
func loadMemory(db *journal.DB, bootID string, clock clock.PassiveClock) (*memory, []journal.Damaged, error) {
	m := &memory{clock: clock, fresh: map[discovery.PCIAddress]sighting{}}
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
		m.kept.BootID, m.kept.Names = bootID, nil
	}
	return m, damaged, nil
}

// recall returns facts of this moment under the names that are kept, and with the last speeds of links that have none.
func (m *memory) recall(facts discovery.Facts) discovery.Facts {
	facts = facts.Named(m.kept.Names)
	devices := make([]discovery.Device, len(facts.Devices))
	for i, device := range facts.Devices {
		if device.LinkSpeed == 0 {
			device.LinkSpeed = m.kept.Speeds[identity(device)]
		}
		devices[i] = device
	}
	facts.Devices = devices
	return facts
}

// keep remembers facts, durably before anybody else hears of them. Devices that are gone are forgotten.
func (m *memory) keep(facts discovery.Facts, inUse []discovery.Device) error {
	held := map[discovery.PCIAddress]bool{}
	for _, device := range inUse {
		held[device.PCIAddress], held[device.PFAddress] = true, true
	}
	now := remembered{BootID: m.kept.BootID, Names: map[discovery.PCIAddress]discovery.IfName{}, Speeds: map[string]int{}}
	maps.Copy(now.Names, m.kept.Names) // also of functions that are away: they may come back
	for i := range facts.Devices {
		device := &facts.Devices[i]
		if device.LinkSpeed > 0 {
			now.Speeds[identity(*device)] = device.LinkSpeed
		}
		if device.PCIAddress != "" && device.PFAddress == "" && (held[device.PCIAddress] || m.settled(device)) {
			now.Names[device.PCIAddress] = device.Name
		}
	}
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

// settled says whether a function has had its name for long enough.
func (m *memory) settled(device *discovery.Device) bool {
	seen, ok := m.fresh[device.PCIAddress]
	if !ok || seen.name != device.Name {
		seen = sighting{name: device.Name, since: m.clock.Now()}
		m.fresh[device.PCIAddress] = seen
	}
	return m.clock.Since(seen.since) >= settleTime
}
