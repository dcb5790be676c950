package addresses

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

// maxBlocks is the maximum number of blocks in a range, regardless of its CIDR sizes, because each block is an API
// object.
const maxBlocks = 1 << 16

// Limits for blockSize in the AddressRange CRD.
const (
	minBlockSize = 4
	maxBlockSize = 4096
	// defaultBlockSize repeats the CRD's default, for objects that did not pass through the API server.
	defaultBlockSize = 64
)

// Range is an AddressRange in a form suitable for arithmetic. It is immutable.
type Range struct {
	networks  []netip.Prefix
	blockBits int // binary logarithm of the number of addresses in a block
	exclude   []netip.Prefix
}

// Parse parses the specification of a range and reports all problems. It repeats the rules of the CRD, and also checks
// that a block fits into each CIDR, which the CRD cannot express.
func Parse(spec *v1alpha1.AddressRangeSpec) (Range, field.ErrorList) {
	var problems field.ErrorList
	path := field.NewPath("spec")
	size := int(spec.BlockSize)
	if size == 0 {
		size = defaultBlockSize
	}
	if size < minBlockSize || size > maxBlockSize || bits.OnesCount(uint(size)) != 1 {
		return Range{}, field.ErrorList{field.Invalid(path.Child("blockSize"), size,
			fmt.Sprintf("must be a power of two from %d to %d", minBlockSize, maxBlockSize))}
	}
	r := Range{blockBits: bits.TrailingZeros(uint(size))}
	if n := len(spec.CIDRs); n == 0 || n > 2 {
		return Range{}, field.ErrorList{field.Invalid(path.Child("cidrs"), spec.CIDRs, "must be one or two networks")}
	}
	for i, text := range spec.CIDRs {
		network, err := parseNetwork(text)
		switch {
		case err != nil:
			problems = append(problems, field.Invalid(path.Child("cidrs").Index(i), text, err.Error()))
		case network.Addr().BitLen()-network.Bits() < r.blockBits:
			problems = append(problems, field.Invalid(path.Child("cidrs").Index(i), text, fmt.Sprintf(
				"has fewer addresses than a block (%d): enlarge it, or reduce blockSize", size)))
		case i > 0 && len(r.networks) > 0 && r.networks[0].Addr().Is4() == network.Addr().Is4():
			problems = append(problems, field.Invalid(path.Child("cidrs").Index(i), text,
				"must be of the other IP family: a range has one IPv4 CIDR, one IPv6 CIDR, or both"))
		}
		r.networks = append(r.networks, network)
	}
	for i, text := range spec.Exclude {
		exclusion, err := parseExcluded(text)
		if err != nil {
			problems = append(problems, field.Invalid(path.Child("exclude").Index(i), text, err.Error()))
		}
		r.exclude = append(r.exclude, exclusion)
	}
	if len(problems) > 0 {
		return Range{}, problems
	}
	return r, nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if err != nil || network != network.Masked() || network.Addr().Is4In6() {
		return netip.Prefix{}, errors.New("must be a network such as 10.20.0.0/16 or fd00:20::/64, without bits " +
			"after its prefix")
	}
	return network, nil
}

// parseExcluded parses an address or a network.
func parseExcluded(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" && !address.Is4In6() {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	network, err := parseNetwork(text)
	if err != nil {
		return netip.Prefix{}, errors.New("must be an address or a network, without bits after its prefix")
	}
	return network, nil
}

// Count returns the number of blocks in the range. For example, 10.20.0.0/16 with blocks of 64 addresses has
// 2^(32-16-6) = 1024 blocks. The number is capped at maxBlocks, since an IPv6 network could have far more blocks than
// necessary.
func (r Range) Count() int {
	count := maxBlocks
	for _, network := range r.networks {
		if free := network.Addr().BitLen() - network.Bits() - r.blockBits; free < bits.Len(maxBlocks)-1 {
			count = min(count, 1<<free)
		}
	}
	return count
}

// BlockSize returns the number of addresses that a block contains from each CIDR. All of them can be assigned to pods,
// except reserved and excluded addresses.
func (r Range) BlockSize() int { return 1 << r.blockBits }

// Spec returns the specification of the block with the given index, but does not set the node. The index must be less
// than [Range.Count].
func (r Range) Spec(name string, index int) v1alpha1.AddressBlockSpec {
	spec := v1alpha1.AddressBlockSpec{AddressRange: name, Index: int32(index)} //nolint:gosec // below maxBlocks
	for _, network := range r.networks {
		// For example, with blocks of 64 addresses in 10.20.0.0/16, the block with index 3 starts at offset 192:
		// 10.20.0.192/26.
		first := plus(network.Addr(), uint64(index)<<r.blockBits) //nolint:gosec // not negative
		cidr := netip.PrefixFrom(first, first.BitLen()-r.blockBits)
		spec.CIDRs = append(spec.CIDRs, cidr.String())
		spec.Networks = append(spec.Networks, network.String())
		for _, exclusion := range r.exclude {
			if exclusion.Overlaps(cidr) {
				spec.Exclude = append(spec.Exclude, exclusion.String())
			}
		}
	}
	return spec
}

// Name returns the name of a block's object. The name consists of the range's name and the block's index, but not the
// node's name, so that two nodes can never have the same block.
func Name(addressRange string, index int32) string { return fmt.Sprintf("%s-%d", addressRange, index) }

// Run is a contiguous sequence of addresses.
type Run struct {
	First netip.Addr `json:"first"`
	Last  netip.Addr `json:"last"`
}

// Family contains the addresses in a block that can be assigned to pods, for one IP family.
type Family struct {
	// Network is the range's CIDR. Addresses are assigned to pods with its prefix length.
	Network netip.Prefix
	// Runs are sorted, and there is a gap between any two runs.
	Runs []Run
}

// Block is a parsed AddressBlock.
type Block struct {
	// Name is the name of the object.
	Name string
	// Families has one or two elements. A pod gets one address from each.
	Families []Family
	// Size is the number of pods that can get addresses from the block: the size of its smallest family.
	Size int
}

// ParseBlock parses a block.
func ParseBlock(object *v1alpha1.AddressBlock) (Block, error) {
	block := Block{Name: object.Name, Size: math.MaxInt}
	spec := &object.Spec
	if len(spec.CIDRs) == 0 || len(spec.CIDRs) != len(spec.Networks) {
		return Block{}, fmt.Errorf("cannot read AddressBlock %s: it has %d cidrs and %d networks", object.Name,
			len(spec.CIDRs), len(spec.Networks))
	}
	var exclude []netip.Prefix
	for _, text := range spec.Exclude {
		exclusion, err := parseExcluded(text)
		if err != nil {
			return Block{}, fmt.Errorf("cannot read AddressBlock %s: exclude %q %w", object.Name, text, err)
		}
		exclude = append(exclude, exclusion)
	}
	for i := range spec.CIDRs {
		cidr, err := parseNetwork(spec.CIDRs[i])
		if err != nil {
			return Block{}, fmt.Errorf("cannot read AddressBlock %s: %q %w", object.Name, spec.CIDRs[i], err)
		}
		network, err := parseNetwork(spec.Networks[i])
		if err != nil || network.Bits() > cidr.Bits() || !network.Contains(cidr.Addr()) {
			return Block{}, fmt.Errorf("cannot read AddressBlock %s: %q is not a network that has %s", object.Name,
				spec.Networks[i], cidr)
		}
		family := Family{Network: network, Runs: runs(cidr, append(reserved(network), exclude...))}
		block.Families = append(block.Families, family)
		block.Size = min(block.Size, family.size())
	}
	return block, nil
}

// reserved returns the addresses in a network that are never assigned to pods: the address of the network itself (the
// subnet-router anycast address in RFC 4291, section 2.6.1), the next address, which gateways use by convention, and
// the last address, which is the IPv4 broadcast address.
func reserved(network netip.Prefix) []netip.Prefix {
	first := network.Addr()
	var found []netip.Prefix
	for _, address := range []netip.Addr{first, first.Next(), Last(network)} {
		found = append(found, netip.PrefixFrom(address, address.BitLen()))
	}
	return found
}

// runs returns the addresses in a block except the excluded ones.
//
// For example, 10.20.0.0/26 without 10.20.0.0, .1 and .16/28 has two runs: .2 to .15, and .32 to .63. Excluded networks
// may overlap one another, so next must never decrease.
func runs(block netip.Prefix, exclude []netip.Prefix) []Run {
	exclude = slices.DeleteFunc(slices.Clone(exclude), func(e netip.Prefix) bool { return !e.Overlaps(block) })
	slices.SortFunc(exclude, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	var found []Run
	next, end := block.Addr(), Last(block)
	for _, exclusion := range exclude {
		if next.Less(exclusion.Addr()) {
			found = append(found, Run{First: next, Last: exclusion.Addr().Prev()})
		}
		if after := Last(exclusion).Next(); !after.IsValid() {
			return found // the highest possible address has no successor
		} else if next.Less(after) {
			next = after
		}
	}
	if next.Compare(end) <= 0 {
		found = append(found, Run{First: next, Last: end})
	}
	return found
}

func (f *Family) size() int {
	count := uint64(0)
	for _, run := range f.Runs {
		count += distance(run) + 1 // a block has at most 4096 addresses
	}
	return int(count) //nolint:gosec // see above
}

// distance returns the difference between the last and the first address of a run, which differ only in the lowest 64
// bits.
func distance(run Run) uint64 { return low(run.Last) - low(run.First) }

func low(address netip.Addr) uint64 {
	raw := address.As16()
	return binary.BigEndian.Uint64(raw[8:])
}

// plus adds n to the lowest 64 bits of an address. A carry into the higher bits is never necessary: a range has at most
// 2^16 blocks of at most 2^12 addresses.
func plus(address netip.Addr, n uint64) netip.Addr {
	raw := address.As16()
	binary.BigEndian.PutUint64(raw[8:], binary.BigEndian.Uint64(raw[8:])+n)
	sum := netip.AddrFrom16(raw)
	if address.Is4() {
		return sum.Unmap()
	}
	return sum
}

// Last returns the last address in a network.
func Last(network netip.Prefix) netip.Addr {
	raw := network.Addr().AsSlice()
	for i := network.Bits(); i < len(raw)*8; i++ {
		raw[i/8] |= 1 << (7 - i%8)
	}
	address, _ := netip.AddrFromSlice(raw) // raw always has a valid length
	return address
}

// Contains reports whether a block contains an address. The address may include a prefix length.
func Contains(spec *v1alpha1.AddressBlockSpec, address string) bool {
	text, _, _ := strings.Cut(address, "/")
	parsed, err := netip.ParseAddr(text)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(spec.CIDRs, func(text string) bool {
		cidr, err := netip.ParsePrefix(text)
		return err == nil && cidr.Contains(parsed.Unmap())
	})
}

// Overlap reports whether two blocks have an address in common.
func Overlap(a, b *v1alpha1.AddressBlockSpec) bool {
	return slices.ContainsFunc(a.CIDRs, func(text string) bool {
		first, err := netip.ParsePrefix(text)
		return err == nil && slices.ContainsFunc(b.CIDRs, func(text string) bool {
			second, err := netip.ParsePrefix(text)
			return err == nil && first.Overlaps(second)
		})
	})
}
