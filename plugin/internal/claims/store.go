package claims

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

// These types are aliases because the journal's records are also served on the node socket.
type (
	// Record is the durable record of a prepared claim.
	Record = nodestate.ClaimRecord
	// Consumer is a pod that uses a claim.
	Consumer = nodestate.Consumer
	// HeldDevice is a device of a prepared claim.
	HeldDevice = nodestate.HeldDevice
)

// Store keeps the records in memory and in the journal. It is safe for concurrent use.
//
// A claim goes through three states. While Hold completes the claim's record, the record is in reserved, where it
// excludes other claims. If the process exits at this point, the record is lost, which is harmless because nothing has
// been done for the claim yet. Once the record is in the journal, it is also in byUID, which is used to respond to
// calls from the kubelet. Release deletes the record first from disk and then from byUID.
type Store struct {
	bucket *journal.Bucket[Record]

	mu    sync.Mutex
	byUID map[string]Record
	// reserved contains records that have not yet been completed and written to the journal. Like the records in byUID,
	// they exclude other claims.
	reserved map[string]Record
	// waiting contains, in the order of their requests, the claims whose devices are held by other claims. freed is
	// closed and replaced when a waiting claim may be able to continue.
	waiting []Record
	freed   chan struct{}
}

// Load creates a Store from the journal. It also returns the records that cannot be read.
func Load(db *journal.DB) (*Store, []journal.Damaged, error) {
	bucket, err := journal.NewBucket[Record](db, "claims")
	if err != nil {
		return nil, nil, err
	}
	records, damaged, err := bucket.All()
	if err != nil {
		return nil, nil, err
	}
	return &Store{bucket: bucket, byUID: records, reserved: map[string]Record{}, freed: make(chan struct{})},
		damaged, nil
}

// Get returns a record by claim UID.
func (c *Store) Get(uid string) (Record, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	record, found := c.byUID[uid]
	return record, found
}

// Hold writes a new record, unless another claim holds a device that excludes one of the new claim's devices. The check
// and the reservation are a single atomic step, so only one of two concurrent claims gets a device. Hold completes the
// record while the devices are reserved, and then writes the record to the journal.
//
// Hold does not wait until the record is on disk. This is safe: a claim is never attached without its record, and after
// a power loss, the kubelet prepares the claim again, since it does not remember prepared claims across restarts.
func (c *Store) Hold(record Record, complete func(*Record) error) error {
	if err := c.reserve(record); err != nil {
		return err
	}
	// Do not hold the lock here: complete reads baselines from the kernel, and other claims must be able to proceed in
	// the meantime.
	err := complete(&record)
	if err == nil {
		err = c.compareLinks(record)
	}
	if err == nil {
		err = c.bucket.Note(record.Claim.UID, record)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reserved, record.Claim.UID)
	switch {
	case err == nil:
		c.byUID[record.Claim.UID] = record
	case !c.isWaitingLocked(record.Claim.UID):
		// A waiting claim wakes other claims when it gives up, but not after each attempt. Otherwise, it would wake
		// itself repeatedly, and claims behind it in the queue would check again in vain.
		c.releasedLocked()
	}
	return err
}

// reserve reserves devices, capacity and addresses for a claim until it is recorded, or returns the conflict. The whole
// decision is made under one lock, so two concurrent claims cannot both find the same device free.
func (c *Store) reserve(record Record) error {
	if err := selfConflict(&record); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Waiting claims are not taken into account for addresses: no queue is needed for the last address, since a claim
	// that does not get its address is compiled again.
	ahead := c.aheadLocked(record.Claim.UID)
	for _, records := range []map[string]Record{c.byUID, c.reserved, ahead} {
		if holder, err := findConflict(&record, records); err != nil {
			return &conflictError{err, []Record{holder}}
		}
	}
	if err := capacityExceeded(&record, c.byUID, c.reserved, ahead); err != nil {
		return &conflictError{err, sharing(&record, c.byUID, ahead)}
	}
	if err := addressesExceeded(&record, c.byUID, c.reserved); err != nil {
		return err
	}
	c.reserved[record.Claim.UID] = record
	return nil
}

// compareLinks rejects a record, which must have its baselines, if another claim holds one of its links, or a link
// above or below one of them. If two claims are completed concurrently, the later one is compared with the baselines of
// the earlier one.
func (c *Store) compareLinks(record Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, records := range []map[string]Record{c.byUID, c.reserved} {
		if holder, err := findStacked(&record, records); err != nil {
			return &conflictError{err, []Record{holder}}
		}
	}
	c.reserved[record.Claim.UID] = record
	return nil
}

// TakenAddresses returns, by AddressBlock name, the number of addresses that claims use. A claim uses one address for
// each of its known pods, whether or not the pod is attached.
func (c *Store) TakenAddresses() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return takenAddresses("", c.byUID, c.reserved)
}

// Identity returns the identity of a physical device.
func Identity(device discovery.Device) string {
	return cmp.Or(string(device.PCIAddress), string(device.Name))
}

// Renew durably replaces a record with a record that has the same devices but new baselines. The caller must hold the
// claim's lock.
func (c *Store) Renew(record Record) error {
	if err := c.bucket.Put(record.Claim.UID, record); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byUID[record.Claim.UID] = record
	return nil
}

// Release removes a record, first from the disk and then from memory.
//
// After a crash between the two steps, no record exists, and the devices are in fact free. In the opposite order, the
// next claim could be held before the record is deleted, so two records on disk would contain the same device.
func (c *Store) Release(uid string) error {
	if err := c.bucket.Delete(uid); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byUID, uid)
	c.releasedLocked()
	return nil
}

// OfPod returns the records that list a pod as a consumer, in the order of the pod's resourceClaims.
func (c *Store) OfPod(podUID string) []Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []Record
	for _, record := range c.byUID {
		if _, uses := record.Position(podUID); uses {
			found = append(found, record)
		}
	}
	slices.SortFunc(found, func(a, b Record) int {
		left, _ := a.Position(podUID)
		right, _ := b.Position(podUID)
		return cmp.Or(cmp.Compare(left, right), cmp.Compare(a.Claim.UID, b.Claim.UID))
	})
	return found
}

// HasOthers reports whether a namespace contains prepared claims that have something to attach but were not prepared
// for the given pod. The pod may name them nevertheless.
func (c *Store) HasOthers(namespace, podUID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, record := range c.byUID {
		if record.Claim.Namespace != namespace || !record.Attaches() {
			continue
		}
		if _, uses := record.Position(podUID); !uses {
			return true
		}
	}
	return false
}

// Named returns the record of the claim with the given namespace and name.
func (c *Store) Named(namespace, name string) (Record, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, record := range c.byUID {
		if record.Claim.Namespace == namespace && record.Claim.Name == name {
			return record, true
		}
	}
	return Record{}, false
}

// ClaimedDevice is a device together with one of the claims that hold it. If the device is exclusive, no other claim
// holds it.
type ClaimedDevice struct {
	HeldDevice
	ClaimUID string
}

// Devices returns all published devices that claims hold, sorted and without duplicates.
func (c *Store) Devices() []ClaimedDevice {
	c.mu.Lock()
	defer c.mu.Unlock()
	byName := map[draslices.EntryID]ClaimedDevice{}
	for _, uid := range slices.Sorted(maps.Keys(c.byUID)) {
		for _, device := range c.byUID[uid].Devices {
			byName[draslices.EntryID{Pool: device.Pool, Name: device.Name}] = ClaimedDevice{device, uid}
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b ClaimedDevice) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
	})
}

// All returns a consistent snapshot of all records, sorted by UID.
func (c *Store) All() Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	records := make(Snapshot, 0, len(c.byUID))
	for _, uid := range slices.Sorted(maps.Keys(c.byUID)) {
		records = append(records, c.byUID[uid])
	}
	return records
}
