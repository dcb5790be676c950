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
	// ReleaseWait is the maximum time that Prepare waits for devices that another claim is releasing. After a
	// rejection, the kubelet retries only after six seconds, and gives up on the call after 45 s.
	ReleaseWait = 12 * time.Second
	// NoticeWait is how long it waits although the holder's pod seems to exist: the kubelet may know of a deletion
	// before the driver's cache does. It is also the interval of further checks and evictions: if an eviction fails, no
	// other component retries it until the kubelet has ended the holder's containers.
	NoticeWait = time.Second
)

// conflictError is the error of a claim that cannot have its devices together with other claims.
type conflictError struct {
	holders []Record
	reason  error
}

func (e *conflictError) Error() string { return e.reason.Error() }

func (e *conflictError) Unwrap() error { return e.reason }

// Rivals are the claims that have the devices that another one wants.
type Rivals struct {
	// IsLeaving reports whether a claim is being released or is about to be; others are not waited for.
	IsLeaving func(*Record) bool
	// Evict begins to release a claim that no pod can have a right to any longer.
	Evict func(*Record)
}

// isClosed reports whether a channel that carries no values is closed.
func isClosed(signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	default:
		return false
	}
}

// HoldWhenFree is like Hold for a claim whose devices other claims may be releasing: it waits for them, woken by each
// release. Claims that need the same devices get them in the order of their requests.
func (c *Store) HoldWhenFree(
	ctx context.Context, clock clock.Clock, record Record, rivals Rivals, complete func(*Record) error,
) error {
	err := c.Hold(record, complete)
	if conflict := (*conflictError)(nil); !errors.As(err, &conflict) {
		return err
	}
	// It was tried once without the queue: most claims conflict with none, and need no place in it.
	leave := c.enqueue(record)
	defer leave()
	notice, limit := clock.NewTimer(NoticeWait), clock.NewTimer(ReleaseWait)
	defer notice.Stop()
	defer limit.Stop()
	for {
		// Before Hold: a release that comes between Hold and the wait has closed this channel already.
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
			// A release may end between Hold and this check: the claim is then no longer leaving, but freed is closed.
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

// sharing are the claims that have a device of one.
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

// CountWaiting is how many claims wait for devices that others have.
func (c *Store) CountWaiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// enqueue makes a claim wait before all that come later.
func (c *Store) enqueue(record Record) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, record)
	// Those behind it looked at this claim as at a holder. Whether it has its devices now or gave up, they have to look
	// again.
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting = slices.DeleteFunc(c.waiting,
			func(other Record) bool { return other.Claim.UID == record.Claim.UID })
		c.releasedLocked()
	}
}

// aheadLocked are the claims that have waited for longer than a claim, or all that wait if it does not.
//
// A claim that came first would wait forever if those behind it took each device that becomes free: one wants the whole
// physical function, and others its virtual functions one after another. One that has got its devices meanwhile counts
// as their holder, and not as waiting too.
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

// Wake lets waiting claims check again: the pod of the claim that they wait for may be gone.
func (c *Store) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releasedLocked()
}

// nextRelease is closed when a claim may have become free to be held.
func (c *Store) nextRelease() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.freed
}

func (c *Store) releasedLocked() {
	close(c.freed)
	c.freed = make(chan struct{})
}

// IsRecordOf reports whether the record is of the allocation that a claim has now. A claim keeps its UID when it is
// deallocated and allocated again.
func IsRecordOf(r *Record, claim *resourceapi.ResourceClaim) bool {
	type device struct{ request, pool, name, shareID string }
	count := map[device]int{}
	for _, held := range r.Devices {
		count[device{held.Request, held.Pool, held.Name, held.ShareID}]++
	}
	devices, err := claimspec.Devices(claim)
	if err != nil {
		return true // refused as ever, but what is attached stays
	}
	for _, result := range devices {
		count[device{result.Request, result.Pool, result.Device, string(ptr.Deref(result.ShareID, ""))}]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}
