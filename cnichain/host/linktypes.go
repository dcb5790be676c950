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

// missingFor is how long a link type is considered missing before the kernel is queried again, since an administrator
// may have installed the module. Once a type is found to be supported, it is considered supported for the lifetime of
// this process.
const missingFor = time.Minute

// LinkTypes caches which link types the kernel supports. It is safe for concurrent use.
type LinkTypes struct {
	query func(types []string) (missing []string, err error)
	clock clock.PassiveClock

	mu    sync.Mutex
	known map[string]linkType
}

type linkType struct {
	missing bool
	asked   time.Time
}

// NewLinkTypes returns a cache that queries the kernel with a function such as [MissingLinkTypes].
func NewLinkTypes(query func(types []string) (missing []string, err error), clock clock.PassiveClock) *LinkTypes {
	return &LinkTypes{query: query, clock: clock, known: map[string]linkType{}}
}

// Missing returns the types that the kernel does not support, in the order of the argument. If a query fails, it
// returns the error and the cached results. It does not hold the lock during the query: the kernel may load modules,
// and claims that use other link types must not have to wait for a module that hangs.
func (l *LinkTypes) Missing(types []string) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	unknown := slices.DeleteFunc(slices.Clone(types), func(name string) bool {
		known, isKnown := l.known[name]
		return isKnown && (!known.missing || now.Sub(known.asked) < missingFor)
	})
	var err error
	if len(unknown) > 0 {
		l.mu.Unlock()
		missing, queryErr := l.query(unknown)
		l.mu.Lock()
		if err = queryErr; err == nil {
			for _, name := range unknown {
				l.known[name] = linkType{missing: slices.Contains(missing, name), asked: now}
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(types), func(name string) bool { return !l.known[name].missing }), err
}

// MissingLinkTypes returns the link types (IFLA_INFO_KIND in rtnetlink(7), such as vlan) that the kernel does not
// support, in the order of the argument. It tries to create a link of each type in a temporary network namespace. For
// an unknown type, the kernel returns EOPNOTSUPP (rtnl_newlink); for a supported type whose parent or parameters are
// missing, it returns a different error.
//
// The kernel loads the module for a type if there is one, and a module may create links of its own on the host (bonding
// creates bond0). Call MissingLinkTypes only for types that have no module on the node.
//
// It returns an error if it cannot create the namespace, for example without root privileges.
func MissingLinkTypes(types []string) (missing []string, err error) {
	err = onOwnThread(func() (err error) {
		missing, err = missingInNamespace(types)
		return err
	})
	return missing, err
}

// WithoutModule returns the link types for which the kernel has no module, in the order of the argument. aliases is the
// content of the kernel's modules.alias file. Calling [MissingLinkTypes] for the returned types does not load any
// modules.
func WithoutModule(types []string, aliases string) []string {
	loadable := map[string]bool{}
	for line := range strings.Lines(aliases) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "alias" {
			loadable[fields[1]] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(types), func(kind string) bool { return loadable["rtnl-link-"+kind] })
}

// UnavailableLinkTypes returns the link types that the kernel neither supports nor has a module for, in the order of
// the argument. It is like [MissingLinkTypes], but without loading modules: a type is considered supported if its
// module exists. If the machine's modules are not visible, for example in a container, it queries the kernel for all
// types, which loads modules just as creating the links would. Any error comes from MissingLinkTypes.
func UnavailableLinkTypes(types []string) ([]string, error) {
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return nil, fmt.Errorf("cannot read the release of the kernel: %w", err)
	}
	// If this file does not exist, the kernel has no modules, or they are not visible.
	aliases, _ := os.ReadFile(path.Join("/lib/modules", unix.ByteSliceToString(kernel.Release[:]), "modules.alias"))
	unloadable := WithoutModule(types, string(aliases))
	if len(unloadable) == 0 {
		return nil, nil
	}
	return MissingLinkTypes(unloadable)
}

// missingInNamespace returns the unsupported link types, and leaves the thread in a new namespace.
func missingInNamespace(types []string) ([]string, error) {
	namespace, err := netns.New()
	if err != nil {
		return nil, fmt.Errorf("cannot create a network namespace: %w; run as root", err)
	}
	defer func() { _ = namespace.Close() }() // this is only a file descriptor; the thread keeps the namespace
	var missing []string
	for i, kind := range types {
		if err := makeBare(fmt.Sprintf("kind%d", i), kind); errors.Is(err, unix.EOPNOTSUPP) {
			missing = append(missing, kind)
		}
	}
	return missing, nil
}

// makeBare requests a link of the given kind in the thread's namespace, without a parent or parameters. It does not use
// the functions in package netlink, since these reject some kinds without a parent, such as ipvlan, before the kernel
// sees the request. The loopback device cannot serve as the parent, because the kernel would then reject vlan as if it
// were not supported.
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
