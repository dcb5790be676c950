package blocks

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// Claim is the demand that a claim places on a range: each of its steps uses one address per pod, all from one block.
type Claim struct {
	UID         types.UID
	Created     time.Time
	Pods, Steps int
	// Addresses are the addresses in the claim's status. They determine which blocks the claim uses.
	Addresses []string
}

// room is a block and the number of addresses left in it.
type room struct {
	spec *v1alpha1.AddressBlockSpec
	left int
}

// shortage returns how large a block the node still needs, as a number of pods: the pod count of the largest claim that
// does not fit into any block, or 0 if all claims fit. Claims with known addresses stay in their blocks. Other claims
// get the block that the node's driver would choose: the lowest-numbered one with enough room. Claims are processed in
// creation order, which is close to the order of the kubelet's Prepare calls. A claim for more pods than there are
// addresses in a block is ignored, because the driver rejects it.
//
// This simulates the driver's Prepare, and may be wrong if claims are prepared in a different order. In that case, the
// kubelet calls Prepare again, and the next reconciliation uses the addresses that have been assigned by then.
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
	// Find the largest claim without a block, because a block with enough room for it has enough room for any other
	// claim.
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

// known returns a block index for each step whose addresses are in the claim's status. A block that contains the
// addresses of several steps appears several times. A pod has one address per family, so a step has families × pods
// addresses. If not all pods have started, a step has fewer addresses, but still counts as one step.
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

// rooms returns a node's blocks, including blocks that this plan assigns to it. The blocks are sorted by number,
// because the driver tries them in this order.
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
