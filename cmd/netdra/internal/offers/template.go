package offers

import (
	"errors"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/policy"
	draslices "github.com/dra-networking/dra-network-driver/slices"
	"github.com/dra-networking/dra-network-driver/slices/upcoming"
)

// checkTemplate rejects flags that cannot be combined with a template.
func (f *SlicesOptions) checkTemplate() error {
	switch {
	case !f.Template:
		return nil
	case f.Node != "":
		return errors.New("cannot use --node with --template, which is for every node of a kind; omit --node")
	case f.Form == slicesKEP5941:
		return errors.New("cannot print a template in the form kep5941, which no API server supports; use counters")
	}
	return nil
}

// withoutIdentity returns the result without the attributes that differ between machines of the same kind. It copies
// devices before it removes attributes, because the map is shared with the Decision.
func withoutIdentity(result draslices.Result) draslices.Result {
	strip := func(d *resourceapi.Device) {
		*d = *d.DeepCopy()
		for _, name := range policy.Identifying() {
			delete(d.Attributes, name)
		}
	}
	result.Entries = slices.Clone(result.Entries)
	for i := range result.Entries {
		strip(&result.Entries[i].Spec)
	}
	for _, pool := range result.Resources.Pools {
		for _, slice := range pool.Slices {
			for i := range slice.Devices {
				strip(&slice.Devices[i])
			}
		}
	}
	return result
}

// forAnyNode renames the node's pools after anyNode.
func forAnyNode(node upcoming.Node, name string) upcoming.Node {
	rename := func(pool string) string { return anyNode + strings.TrimPrefix(pool, name) }
	pools := map[string][]upcoming.Slice{}
	for pool, parts := range node.Pools {
		pools[rename(pool)] = parts
	}
	node.Pools, node.Entries = pools, slices.Clone(node.Entries)
	for i := range node.Entries {
		node.Entries[i].Pool = rename(node.Entries[i].Pool)
	}
	return node
}
