package claims

import (
	"context"
	"errors"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/dra-networking/dra-network-driver/cnichain/claimspec"
)

const (
	// ReleaseWait is the maximum time that Prepare waits for devices that another claim is releasing. If Prepare
	// rejects the claim, the kubelet retries only after six seconds; it gives up on a call after 45 s.
	ReleaseWait = 12 * time.Second
	// NoticeWait is how long Prepare waits even if the holder's pod still appears to exist: the kubelet may be notified
	// of a deletion before the driver's cache is updated. It is also the interval between further checks and evictions:
	// if an eviction fails, no other component retries it until the kubelet has stopped the holder's containers.
	NoticeWait = time.Second
)

// conflictError is the error for a claim whose devices cannot be held because other claims hold conflicting devices.
type conflictError struct {
	error
	holders []Record
}

// Unwrap returns the reason.
func (e *conflictError) Unwrap() error { return e.error }

// Rivals contains the callbacks that decide about claims that hold a waiting claim's devices.
type Rivals struct {
	// IsLeaving reports whether a claim is being released or soon will be. Prepare waits only for such claims.
	IsLeaving func(*Record) bool
	// Evict starts releasing a claim that no pod is entitled to anymore.
	Evict func(*Record)
}

func isClosed(signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	default:
		return false
	}
}

// HoldWhenFree is like Hold, but waits while other claims are releasing the devices. It checks again after each
// release. If several claims need the same devices, they are served in the order of their requests.
func (c *Store) HoldWhenFree(
	ctx context.Context, clock clock.Clock, record Record, rivals Rivals, complete func(*Record) error,
) error {
	err := c.Hold(record, complete)
	if conflict := (*conflictError)(nil); !errors.As(err, &conflict) {
		return err
	}
	// The first attempt has already been made without the queue, since most claims have no conflict and do not need to
	// be queued.
	leave := c.enqueue(record)
	defer leave()
	notice, limit := clock.NewTimer(NoticeWait), clock.NewTimer(ReleaseWait)
	defer notice.Stop()
	defer limit.Stop()
	for {
		// Get the channel before calling Hold, so that a release between Hold and the wait closes this channel.
		freed := c.nextRelease()
		err := c.Hold(record, complete)
		conflict := (*conflictError)(nil)
		if !errors.As(err, &conflict) {
			return err
		}
		for i := range conflict.holders {
			rivals.Evict(&conflict.holders[i])
		}
		leaving := func(holder Record) bool { return rivals.IsLeaving(&holder) }
		select {
		case <-freed:
		case <-notice.C():
			// A release may complete between Hold and this check. The holder is then no longer leaving, but freed is
			// closed.
			if !slices.ContainsFunc(conflict.holders, leaving) && !isClosed(freed) {
				return err
			}
			notice.Reset(NoticeWait)
		case <-limit.C():
			return err
		case <-ctx.Done():
			return err
		}
	}
}

func sharing(record *Record, records ...map[string]Record) []Record {
	var found []Record
	for _, byUID := range records {
		for uid, other := range byUID {
			shares := slices.ContainsFunc(other.Devices, func(held HeldDevice) bool {
				return slices.ContainsFunc(record.Devices, func(wanted HeldDevice) bool {
					return wanted.Pool == held.Pool && wanted.Name == held.Name
				})
			})
			if shares && uid != record.Claim.UID {
				found = append(found, other)
			}
		}
	}
	return found
}

// CountWaiting returns the number of claims that are waiting for devices held by other claims.
func (c *Store) CountWaiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// enqueue appends a claim to the queue of waiting claims. leave removes it.
func (c *Store) enqueue(record Record) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, record)
	// Claims behind this one in the queue have treated it as a holder, so they must check again, whether this claim got
	// its devices or gave up.
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting = slices.DeleteFunc(c.waiting, func(other Record) bool { return other.Claim.UID == record.Claim.UID })
		c.releasedLocked()
	}
}

// aheadLocked returns the claims that have been waiting longer than the given claim, or all waiting claims if the claim
// is not waiting.
//
// Without this order, a claim for a whole physical function could wait forever while later claims take each virtual
// function that becomes free. A waiting claim that already holds its devices or has reserved them is omitted, since it
// is treated as a holder anyway.
func (c *Store) aheadLocked(uid string) map[string]Record {
	ahead := map[string]Record{}
	for _, other := range c.waiting {
		if other.Claim.UID == uid {
			break
		}
		_, held := c.byUID[other.Claim.UID]
		_, reserved := c.reserved[other.Claim.UID]
		if !held && !reserved {
			ahead[other.Claim.UID] = other
		}
	}
	return ahead
}

func (c *Store) isWaitingLocked(uid string) bool {
	return slices.ContainsFunc(c.waiting, func(other Record) bool { return other.Claim.UID == uid })
}

// Wake makes waiting claims check again: a pod whose claim they are waiting for may no longer exist.
func (c *Store) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releasedLocked()
}

// nextRelease returns a channel that is closed as soon as a waiting claim may be able to get its devices.
func (c *Store) nextRelease() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.freed
}

func (c *Store) releasedLocked() {
	close(c.freed)
	c.freed = make(chan struct{})
}

// IsRecordOf reports whether a record belongs to the current allocation of a claim. A claim keeps its UID when it is
// deallocated and allocated again.
func IsRecordOf(r *Record, claim *resourceapi.ResourceClaim) bool {
	type device struct{ request, pool, name, shareID string }
	count := map[device]int{}
	for _, held := range r.Devices {
		count[device{held.Request, held.Pool, held.Name, held.ShareID}]++
	}
	devices, err := claimspec.Devices(claim)
	if err != nil {
		return true // Prepare rejects the claim, but attached devices stay
	}
	results := claimspec.Bandwidths(claim)
	for i := range devices {
		results = append(results, devices[i].DeviceRequestAllocationResult)
	}
	for _, result := range results {
		count[device{result.Request, result.Pool, result.Device, string(ptr.Deref(result.ShareID, ""))}]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}
