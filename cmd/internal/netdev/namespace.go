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

// namespace is an open network namespace. It is not safe for concurrent use. A socket stays in the namespace in which
// it was created, so a thread only has to enter the namespace to create the socket; package netlink locks the thread
// while doing so.
type namespace struct {
	handle netns.NsHandle
	links  *netlink.Handle
}

// openNamespace opens the namespace at the given path.
func openNamespace(path string) (*namespace, error) {
	handle, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open network namespace %q: %w", path, err)
	}
	links, err := netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	if err != nil {
		_ = handle.Close()
		return nil, fmt.Errorf("cannot open a netlink socket in network namespace %q: %w", path, err)
	}
	return &namespace{handle: handle, links: links}, nil
}

// isGone reports whether an error from openNamespace means that the namespace no longer exists. Either the path does
// not exist, or no namespace is mounted on the file. In the latter case, the file can be opened, but setns fails with
// EINVAL.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EINVAL)
}

// openHost opens the current thread's namespace. It does not use /proc/self, which refers to the main thread, because a
// goroutine may have locked the main thread and left it in another namespace.
func openHost() (*namespace, error) { return openNamespace("/proc/thread-self/ns/net") }

func (n *namespace) close() {
	n.links.Close()
	_ = n.handle.Close()
}

// id returns a string that identifies the namespace as long as it exists. The ID consists of the device and inode of
// the namespace's file (namespaces(7)). The inode can be reused after the namespace is destroyed, so the ID in a record
// is only meaningful together with the link's index.
func (n *namespace) id() string { return n.handle.UniqueId() }

// has reports whether a link with the given index exists. If it does not, the kernel returns ENODEV, which package
// netlink converts to LinkNotFoundError. After any other error, it is unknown whether the link exists.
func (n *namespace) has(index int) (bool, error) {
	link, err := n.byIndex(index)
	return link != nil, err
}

// byIndex returns the link with the given index, or nil if there is none.
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

// owner returns the link with the given name or alternative name, or nil if there is none.
func (n *namespace) owner(name string) (netlink.Link, error) {
	link, err := n.links.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, nil
	}
	return link, err
}

// freeIndex returns an index that is neither in use nor reserved, preferably the requested one. If an application
// creates a link with the returned index before the move, the move fails.
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

// linkLocation consists of the namespace, name and index of a link.
type linkLocation struct {
	space *namespace
	name  string
	index int
	// inPod is true for the pod's namespace, and false for the host's.
	inPod bool
}

// describe returns this side's name for error messages, and the action that frees a link name there. Topologies and
// claims only set the name in the pod.
func (l linkLocation) describe() (side, action string) {
	if l.inPod {
		return "pod", "choose another ifName"
	}
	return "host", "rename that link"
}

// move moves a link from one location to another in a single request. The kernel first moves the link and then renames
// it, unless the old name is taken at the target. Before the request, move checks for known reasons why the rename
// would fail; if the rename still fails, move moves the link back.
//
// Separate requests for the move and the rename would not be safe: if the process were killed between them, the link
// would be in the pod under its host name, which could collide with the pod's own links.
func move(source, target linkLocation) error {
	if err := checkName(source, target); err != nil {
		return err
	}
	err := request(source, target)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("cannot move link %q: %w", source.name, err)
	// The kernel does not report how far it got with the request, so check both sides. Move the link back only if it is
	// certain that the link is in the target and not in the source; otherwise, an unrelated link could be moved.
	arrived, lookErr := target.space.has(target.index)
	stayed, stayErr := source.space.has(source.index)
	if lookErr != nil || stayErr != nil || !arrived || stayed {
		return errors.Join(err, lookErr, stayErr)
	}
	return errors.Join(err, request(target, source))
}

// checkName returns an error if a link cannot be given its new name at the target.
func checkName(source, target linkLocation) error {
	link, err := source.space.links.LinkByIndex(source.index)
	if err != nil {
		return fmt.Errorf("cannot find link %q: %w", source.name, err)
	}
	if slices.Contains(link.Attrs().AltNames, target.name) {
		const problem = "cannot rename link %q to %q: it is an alternative name of the link; remove that name"
		return fmt.Errorf(problem, link.Attrs().Name, target.name)
	}
	side, action := target.describe()
	other, err := target.space.owner(target.name)
	if err != nil {
		return fmt.Errorf("cannot move link %q to the %s: cannot look for the name %q: %w", link.Attrs().Name, side,
			target.name, err)
	}
	if other != nil {
		// Include the kernel's error, because the error shows that the existing link does not belong to this plugin.
		return fmt.Errorf("cannot move link %q to the %s: the name %q is taken by link %q: %w; %s", link.Attrs().Name,
			side, target.name, other.Attrs().Name, unix.EEXIST, action)
	}
	return nil
}

// request moves and renames a link in a single netlink message. Kernels before 5.13 ignore the requested index and
// choose one themselves. The socket is in the source namespace, where the kernel looks up link.Index; the descriptor
// refers to the target (IFLA_NET_NS_FD). The kernel responds once the link has arrived. do_setlink holds the lock for
// link changes (RTNL) throughout, so no other request can change a link between the move and the rename.
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
