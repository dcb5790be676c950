package plugin

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/dra-networking/dra-network-driver/cnichain/journal"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// The records of the journal are also served on the node socket.
type (
	// ClaimRecord is the durable record of a prepared claim.
	ClaimRecord = nodestate.ClaimRecord
	// Consumer is a pod that uses a claim.
	Consumer = nodestate.Consumer
	// HeldDevice is a device of a prepared claim.
	HeldDevice = nodestate.HeldDevice
)

// claims keeps the records in memory and in the journal. It is safe for concurrent use.
type claims struct {
	bucket *journal.Bucket[ClaimRecord]

	mu    sync.Mutex
	byUID map[string]ClaimRecord
	// reserved are records that are not complete and on disk yet; only reserve looks at them.
	reserved map[string]ClaimRecord
	// waiting are claims whose devices others have, in the order in which they came; freed is closed, and replaced,
	// when one of them may go on.
	waiting []ClaimRecord
	freed   chan struct{}
}

// loadClaims reads the journal. Records that can't be read are returned.
func loadClaims(db *journal.DB) (*claims, []journal.Damaged, error) {
	bucket, err := journal.NewBucket[ClaimRecord](db, "claims")
	if err != nil {
		return nil, nil, err
	}
	records, damaged, err := bucket.All()
	if err != nil {
		return nil, nil, err
	}
	return &claims{bucket: bucket, byUID: records, reserved: map[string]ClaimRecord{}, freed: make(chan struct{})},
		damaged, nil
}

// get returns a record by claim UID.
func (c *claims) get(uid string) (ClaimRecord, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	record, found := c.byUID[uid]
	return record, found
}

// hold writes a new record durably, unless a device of it is held by another claim that excludes it. The check and the
// reservation are one step, so that of two claims at once only one gets the device; the record is completed while
// nobody else can have the devices, and then the disk is written.
func (c *claims) hold(record ClaimRecord, complete func(*ClaimRecord) error) error {
	if err := c.reserve(record); err != nil {
		return err
	}
	err := complete(&record)
	if err == nil {
		err = c.bucket.Put(record.Claim.UID, record)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reserved, record.Claim.UID)
	if err == nil {
		c.byUID[record.Claim.UID] = record
	} else {
		c.releasedLocked()
	}
	return err
}

func (c *claims) reserve(record ClaimRecord) error {
	if err := selfConflict(&record); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := c.aheadLocked(record.Claim.UID)
	for _, records := range []map[string]ClaimRecord{c.byUID, c.reserved, ahead} {
		if holder, err := findConflict(&record, records); err != nil {
			return &conflictError{holders: []ClaimRecord{holder}, reason: err}
		}
	}
	if err := capacityExceeded(&record, c.byUID, c.reserved, ahead); err != nil {
		return &conflictError{holders: sharing(&record, c.byUID, ahead), reason: err}
	}
	c.reserved[record.Claim.UID] = record
	return nil
}

// identity tells physical devices apart.
func identity(device discovery.Device) string {
	return cmp.Or(string(device.PCIAddress), string(device.Name))
}

// release removes a record, durably first.
func (c *claims) release(uid string) error {
	if err := c.bucket.Delete(uid); err != nil {
		return err
	}
	c.forget(uid)
	return nil
}

func (c *claims) forget(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byUID, uid)
	c.releasedLocked()
}

// ofPod returns the records that name a pod as consumer, in the order of its resourceClaims.
func (c *claims) ofPod(podUID string) []ClaimRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []ClaimRecord
	for _, record := range c.byUID {
		if _, uses := record.Position(podUID); uses {
			found = append(found, record)
		}
	}
	slices.SortFunc(found, func(a, b ClaimRecord) int {
		left, _ := a.Position(podUID)
		right, _ := b.Position(podUID)
		return cmp.Or(cmp.Compare(left, right), cmp.Compare(a.Claim.UID, b.Claim.UID))
	})
	return found
}

// shareable says whether a namespace has prepared claims that pods may use which are not in any record.
func (c *claims) shareable(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, record := range c.byUID {
		if record.Shareable && record.Claim.Namespace == namespace {
			return true
		}
	}
	return false
}

// named returns the record of a claim by name.
func (c *claims) named(namespace, name string) (ClaimRecord, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, record := range c.byUID {
		if record.Claim.Namespace == namespace && record.Claim.Name == name {
			return record, true
		}
	}
	return ClaimRecord{}, false
}

// inUse returns the facts of held devices as they were when they were prepared, each device once, sorted; of those that
// which is true for.
func (c *claims) inUse(which func(HeldDevice) bool) []discovery.Device {
	c.mu.Lock()
	defer c.mu.Unlock()
	var devices []discovery.Device
	seen := map[string]bool{}
	for _, uid := range slices.Sorted(maps.Keys(c.byUID)) {
		for _, held := range c.byUID[uid].Devices {
			if which(held) && !seen[identity(held.Facts)] {
				seen[identity(held.Facts)] = true
				devices = append(devices, held.Facts)
			}
		}
	}
	return devices
}

// claimedDevice is a device with one of the claims that hold it: the only one, if it is exclusive.
type claimedDevice struct {
	HeldDevice
	claimUID string
}

// devices returns every published device that claims hold, each once, sorted.
func (c *claims) devices() []claimedDevice {
	c.mu.Lock()
	defer c.mu.Unlock()
	byName := map[draslices.EntryID]claimedDevice{}
	for _, uid := range slices.Sorted(maps.Keys(c.byUID)) {
		for _, device := range c.byUID[uid].Devices {
			byName[draslices.EntryID{Pool: device.Pool, Name: device.Name}] = claimedDevice{device, uid}
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b claimedDevice) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
	})
}

// holding adds what claims hold, as it was published when they were prepared.
func (c *claims) holding(held map[draslices.EntryID]draslices.Holding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(c.byUID)) {
		for _, device := range c.byUID[uid].Devices {
			id := draslices.EntryID{Pool: device.Pool, Name: device.Name}
			if device.Persona == nil && held[id].Persona != nil {
				continue // an earlier driver's record says less
			}
			held[id] = draslices.Holding{Device: device.Facts.Name, Bandwidth: device.Bandwidth,
				Persona: device.Persona}
		}
	}
}

// all returns every record, sorted by UID.
func (c *claims) all() []ClaimRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	records := make([]ClaimRecord, 0, len(c.byUID))
	for _, uid := range slices.Sorted(maps.Keys(c.byUID)) {
		records = append(records, c.byUID[uid])
	}
	return records
}
