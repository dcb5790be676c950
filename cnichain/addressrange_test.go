package cnichain

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/cnichain/addresses"
	"github.com/dra-networking/dra-network-driver/cnichain/v1alpha1"
)

const ranged = `
- {name: a, type: macvlan, selector: {cel: "true"}, addressRange: storage,
   config: {mode: bridge, ipam: {type: host-local, routes: [{dst: 10.0.0.0/8}]}}}
- {name: b, type: vlan, dependOn: [a], addressRange: storage, config: {vlanId: 7, ipam: {type: host-local}}}
`

// rooms returns the first blocks of a dual-stack range, with the given room for each block.
func rooms(t *testing.T, room ...int) map[string][]BlockRoom {
	t.Helper()
	r, problems := addresses.Parse(&v1alpha1.AddressRangeSpec{CIDRs: []string{"10.20.0.0/16", "fd00::/64"},
		BlockSize: 4, Exclude: []string{"10.20.0.5"}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var blocks []BlockRoom
	for index, room := range room {
		block, err := addresses.ParseBlock(&v1alpha1.AddressBlock{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("storage-%d", index)}, Spec: r.Spec("storage", index)})
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, BlockRoom{Block: block, Room: room})
	}
	return map[string][]BlockRoom{"storage": blocks}
}

func TestCompileGivesAddressesOfBlocksWithRoom(t *testing.T) {
	up0 := deviceNamed("up0")
	up0.Exclusive = false
	binding := Binding{Claim: Claim{Namespace: "ns", Name: "c", UID: "u"}, Node: "n1", Schemas: DefaultSchemas(),
		Plugins: plugins("macvlan", "vlan", "host-local"), Devices: []RootDevice{{Step: "a", Device: up0}}}
	for name, test := range map[string]struct {
		blocks  map[string][]BlockRoom
		pods    int
		want    []string // expected block of each step
		problem string
	}{
		"both of one block":       {rooms(t, 2), 1, []string{"storage-0", "storage-0"}, ""},
		"a block for each":        {rooms(t, 1, 1), 1, []string{"storage-0", "storage-1"}, ""},
		"one that is full":        {rooms(t, 0, 4), 0, []string{"storage-1", "storage-1"}, ""},
		"an address for each pod": {rooms(t, 2, 3, 3), 2, []string{"storage-0", "storage-1"}, ""},
		"no room for the second": {rooms(t, 1, 0), 1, nil,
			"claims of node n1 use all 5 addresses of its blocks of AddressRange storage (storage-0, storage-1)"},
		"more pods than any block has addresses for": {rooms(t, 2, 3), 4, nil,
			"reserved for 4 pods, which take addresses of one block, and the largest one that node n1 has " +
				"of AddressRange storage has room for 3: give each pod its own claim"},
		"no block":                  {nil, 1, nil, "node n1 has no block of AddressRange storage yet"},
		"more than there should be": {rooms(t, -1, 2), 1, []string{"storage-1", "storage-1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			binding.Blocks, binding.Pods = test.blocks, test.pods
			plan, problems := Compile(topology(t, ranged), binding)
			if test.problem != "" {
				if len(problems) == 0 || !contains(problems.ToAggregate().Error(), test.problem,
					"kubectl get addressrange") {
					t.Fatalf("got %v, want %s", problems, test.problem)
				}
				return
			}
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			taken := map[string]int{}
			TakenAddresses([]Plan{*plan}, test.pods, taken)
			total := 0
			for i, block := range test.want {
				if step := plan.Steps[i]; step.Range.Block != block || step.Network != "addressrange.storage" {
					t.Errorf("step %s has range %+v and network %s, want block %s", step.Name, step.Range, step.Network,
						block)
				}
				total += max(test.pods, 1)
			}
			for _, count := range taken {
				total -= count
			}
			if total != 0 {
				t.Errorf("numbers of taken addresses do not match the pods: %v", taken)
			}
		})
	}
}

// Nodes reject a key that differs from a forbidden key only in case, since the plugin ignores case.
func TestKeysOfAddressesInOtherCase(t *testing.T) {
	written := topology(t, `[{name: a, type: macvlan, selector: {cel: "true"}, addressRange: storage, `+
		`config: {ipam: {type: host-local, Subnet: 10.0.0.0/24}}}]`)
	if problems := ValidateStored(written, DefaultSchemas()); len(problems) != 1 ||
		problems[0].Field != "spec.steps[0].config.ipam.Subnet" {
		t.Errorf("problems = %v, want one for Subnet", problems)
	}
}

func TestCompiledAddresses(t *testing.T) {
	up0 := deviceNamed("up0")
	plan, problems := Compile(topology(t, ranged), Binding{Schemas: DefaultSchemas(), Blocks: rooms(t, 0, 2),
		Plugins: plugins("macvlan", "vlan", "host-local"), Devices: []RootDevice{{Step: "a", Device: up0}}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	const want = `{"ipam":{"ranges":[` +
		`[{"rangeEnd":"10.20.0.4","rangeStart":"10.20.0.4","subnet":"10.20.0.0/16"},` +
		`{"rangeEnd":"10.20.0.7","rangeStart":"10.20.0.6","subnet":"10.20.0.0/16"}],` +
		`[{"rangeEnd":"fd00::7","rangeStart":"fd00::4","subnet":"fd00::/64"}]],` +
		`"routes":[{"dst":"10.0.0.0/8"}],"type":"host-local"},"mode":"bridge"}`
	if got := string(plan.Steps[0].Config); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
