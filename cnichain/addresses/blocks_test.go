package addresses

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

func parse(t *testing.T, blockSize int32, exclude []string, cidrs ...string) Range {
	t.Helper()
	r, problems := Parse(&v1alpha1.AddressRangeSpec{CIDRs: cidrs, BlockSize: blockSize, Exclude: exclude})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return r
}

func block(t *testing.T, r Range, index int) Block {
	t.Helper()
	b, err := ParseBlock(&v1alpha1.AddressBlock{ObjectMeta: metav1.ObjectMeta{Name: Name("r", int32(index))},
		Spec: r.Spec("r", index)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// text describes a block as "size network: first-last ...; ...".
func (b Block) text() string {
	var families []string
	for _, family := range b.Families {
		line := family.Network.String() + ":"
		for _, run := range family.Runs {
			line += fmt.Sprintf(" %s-%s", run.First, run.Last)
		}
		families = append(families, line)
	}
	return fmt.Sprintf("%d %s", b.Size, strings.Join(families, "; "))
}

func TestBlocks(t *testing.T) {
	for name, test := range map[string]struct {
		r     Range
		count int
		index int
		want  string
	}{
		"the first has no address of network and gateway": {parse(t, 64, nil, "10.20.0.0/16"), 1024, 0,
			"62 10.20.0.0/16: 10.20.0.2-10.20.0.63"},
		"one in the middle has all": {parse(t, 64, nil, "10.20.0.0/16"), 1024, 5,
			"64 10.20.0.0/16: 10.20.1.64-10.20.1.127"},
		"the last has no broadcast address": {parse(t, 64, nil, "10.20.0.0/16"), 1024, 1023,
			"63 10.20.0.0/16: 10.20.255.192-10.20.255.254"},
		"IPv6": {parse(t, 16, nil, "fd00:20::/64"), maxBlocks, 65535,
			"16 fd00:20::/64: fd00:20::f:fff0-fd00:20::f:ffff"},
		"both, and the smaller one limits": {parse(t, 16, []string{"10.0.0.18"}, "10.0.0.0/26", "fd00::/120"), 4, 1,
			"15 10.0.0.0/26: 10.0.0.16-10.0.0.17 10.0.0.19-10.0.0.31; fd00::/120: fd00::10-fd00::1f"},
		"exclusions touch, overlap and lie outside": {
			parse(t, 16, []string{"10.0.0.20/30", "10.0.0.22", "10.0.0.24", "10.0.0.31", "10.0.0.64/26", "fd00::/8"},
				"10.0.0.0/24"), 16, 1,
			"10 10.0.0.0/24: 10.0.0.16-10.0.0.19 10.0.0.25-10.0.0.30"},
		"all is excluded": {parse(t, 16, []string{"10.0.0.0/25"}, "10.0.0.0/24"), 16, 2, "0 10.0.0.0/24:"},
		"the end of all addresses": {parse(t, 4, []string{"255.255.255.254"}, "255.255.255.240/28"), 4, 3,
			"2 255.255.255.240/28: 255.255.255.252-255.255.255.253"},
		"one block is all": {parse(t, 4, nil, "192.0.2.0/30"), 1, 0, "1 192.0.2.0/30: 192.0.2.2-192.0.2.2"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.r.Count(); got != test.count {
				t.Errorf("the range has %d blocks, want %d", got, test.count)
			}
			if got := block(t, test.r, test.index).text(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestRunsAreTheAddressesThatNothingExcludes checks address by address that the runs contain exactly the addresses that
// are not excluded.
func TestRunsAreTheAddressesThatNothingExcludes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var exclude []string
		for range random.IntN(6) {
			bits := 26 + random.IntN(7)
			address := netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(256))})
			exclude = append(exclude, netip.PrefixFrom(address, bits).Masked().String())
		}
		r := parse(t, 32, exclude, "10.0.0.0/24")
		index := random.IntN(r.Count())
		got, count := block(t, r, index), 0
		for address := plus(netip.MustParseAddr("10.0.0.0"), uint64(index*32)); ; address = address.Next() {
			free := !strings.Contains(" 10.0.0.0 10.0.0.1 10.0.0.255 ", " "+address.String()+" ")
			for _, text := range exclude {
				free = free && !netip.MustParsePrefix(text).Contains(address)
			}
			has := false
			for _, run := range got.Families[0].Runs {
				has = has || run.First.Compare(address) <= 0 && address.Compare(run.Last) <= 0
			}
			if has != free {
				t.Fatalf("excluding %v, block %s contains %s: %t, want %t", exclude, got.text(), address, has, free)
			}
			if free {
				count++
			}
			if low(address)%32 == 31 {
				break
			}
		}
		if count != got.Size {
			t.Fatalf("block %s has %d addresses, but its size is %d", got.text(), count, got.Size)
		}
	}
}

// TestBlocksStayWhenARangeGrows checks that the index of a block, which is part of its name, always identifies the same
// addresses.
func TestBlocksStayWhenARangeGrows(t *testing.T) {
	small, large := parse(t, 16, nil, "10.0.0.0/24", "fd00::/120"), parse(t, 16, nil, "10.0.0.0/20", "fd00::/64")
	if large.Count() != 256 {
		t.Errorf("the larger range has %d blocks, want 256", large.Count())
	}
	for index := range small.Count() {
		before, after := small.Spec("r", index), large.Spec("r", index)
		if fmt.Sprint(before.CIDRs) != fmt.Sprint(after.CIDRs) {
			t.Errorf("block %d differs: %v in the small range, %v in the large one", index, before.CIDRs, after.CIDRs)
		}
		next := large.Spec("r", index+1)
		if Overlap(&after, &next) || !Overlap(&before, &after) || !Contains(&after, after.CIDRs[0]) ||
			Contains(&next, after.CIDRs[1]) {
			t.Errorf("block %d: Overlap or Contains returned a wrong result", index)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for reason, spec := range map[string]v1alpha1.AddressRangeSpec{
		"spec.blockSize: Invalid value: 24: must be a power of two": {BlockSize: 24,
			CIDRs: []string{"10.0.0.0/24"}},
		"spec.cidrs: Invalid value: null: must be one or two":              {},
		"spec.cidrs[0]: Invalid value: \"10.0.0.1/24\": must be a network": {CIDRs: []string{"10.0.0.1/24"}},
		"spec.cidrs[0]: Invalid value: \"10.0.0.0/28\": has fewer addresses than a block (64)": {
			CIDRs: []string{"10.0.0.0/28"}},
		"spec.cidrs[1]: Invalid value: \"10.1.0.0/24\": must be of the other IP family": {
			CIDRs: []string{"10.0.0.0/24", "10.1.0.0/24"}},
		"spec.exclude[0]: Invalid value: \"ten\": must be an address or a network": {
			CIDRs: []string{"10.0.0.0/24"}, Exclude: []string{"ten"}},
	} {
		if _, problems := Parse(&spec); len(problems) != 1 || !strings.Contains(problems[0].Error(), reason) {
			t.Errorf("got  %v\nwant %s", problems, reason)
		}
	}
}
