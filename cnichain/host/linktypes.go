package host

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// MissingLinkTypes returns those of some types of links (IFLA_INFO_KIND of rtnetlink(7), such as vlan) that the kernel
// does not make, in their order. It asks the kernel to make one of each in a network namespace that ends with the call:
// the kernel refuses a type that it does not know with EOPNOTSUPP (rtnl_newlink), and one that it knows, but that
// lacks a parent or a parameter, otherwise.
//
// The kernel loads the module of a type if there is one, and a module may make links of its own on the host (bonding
// makes bond0): ask for types of which the node has no module.
//
// The error says that no namespace could be made, as without root.
func MissingLinkTypes(types []string) ([]string, error) {
	type answer struct {
		missing []string
		err     error
	}
	answers := make(chan answer)
	go func() {
		// The thread is never unlocked: it ends with this function, and the namespace with it.
		runtime.LockOSThread()
		missing, err := missingInNamespace(types)
		answers <- answer{missing, err}
	}()
	result := <-answers
	return result.missing, result.err
}

// missingInNamespace leaves the thread in a namespace of its own.
func missingInNamespace(types []string) ([]string, error) {
	namespace, err := netns.New()
	if err != nil {
		return nil, fmt.Errorf("cannot make a network namespace: %w; run as root", err)
	}
	defer func() { _ = namespace.Close() }() // only a file descriptor; the thread keeps the namespace
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("cannot open a netlink socket: %w", err)
	}
	defer handle.Close()
	var missing []string
	for i, kind := range types {
		link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("kind%d", i)}, LinkType: kind}
		if err := handle.LinkAdd(link); errors.Is(err, unix.EOPNOTSUPP) {
			missing = append(missing, kind)
		}
	}
	return missing, nil
}
