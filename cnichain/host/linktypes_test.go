package host

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	testingclock "k8s.io/utils/clock/testing"
)

// The main thread never terminates. If the call left the main thread in another namespace, the thread would stay there,
// and so would /proc/self, which refers to the main thread. This must be the first test, because it does not work on a
// thread that another test has left in a namespace.
func TestMissingLinkTypesLeaveTheMainThread(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	const ours = "/proc/self/ns/net"
	before, err := os.Readlink(ours)
	if err != nil {
		t.Fatal(err)
	}
	onMainThread(t, func() { _, err = MissingLinkTypes([]string{"veth"}) })
	if err != nil {
		t.Fatal(err)
	}
	if after, err := os.Readlink(ours); err != nil || after != before {
		t.Errorf("the process was in namespace %s and is now in %s (error %v)", before, after, err)
	}
}

func TestMissingLinkTypes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	before := linkNames(t)
	// Without a parent, creating a macvlan fails, but with an error other than EOPNOTSUPP.
	missing, err := MissingLinkTypes([]string{"veth", "nosuchkind", "macvlan", "bridge", "neither"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"nosuchkind", "neither"}; !slices.Equal(missing, want) {
		t.Errorf("missing types = %v, want %v", missing, want)
	}
	if after := linkNames(t); !slices.Equal(after, before) {
		t.Errorf("links of the host were %v and are now %v", before, after)
	}
}

func TestWithoutModule(t *testing.T) {
	const aliases = "# Aliases extracted from modules themselves.\nalias rtnl-link-vlan 8021q\nalias rtnl-link-bond bonding\n"
	got := WithoutModule([]string{"vlan", "ipvlan", "bond", "macvlan"}, aliases)
	if want := []string{"ipvlan", "macvlan"}; !slices.Equal(got, want) {
		t.Errorf("types without a module = %v, want %v", got, want)
	}
}

func TestUnavailableLinkTypes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	if got, err := UnavailableLinkTypes([]string{"veth", "nosuchkind"}); err != nil ||
		!slices.Equal(got, []string{"nosuchkind"}) {
		t.Errorf("unavailable types = %v, %v, want nosuchkind", got, err)
	}
}

// Types that need a parent are requested without one. The result must match that of a complete request.
func TestMissingLinkTypesThatNeedAParent(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	for kind, link := range map[string]func(netlink.LinkAttrs) netlink.Link{
		"macvlan": func(a netlink.LinkAttrs) netlink.Link { return &netlink.Macvlan{LinkAttrs: a} },
		"ipvlan":  func(a netlink.LinkAttrs) netlink.Link { return &netlink.IPVlan{LinkAttrs: a} },
		"ipvtap": func(a netlink.LinkAttrs) netlink.Link {
			return &netlink.IPVtap{IPVlan: netlink.IPVlan{LinkAttrs: a}}
		},
		"vlan": func(a netlink.LinkAttrs) netlink.Link { return &netlink.Vlan{LinkAttrs: a, VlanId: 5} },
	} {
		if err := onOwnThread(func() error {
			namespace, err := netns.New()
			if err != nil {
				return err
			}
			defer func() { _ = namespace.Close() }()
			attributes := netlink.NewLinkAttrs()
			attributes.Name = "parent"
			parent := &netlink.Veth{LinkAttrs: attributes, PeerName: "peer"}
			if err := netlink.LinkAdd(parent); err != nil {
				return err
			}
			attributes.Name, attributes.ParentIndex = "child", parent.Index
			isMissing := errors.Is(netlink.LinkAdd(link(attributes)), unix.EOPNOTSUPP)
			missing, err := MissingLinkTypes([]string{kind})
			if slices.Contains(missing, kind) != isMissing {
				t.Errorf("missing types = %v, but the kernel rejects a complete request for %s: %t", missing, kind,
					isMissing)
			}
			return err
		}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// onMainThread runs a function in a goroutine that starts on the main thread. Goroutines that start on any other thread
// lock that thread, until only the main thread is left.
func onMainThread(t *testing.T, do func()) {
	t.Helper()
	done, found := make(chan struct{}), make(chan bool)
	defer close(done)
	for range 1000 {
		go func() {
			runtime.LockOSThread()
			isMain := unix.Gettid() == os.Getpid()
			if isMain {
				runtime.UnlockOSThread()
				do()
			}
			found <- isMain
			<-done
		}()
		if <-found {
			return
		}
	}
	t.Skip("the main thread is busy with other work")
}

// Supported link types are queried only once. Missing types are queried once a minute, in case the module has been
// installed since.
func TestLinkTypesAreAskedForSeldom(t *testing.T) {
	missing, asked := []string{"vlan", "bond"}, []string{}
	var failure error
	fakeClock := testingclock.NewFakeClock(time.Unix(1000, 0))
	types := NewLinkTypes(func(linkTypes []string) ([]string, error) {
		asked = append(asked, linkTypes...)
		return slices.DeleteFunc(slices.Clone(linkTypes), func(linkType string) bool {
			return !slices.Contains(missing, linkType)
		}), failure
	}, fakeClock)
	check := func(wantMissing, wantAsked []string, linkTypes ...string) {
		t.Helper()
		asked = nil
		missing, err := types.Missing(linkTypes)
		if !errors.Is(err, failure) || !slices.Equal(missing, wantMissing) || !slices.Equal(asked, wantAsked) {
			t.Errorf("missing %v, queried %v, error %v; want %v and %v", missing, asked, err, wantMissing, wantAsked)
		}
	}
	failure = errors.New("no namespace")
	check(nil, []string{"veth", "vlan"}, "veth", "vlan") // types with an unknown state are treated as supported
	failure = nil
	check([]string{"vlan"}, []string{"veth", "vlan"}, "veth", "vlan")
	check([]string{"vlan", "bond"}, []string{"bond"}, "vlan", "veth", "bond")
	fakeClock.Step(missingFor)
	missing = []string{"bond"}
	failure = errors.New("no namespace")
	check([]string{"vlan"}, []string{"vlan"}, "veth", "vlan") // the cached result
	failure = nil
	check(nil, []string{"vlan"}, "veth", "vlan")
	check([]string{"bond"}, []string{"bond"}, "vlan", "bond")
	fakeClock.Step(2 * missingFor)
	check(nil, nil, "vlan", "veth")
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
