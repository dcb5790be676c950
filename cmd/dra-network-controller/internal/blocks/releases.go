package blocks

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// releases are the released blocks that this process has seen. It is safe for concurrent use, and its zero value has
// seen none.
//
// The delay until a block is returned is counted here, by the time of one process, and begins again when another
// process takes over. A time in the object would be compared with the clock of whoever reads it: where that is ahead,
// or was set forward, addresses would be given to others while pods have them. Counting again is late at worst.
type releases struct {
	mu      sync.Mutex
	byRange map[string]map[string]release // by the names of the range and of the block
}

// release is the observation of a released block, by the time of the process.
type release struct {
	// uid is the block's: another one may get its name.
	uid types.UID
	// seen is when the block was first seen released, unused since when it was seen without use.
	seen, unused time.Duration
}

// observe notes the blocks of a range at a time, and returns for how long each released block was without use, by
// name. Blocks in use are missing.
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
