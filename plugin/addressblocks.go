package plugin

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	chainapi "github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// addressBlocks returns, for each AddressRange, the blocks that the node may use, in ascending order so that the
// highest blocks stay free longest. It ignores blocks that belong to an earlier Node object with the same name, because
// the machine behind that object may still run pods with addresses from these blocks.
func (c *cluster) addressBlocks(ranges []string, taken map[string]int) (map[string][]cnichain.BlockRoom, error) {
	if len(ranges) == 0 {
		return nil, nil
	}
	if !c.blocks.HasSynced() {
		return nil, fmt.Errorf("cannot use AddressRange %s: the AddressBlocks of node %s could not be read from the "+
			"API server; install the definitions of this version (deploy/crds) if they are missing",
			ranges[0], c.nodeName)
	}
	node, err := c.ThisNode()
	if err != nil {
		return nil, err
	}
	var usable []*chainapi.AddressBlock
	for _, block := range items[*chainapi.AddressBlock](c.blocks) {
		if slices.Contains(ranges, block.Spec.AddressRange) && block.Spec.NodeName == c.nodeName &&
			block.Spec.NodeUID == node.UID && block.Status.ReleasedAt == nil && block.DeletionTimestamp == nil {
			usable = append(usable, block)
		}
	}
	slices.SortFunc(usable, func(a, b *chainapi.AddressBlock) int { return cmp.Compare(a.Spec.Index, b.Spec.Index) })
	blocks := map[string][]cnichain.BlockRoom{}
	for _, object := range usable {
		block, err := addresses.ParseBlock(object)
		if err != nil {
			return nil, err
		}
		name := object.Spec.AddressRange
		blocks[name] = append(blocks[name], cnichain.BlockRoom{Block: block, Room: block.Size - taken[block.Name]})
	}
	return blocks, nil
}
