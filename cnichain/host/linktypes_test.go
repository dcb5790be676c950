package host

import (
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestMissingLinkTypes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	before := linkNames(t)
	// macvlan needs a parent, which it is not given: that is another refusal.
	missing, err := MissingLinkTypes([]string{"veth", "nosuchkind", "macvlan", "bridge", "neither"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"nosuchkind", "neither"}; !slices.Equal(missing, want) {
		t.Errorf("missing are %v, want %v", missing, want)
	}
	if after := linkNames(t); !slices.Equal(after, before) {
		t.Errorf("links of the host were %v and are %v", before, after)
	}
}

func linkNames(t *testing.T) []string {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(links))
	for _, link := range links {
		names = append(names, link.Attrs().Name)
	}
	slices.Sort(names)
	return names
}
