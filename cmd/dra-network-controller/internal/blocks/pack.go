package blocks

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Claim is what a claim takes of a range: each of its steps takes an address for each pod, all of one block.
type Claim struct {
	UID         types.UID
	Created     time.Time
	Pods, Steps int
	// Addresses are those that its pods have, as its status says. They tell of which blocks they are.
	Addresses []string
}

// room is a block with what claims leave of it.
type room struct {
	spec *v1alpha1.AddressBlockSpec
	left int
}

// shortage is for how many pods a node lacks a block: of the largest claim that finds none with room. It is 0 if all
// find one. Claims whose addresses are known are where they are. Others get what the node's driver gives: the first
// block with room, by number, and in the order in which claims were made, which is nearly that in which kubelet
// prepares them. A claim for more pods than any block has addresses is refused by the driver, so no block is for it.
//
// It is a simulation of what the driver will do at Prepare, and may be wrong where claims are prepared in another
// order. Then kubelet calls Prepare again, and the next look counts with the addresses that claims have by then.
func (c *Changes) shortage(s *State, node string) int {
	rooms := c.rooms(s, node)
	var waiting []Claim
	for i := range s.Shared[node] {
		claim := s.Shared[node][i]
		for _, step := range known(&claim, rooms) {
			rooms[step].left -= claim.Pods
			claim.Steps--
		}
		if claim.Steps > 0 && claim.Pods <= s.Addresses.BlockSize() {
			waiting = append(waiting, claim)
		}
	}
	// The largest of those that find none: a block that has room for it has room for any of the others.
	least := 0
	for _, claim := range waiting {
		for range claim.Steps {
			first := slices.IndexFunc(rooms, func(r room) bool { return r.left >= claim.Pods })
			if first < 0 {
				least = max(least, claim.Pods)
				break
			}
			rooms[first].left -= claim.Pods
		}
	}
	return least
}

// known are the blocks, by their index, of the steps of a claim whose addresses its status has: one step for each
// block, or for as many addresses of it as pods take for several steps. Addresses of a pod are one of each family, so a
// step's addresses are families × pods; a claim whose pods have not all started has fewer, which still is one step.
func known(claim *Claim, rooms []room) []int {
	var steps []int
	for i := range rooms {
		count := 0
		for _, address := range claim.Addresses {
			if addresses.Contains(rooms[i].spec, address) {
				count++
			}
		}
		if families := len(rooms[i].spec.CIDRs); families > 0 {
			count = (count + families*claim.Pods - 1) / (families * claim.Pods)
		}
		for range count {
			steps = append(steps, i)
		}
	}
	return steps[:min(len(steps), claim.Steps)]
}

// rooms are the blocks of a node, those that it is about to get included, by number. They are sorted as the driver
// tries them.
func (c *Changes) rooms(s *State, node string) []room {
	var found []room
	add := func(block *v1alpha1.AddressBlock) {
		if block.Spec.NodeName == node && block.Spec.NodeUID == s.Nodes[node].UID && block.Status.ReleasedAt == nil &&
			block.DeletionTimestamp == nil {
			found = append(found, room{spec: &block.Spec, left: size(block)})
		}
	}
	for i := range s.Blocks {
		add(&s.Blocks[i])
	}
	for i := range c.Create {
		add(&c.Create[i])
	}
	slices.SortFunc(found, func(a, b room) int { return int(a.spec.Index) - int(b.spec.Index) })
	return found
}
