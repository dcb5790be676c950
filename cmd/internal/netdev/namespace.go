package netdev

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespace is a network namespace that is open. It is used by one goroutine. Its sockets stay in the namespace in
// which they were made, so a thread has to enter it only for that: package netlink locks one meanwhile.
type namespace struct {
	handle netns.NsHandle
	links  *netlink.Handle
}

// openNamespace opens the namespace at a path.
func openNamespace(path string) (*namespace, error) {
	handle, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open network namespace %q: %w", path, err)
	}
	links, err := netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	if err != nil {
		_ = handle.Close()
		return nil, fmt.Errorf("cannot ask for the links of network namespace %q: %w", path, err)
	}
	return &namespace{handle: handle, links: links}, nil
}

// isGone reports whether a namespace could not be opened since nothing is at its path, or a file on which none is
// mounted any more. The kernel answers EINVAL for such a file: it opens like any other, and only setns refuses it.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EINVAL)
}

// openHost opens the namespace of this process. Not /proc/self: that is the main thread, which is in another namespace
// if a goroutine was locked to it and left it so.
func openHost() (*namespace, error) { return openNamespace("/proc/thread-self/ns/net") }

func (n *namespace) close() {
	n.links.Close()
	_ = n.handle.Close()
}

// id tells namespaces apart while they are there. It is made of the device and inode of the namespace's file
// (namespaces(7)). An inode can be reused after the end of its namespace, so a record counts only together with the
// index of its link.
func (n *namespace) id() string { return n.handle.UniqueId() }

// has reports whether a link has an index. The kernel gives the error ENODEV for none, which netlink turns into
// LinkNotFoundError; any other error says nothing about the link.
func (n *namespace) has(index int) (bool, error) {
	link, err := n.byIndex(index)
	return link != nil, err
}

// byIndex is the link that has an index; nil if none has.
func (n *namespace) byIndex(index int) (netlink.Link, error) {
	link, err := n.links.LinkByIndex(index)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return link, nil
}

// owner is the link that has a name, or has it as an alternative name; nil if none has.
func (n *namespace) owner(name string) (netlink.Link, error) {
	link, err := n.links.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, nil
	}
	return link, err
}

// freeIndex is an index that no link has and that is not reserved: the wanted one if possible. It is free at this
// moment only: if an application makes a link with it meanwhile, the move fails.
func (n *namespace) freeIndex(wanted int, reserved ...int) (int, error) {
	taken, err := n.has(wanted)
	if err != nil || !taken && !slices.Contains(reserved, wanted) {
		return wanted, err
	}
	links, err := n.links.LinkList()
	if err != nil {
		return 0, fmt.Errorf("cannot list links: %w", err)
	}
	highest := slices.Max(append(reserved, wanted))
	for _, link := range links {
		highest = max(highest, link.Attrs().Index)
	}
	return highest + 1, nil
}

// linkLocation is where a link is, and what it is called there.
type linkLocation struct {
	space *namespace
	name  string
	index int
	// inPod is true for the pod's namespace, false for the host's.
	inPod bool
}

// describe returns the side and what a user changes to free a name there: only the pod's name of a link is chosen in a
// topology or claim.
func (l linkLocation) describe() (side, action string) {
	if l.inPod {
		return "pod", "choose another ifName"
	}
	return "host", "rename that link"
}

// move moves the link at one place to another in a single request. The kernel moves first and renames then, unless the
// old name is taken there: what would make the second fail is looked for before, and if it fails nevertheless, the link
// goes back.
//
// Two requests, move and rename, were the alternative: a process that is killed between them leaves a link in the pod
// under its name of the host, where it may collide with the pod's own links.
func move(source, target linkLocation) error {
	if err := checkName(source, target); err != nil {
		return err
	}
	err := request(source, target)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("cannot move link %q: %w", source.name, err)
	// The kernel does not say how far it came, so both sides are asked. Only a link that is surely in the target, and
	// surely not in the source, is sent back: anything else could move a stranger.
	arrived, lookErr := target.space.has(target.index)
	stayed, stayErr := source.space.has(source.index)
	if lookErr != nil || stayErr != nil || !arrived || stayed {
		return errors.Join(err, lookErr, stayErr)
	}
	return errors.Join(err, request(target, source))
}

// checkName returns an error if a link cannot have the name that it is to get at its target.
func checkName(source, target linkLocation) error {
	link, err := source.space.links.LinkByIndex(source.index)
	if err != nil {
		return fmt.Errorf("cannot find link %q: %w", source.name, err)
	}
	if slices.Contains(link.Attrs().AltNames, target.name) {
		const problem = "cannot rename link %q to %q: it is an alternative name of the link; remove that"
		return fmt.Errorf(problem, link.Attrs().Name, target.name)
	}
	side, action := target.describe()
	other, err := target.space.owner(target.name)
	if err != nil {
		return fmt.Errorf("cannot move link %q to the %s: cannot look for the name %q: %w", link.Attrs().Name, side,
			target.name, err)
	}
	if other != nil {
		// With the kernel's words for it: a runtime can tell by them that the link of that name is not this plugin's.
		return fmt.Errorf("cannot move link %q to the %s: the name %q is taken by link %q: %w; %s", link.Attrs().Name,
			side, target.name, other.Attrs().Name, unix.EEXIST, action)
	}
	return nil
}

// request moves and renames a link in one netlink message. Kernels before 5.13 choose the index themselves. The socket
// is in the source namespace, which is where the kernel looks up link.Index; the descriptor names the target
// (IFLA_NET_NS_FD). The answer comes when the link has arrived: do_setlink holds the lock for changes of links (RTNL)
// throughout, so no other request changes a link between the move and the new name.
func request(source, target linkLocation) error {
	socket, err := nl.GetNetlinkSocketAt(source.space.handle, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("cannot open a netlink socket: %w", err)
	}
	defer socket.Close()
	order := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	order.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	link := nl.NewIfInfomsg(unix.AF_UNSPEC)
	link.Index = int32(source.index) //nolint:gosec // the kernel's own
	order.AddData(link)
	order.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(target.space.handle)))) //nolint:gosec // a descriptor
	order.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(target.name)))
	order.AddData(nl.NewRtAttr(unix.IFLA_NEW_IFINDEX, nl.Uint32Attr(uint32(target.index)))) //nolint:gosec // the kernel's own
	_, err = order.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
