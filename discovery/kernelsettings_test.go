package discovery

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The test kernel may not support flowtables, so these are messages as nf_tables_fill_flowtable_info and
// nf_tables_fill_chain_info in the kernel's net/netfilter/nf_tables_api.c compose them.
func TestHooksOfLink(t *testing.T) {
	attribute := func(kind int, value ...byte) []byte { return nl.NewRtAttr(kind, value).Serialize() }
	name := func(kind int, value string) []byte { return attribute(kind, append([]byte(value), 0)...) }
	nest := func(kind int, values ...[]byte) []byte {
		return attribute(kind|unix.NLA_F_NESTED, slices.Concat(values...)...)
	}
	object := slices.Concat[[]byte]
	chain := func(chain string, devices ...[]byte) []byte {
		hook := append([][]byte{attribute(unix.NFTA_HOOK_HOOKNUM, 0, 0, 0, 0)}, devices...)
		return object(name(unix.NFTA_CHAIN_TABLE, "eth0"), name(unix.NFTA_CHAIN_NAME, chain),
			nest(unix.NFTA_CHAIN_HOOK, hook...))
	}
	device := func(device string) []byte { return name(nftaDeviceName, device) }
	chains := [][]byte{
		chain("one", name(unix.NFTA_HOOK_DEV, "eth0")),
		chain("several", nest(nftaHookDevs, device("eth1"), device("eth0"))),
		chain("longer", name(unix.NFTA_HOOK_DEV, "eth01")),
		chain("alias", name(unix.NFTA_HOOK_DEV, "rack7")),
		chain("none"),
		{1, 2, 3},
	}
	tables := [][]byte{
		object(name(1, "t"), name(nftaFlowtableName, "fast"), nest(nftaFlowtableHook,
			attribute(1, 0, 0, 0, 0), nest(nftaFlowtableHookDevs, device("eth0")))),
		object(name(1, "t"), name(nftaFlowtableName, "eth0"), nest(nftaFlowtableHook,
			nest(nftaFlowtableHookDevs, device("eth1")))),
	}
	want := []string{"the nftables chain one is attached to it", "the nftables chain several is attached to it",
		"the nftables chain alias is attached to it",
		"the nftables flowtable fast contains it"}
	if diff := cmp.Diff(want, hooksOf([]string{"eth0", "rack7"}, chains, tables)); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
}
