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

// defaultReturnDelay is the default of the definition, for deleted ranges.
const defaultReturnDelay = time.Hour

// recheck is how long a block that may be in use is left alone before it is looked at again, and the least time to
// wait.
const recheck = 30 * time.Second

// Node is the part of a node that a plan depends on.
type Node struct {
	UID types.UID
	// Selected is true where the range's nodeSelector takes the node.
	Selected bool
}

// State is everything that a plan depends on. All of it is read from caches, so it may be old. Plan need not know: what
// it wants is refused by the API server, or looked up there, where an old reading would do harm.
type State struct {
	// Range is the range; of one that is gone it has the name and a deletion timestamp.
	Range *v1alpha1.AddressRange
	// Addresses is the parsed range; nil for an invalid one, from which no block is assigned.
	Addresses *addresses.Range
	// Nodes are the nodes of the cluster, by name.
	Nodes map[string]Node
	// Blocks are the blocks of the range.
	Blocks []v1alpha1.AddressBlock
	// Demand is how many addresses claims take that are allocated on a node, by its name.
	Demand map[string]int
	// Shared are the claims, oldest first, by the name of their node, for nodes with a claim for several pods, which
	// takes its addresses from one block.
	Shared map[string][]Claim
	// Unused is for how long this process has seen each released block without use, by the name of the block. Blocks
	// that pods of a node may still use are missing.
	Unused map[string]time.Duration
	// Now is the time that people read in objects. Nothing is decided by it.
	Now time.Time
}

// Changes are the actions of a plan. Objects are complete, in the form to be written or deleted. Reconciler.carryOut
// defines their order. A block is in at most one of the lists.
type Changes struct {
	Create, Update []v1alpha1.AddressBlock
	// Release are blocks whose node is gone, or whose range, with the time of that in their status.
	Release []v1alpha1.AddressBlock
	// Return are blocks that others may have.
	Return []v1alpha1.AddressBlock
	// Without are the nodes that should have a block and for which there is none; Short are the nodes that should have
	// another one. Both are sorted.
	Without, Short []string
	// Next is in how much time a block may be returned; 0 for never.
	Next time.Duration
}

// Plan decides which blocks to create, release and return. It assigns the lowest free number, so that a controller with
// an outdated cache gets a conflict and retries, instead of assigning a second block to a node.
//
// Its phases: the fate of each existing block; a first block for every selected node, in the order of names, before any
// node gets a second; further blocks by demand; and blocks for claims of several pods, which need one with room for all
// of them.
func Plan(s State) Changes {
	var c Changes
	for i := range s.Blocks {
		c.keep(&s, &s.Blocks[i])
	}
	// Blocks of an invalid range stay with their nodes, since pods use them. It gives none, and a range that is being
	// deleted gives none either.
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
	// Last, since a sum of free addresses says nothing of claims that need them in one block. Each round gives a block,
	// so it ends when all claims find room, or when the range has none left.
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

// keep decides about an existing block.
//
// A node that the range's nodeSelector no longer selects keeps its blocks, and gets further ones while its claims need
// them: its pods have addresses of the range.
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
		if !isUnused { // the end of a claim that keeps the block is no event of the range
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

// current returns a block with the current networks and exclusions of the range; nil if they are equal, and for blocks
// that do not belong to the current range. The networks of a block never change: the driver of its node has assigned
// their addresses.
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

// capacities returns the number of addresses in the blocks of nodes, by node, without released blocks and blocks of
// another node of the same name.
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

// size is how many pods can have addresses of a block; none of one that can't be read.
func size(block *v1alpha1.AddressBlock) int {
	parsed, err := addresses.ParseBlock(block)
	if err != nil {
		return 0
	}
	return parsed.Size
}

// spare is how many addresses a node shall have left, so that those who come while another block is made find one. It
// covers the time from the allocation of claims until a block is created and its driver has heard of it.
func spare(r *v1alpha1.AddressRange) int { return max(1, int(r.Spec.BlockSize)/4) }

func returnDelay(r *v1alpha1.AddressRange) time.Duration {
	if r.Spec.ReturnDelay == nil {
		return defaultReturnDelay
	}
	return r.Spec.ReturnDelay.Duration
}

// freeBlocks iterates over the unassigned blocks.
type freeBlocks struct {
	state *State
	taken map[int]bool
	// odd are blocks that do not belong to the current range: it was force-deleted, and created again with other
	// blocks.
	odd []*v1alpha1.AddressBlockSpec
	// index is a number below which no block is free.
	index int
}

// newFreeBlocks also finds odd blocks: blocks that the current range would not have in this form, because its cidrs or
// its blockSize have changed. They stay assigned, so new blocks must not contain any of their addresses.
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

// next is the free block with the least number that has so many addresses to give, at least one. It counts the block as
// taken, so the next call returns another.
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
			f.taken[index] = true // gives nothing to anybody
			continue
		}
		if block >= least {
			f.taken[index] = true
			return spec, true
		}
	}
	return v1alpha1.AddressBlockSpec{}, false
}
