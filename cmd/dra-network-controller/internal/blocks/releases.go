package blocks

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// releases tracks the released blocks that this process has seen. It is safe for concurrent use. The zero value is
// empty.
//
// The delay until a block is returned is measured here, with the monotonic time of one process, and starts over when
// another process takes over. A timestamp in the object would be compared with another clock: if that clock were fast
// or set forward, addresses would be reassigned while pods still use them. Starting over can only delay the return of a
// block.
type releases struct {
	mu      sync.Mutex
	byRange map[string]map[string]release // by the names of the range and of the block
}

// release is the observed release of a block, in process time.
type release struct {
	// uid is the UID of the block, whose name may be reused.
	uid types.UID
	// seen is when the release was first observed; unused is when the current period without use began.
	seen, unused time.Duration
}

// observe records the state of a range's blocks, and returns how long each released block has been unused, by name. It
// omits blocks that are in use.
func (r *releases) observe(
	name string, blocks []v1alpha1.AddressBlock, now time.Duration,
	inUse func(block *v1alpha1.AddressBlock, since time.Duration) bool,
) map[string]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, after, unused := r.byRange[name], map[string]release{}, map[string]time.Duration{}
	for i := range blocks {
		block := &blocks[i]
		if block.Status.ReleasedAt == nil {
			continue
		}
		seen, known := before[block.Name]
		if !known || seen.uid != block.UID {
			seen = release{uid: block.UID, seen: now, unused: now}
		}
		if inUse(block, seen.seen) {
			seen.unused = now
		} else {
			unused[block.Name] = now - seen.unused
		}
		after[block.Name] = seen
	}
	if r.byRange == nil {
		r.byRange = map[string]map[string]release{}
	}
	if r.byRange[name] = after; len(after) == 0 {
		delete(r.byRange, name)
	}
	return unused
}
