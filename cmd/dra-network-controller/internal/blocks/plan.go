package blocks

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// defaultReturnDelay matches the default in the CRD. It applies to ranges that no longer exist.
const defaultReturnDelay = time.Hour

// recheck is the delay after which a block that may be in use is checked again, and the minimum value of Changes.Next.
const recheck = 30 * time.Second

// Node contains those properties of a node that a plan depends on.
type Node struct {
	UID types.UID
	// Selected reports whether the range's nodeSelector matches the node.
	Selected bool
}

// State is the complete input for a plan. It is read from caches and may be outdated. Plan does not need to account for
// this: where outdated input could do harm, either the API server rejects the change, or the reconciler verifies it
// with the API server.
type State struct {
	// Range is the range that the plan is made for. If it no longer exists, only its name and a deletion timestamp are
	// set.
	Range *v1alpha1.AddressRange
	// Addresses is the parsed range, or nil if the range is invalid and therefore assigns no blocks.
	Addresses *addresses.Range
	// Nodes are the nodes in the cluster, by name.
	Nodes map[string]Node
	// Blocks are the range's existing blocks.
	Blocks []v1alpha1.AddressBlock
	// Demand maps node names to the number of addresses used by the claims on the node.
	Demand map[string]int
	// Shared lists, for each node that has a claim for several pods, the node's claims, oldest first. A claim for
	// several pods must use a single block.
	Shared map[string][]Claim
	// Unused maps the name of each released block to the time for which this process has observed the block as unused.
	// It omits blocks that pods may still be using.
	Unused map[string]time.Duration
	// Now is the time that is written to objects for users to read. No decision depends on it.
	Now time.Time
}

// Changes are the actions in a plan. Objects are complete and ready to be written or deleted. Reconciler.carryOut
// defines the order of the actions. A block appears in at most one of the lists.
type Changes struct {
	Create, Update []v1alpha1.AddressBlock
	// Release contains blocks whose node or range no longer exists, with the release time in their status.
	Release []v1alpha1.AddressBlock
	// Return contains blocks that may now be assigned to other nodes.
	Return []v1alpha1.AddressBlock
	// Without lists the nodes that have no block because none is free. Short lists the nodes that need another block.
	// Both are sorted.
	Without, Short []string
	// Next is the time until the next block may be returned; 0 means never.
	Next time.Duration
}

// Plan decides which blocks to create, release and return. It always assigns the lowest free number, so that a
// controller with an outdated cache gets a conflict and retries, instead of assigning a second block to a node.
//
// It has these phases: it decides what to do with each existing block; it assigns a first block to every selected node,
// in name order, before any node gets a second one; it assigns further blocks according to demand; and it assigns
// blocks for claims that are shared by several pods, since each of these claims needs one block with enough room for
// all of its pods.
func Plan(s State) Changes {
	var c Changes
	for i := range s.Blocks {
		c.keep(&s, &s.Blocks[i])
	}
	// Blocks from an invalid range stay assigned to their nodes, since pods may be using them. No blocks are assigned
	// from an invalid or deleted range.
	if s.Addresses == nil || s.Range.DeletionTimestamp != nil {
		return c
	}
	free := newFreeBlocks(&s)
	assign := func(name string, least int) bool {
		spec, found := free.next(least)
		if found {
			spec.NodeName, spec.NodeUID = name, s.Nodes[name].UID
			c.Create = append(c.Create, v1alpha1.AddressBlock{
				ObjectMeta: metav1.ObjectMeta{Name: addresses.Name(s.Range.Name, spec.Index)}, Spec: spec})
		}
		return found
	}
	capacity := capacities(&s)
	names := slices.Sorted(maps.Keys(s.Nodes))
	for _, name := range names { // before any node gets a second one
		if _, has := capacity[name]; has || !s.Nodes[name].Selected {
			continue
		}
		if !assign(name, 1) {
			c.Without = append(c.Without, name)
			continue
		}
		capacity[name] = size(&c.Create[len(c.Create)-1])
	}
	for _, name := range names {
		for has, owns := capacity[name]; owns && has < s.Demand[name]+spare(s.Range); {
			if !assign(name, 1) {
				c.Short = append(c.Short, name)
				break
			}
			has += size(&c.Create[len(c.Create)-1])
		}
	}
	// Do this last: a claim needs all of its addresses in one block, so it is not enough for the blocks to have enough
	// free addresses in total. Each round assigns a block, so the loop ends when all claims fit or when the range has
	// no blocks left.
	for _, name := range slices.Sorted(maps.Keys(s.Shared)) {
		if _, owns := capacity[name]; !owns || slices.Contains(c.Short, name) {
			continue
		}
		for least := c.shortage(&s, name); least > 0; least = c.shortage(&s, name) {
			if !assign(name, least) {
				c.Short = append(c.Short, name)
				break
			}
		}
	}
	slices.Sort(c.Short)
	return c
}

// keep decides what to do with an existing block.
//
// A node that is no longer selected by the range's nodeSelector keeps its blocks, and gets further blocks while its
// claims need them, because its pods have addresses from the range.
func (c *Changes) keep(s *State, block *v1alpha1.AddressBlock) {
	switch {
	case block.DeletionTimestamp != nil:
	case block.Status.ReleasedAt != nil:
		unused, isUnused := s.Unused[block.Name]
		rest := returnDelay(s.Range) - unused
		if isUnused && rest <= 0 {
			c.Return = append(c.Return, *block)
			return
		}
		if !isUnused { // deleting a claim that uses the block does not trigger a reconciliation of the range
			rest = recheck
		}
		if next := max(rest, recheck); c.Next == 0 || next < c.Next {
			c.Next = next
		}
	case s.Nodes[block.Spec.NodeName].UID != block.Spec.NodeUID,
		s.Range.DeletionTimestamp != nil && s.Demand[block.Spec.NodeName] == 0:
		released := block.DeepCopy()
		released.Status.ReleasedAt = &metav1.Time{Time: s.Now}
		c.Release = append(c.Release, *released)
	case s.Addresses != nil:
		if updated := current(s, block); updated != nil {
			c.Update = append(c.Update, *updated)
		}
	}
}

// current returns the block updated with the range's current exclusions, or nil if nothing has changed or if the block
// does not belong to the current range. A block's networks never change, because its node's driver has assigned
// addresses from them.
func current(s *State, block *v1alpha1.AddressBlock) *v1alpha1.AddressBlock {
	if int(block.Spec.Index) >= s.Addresses.Count() {
		return nil
	}
	spec := s.Addresses.Spec(s.Range.Name, int(block.Spec.Index))
	spec.NodeName, spec.NodeUID = block.Spec.NodeName, block.Spec.NodeUID
	if !slices.Equal(spec.CIDRs, block.Spec.CIDRs) || equality.Semantic.DeepEqual(spec, block.Spec) {
		return nil
	}
	updated := block.DeepCopy()
	updated.Spec = spec
	return updated
}

// capacities returns the number of addresses in each node's blocks. It ignores released blocks and blocks that belong
// to an earlier node with the same name.
func capacities(s *State) map[string]int {
	capacity := map[string]int{}
	for i := range s.Blocks {
		block := &s.Blocks[i]
		if s.Nodes[block.Spec.NodeName].UID == block.Spec.NodeUID && block.Status.ReleasedAt == nil &&
			block.DeletionTimestamp == nil {
			capacity[block.Spec.NodeName] += size(block)
		}
	}
	return capacity
}

// size returns the number of pods that can get addresses from a block, or 0 if the block is invalid.
func size(block *v1alpha1.AddressBlock) int {
	parsed, err := addresses.ParseBlock(block)
	if err != nil {
		return 0
	}
	return parsed.Size
}

// spare returns the number of free addresses that a node should have in reserve. The reserve covers claims that are
// allocated before a new block reaches the driver.
func spare(r *v1alpha1.AddressRange) int { return max(1, int(r.Spec.BlockSize)/4) }

func returnDelay(r *v1alpha1.AddressRange) time.Duration {
	if r.Spec.ReturnDelay == nil {
		return defaultReturnDelay
	}
	return r.Spec.ReturnDelay.Duration
}

type freeBlocks struct {
	state *State
	taken map[int]bool
	// odd contains blocks that do not belong to the current range, because the range was force-deleted and recreated
	// with different blocks.
	odd []*v1alpha1.AddressBlockSpec
	// index is a lower bound for the free block numbers.
	index int
}

// newFreeBlocks records which block numbers are taken, and which blocks are odd: those with networks that the current
// range would not create, because its cidrs or blockSize have changed. Odd blocks stay assigned, so new blocks must not
// contain any of their addresses.
func newFreeBlocks(s *State) *freeBlocks {
	f := &freeBlocks{state: s, taken: map[int]bool{}}
	for i := range s.Blocks {
		spec := &s.Blocks[i].Spec
		f.taken[int(spec.Index)] = true
		if int(spec.Index) >= s.Addresses.Count() ||
			!slices.Equal(s.Addresses.Spec(s.Range.Name, int(spec.Index)).CIDRs, spec.CIDRs) {
			f.odd = append(f.odd, spec)
		}
	}
	return f
}

// next returns the lowest-numbered free block with at least the given number of addresses. It marks the block as taken,
// so that the next call returns a different block.
func (f *freeBlocks) next(least int) (v1alpha1.AddressBlockSpec, bool) {
	for f.taken[f.index] {
		f.index++
	}
	for index := f.index; index < f.state.Addresses.Count(); index++ {
		if f.taken[index] {
			continue
		}
		spec := f.state.Addresses.Spec(f.state.Range.Name, index)
		overlaps := func(odd *v1alpha1.AddressBlockSpec) bool { return addresses.Overlap(odd, &spec) }
		block := size(&v1alpha1.AddressBlock{Spec: spec})
		if block == 0 || slices.ContainsFunc(f.odd, overlaps) {
			f.taken[index] = true // no node can use it
			continue
		}
		if block >= least {
			f.taken[index] = true
			return spec, true
		}
	}
	return v1alpha1.AddressBlockSpec{}, false
}
