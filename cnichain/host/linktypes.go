package host

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// missingFor is how long a type of links counts as missing before the kernel is asked again: somebody may install the
// module. A type that the kernel makes it makes until it ends, and this process with it.
const missingFor = time.Minute

// LinkTypes knows which types of links the kernel makes, and asks it no more often than it must. It is safe for
// concurrent use.
type LinkTypes struct {
	query func(types []string) (missing []string, err error)
	clock clock.PassiveClock

	mu      sync.Mutex
	made    map[string]bool
	missing map[string]time.Time // when the kernel was asked
}

// NewLinkTypes asks by a function such as [MissingLinkTypes].
func NewLinkTypes(query func(types []string) (missing []string, err error), clock clock.PassiveClock) *LinkTypes {
	return &LinkTypes{query: query, clock: clock, made: map[string]bool{}, missing: map[string]time.Time{}}
}

// Missing returns those of some types that the kernel does not make, in their order. The error is that of the question;
// what is known already is right even then.
func (l *LinkTypes) Missing(types []string) ([]string, error) {
	now := l.clock.Now()
	var err error
	if unknown := l.unknown(types, now); len(unknown) > 0 {
		err = l.learn(unknown, now)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(types), func(linkType string) bool {
		_, isMissing := l.missing[linkType]
		return !isMissing
	}), err
}

// unknown returns those of some types that the kernel is to be asked for.
func (l *LinkTypes) unknown(types []string, now time.Time) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(types), func(linkType string) bool {
		asked, isMissing := l.missing[linkType]
		return l.made[linkType] || isMissing && now.Sub(asked) < missingFor
	})
}

// learn asks the kernel for types. Nobody waits for the lock meanwhile: the kernel may load modules.
func (l *LinkTypes) learn(types []string, now time.Time) error {
	missing, err := l.query(types)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, linkType := range types {
		delete(l.missing, linkType)
		l.made[linkType] = !slices.Contains(missing, linkType)
		if !l.made[linkType] {
			l.missing[linkType] = now
		}
	}
	return nil
}

// MissingLinkTypes returns those of some types of links (IFLA_INFO_KIND of rtnetlink(7), such as vlan) that the kernel
// does not make, in their order. It asks the kernel to make one of each in a network namespace that ends with the call:
// the kernel refuses a type that it does not know with EOPNOTSUPP (rtnl_newlink), and one that it knows, but that
// lacks a parent or a parameter, otherwise.
//
// The kernel loads the module of a type if there is one, and a module may make links of its own on the host (bonding
// makes bond0): ask for types of which the node has no module.
//
// The error says that no namespace could be made, as without root.
func MissingLinkTypes(types []string) (missing []string, err error) {
	err = onOwnThread(func() (err error) {
		missing, err = missingInNamespace(types)
		return err
	})
	return missing, err
}

// WithoutModule returns those of some types of links that the kernel loads no module for, in their order. Aliases is
// the text of modules.alias of the kernel. To ask [MissingLinkTypes] for these loads nothing.
func WithoutModule(types []string, aliases string) []string {
	loadable := map[string]bool{}
	for line := range strings.Lines(aliases) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "alias" {
			loadable[fields[1]] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(types), func(kind string) bool { return loadable["rtnl-link-"+kind] })
}

// UnavailableLinkTypes returns those of some types of links that the kernel neither makes nor has a module for, in
// their order. It is [MissingLinkTypes] for whoever wants no module loaded: a type counts as made if its module is
// there. Where the modules of the machine can't be seen, as in a container, the kernel is asked for all of them, and
// loads what it has, as it does for the driver. The error is that of MissingLinkTypes.
func UnavailableLinkTypes(types []string) ([]string, error) {
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return nil, fmt.Errorf("cannot read the release of the kernel: %w", err)
	}
	// Without the file there are no modules, or they are not to be seen.
	aliases, _ := os.ReadFile(path.Join("/lib/modules", unix.ByteSliceToString(kernel.Release[:]), "modules.alias"))
	unloadable := WithoutModule(types, string(aliases))
	if len(unloadable) == 0 {
		return nil, nil
	}
	return MissingLinkTypes(unloadable)
}

// missingInNamespace leaves the thread in a namespace of its own.
func missingInNamespace(types []string) ([]string, error) {
	namespace, err := netns.New()
	if err != nil {
		return nil, fmt.Errorf("cannot make a network namespace: %w; run as root", err)
	}
	defer func() { _ = namespace.Close() }() // only a file descriptor; the thread keeps the namespace
	var missing []string
	for i, kind := range types {
		if err := makeBare(fmt.Sprintf("kind%d", i), kind); errors.Is(err, unix.EOPNOTSUPP) {
			missing = append(missing, kind)
		}
	}
	return missing, nil
}

// makeBare asks the kernel for a link of a type in the namespace of the thread, without a parent or parameters. The
// functions of netlink would refuse some types without these themselves, as ipvlan, before the kernel has said a word.
// With the loopback device as parent, vlan is refused as if it were missing.
func makeBare(name, kind string) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(kind))
	request.AddData(info)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
