package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// receiveBuffer is large enough for notifications about a few thousand links.
const receiveBuffer = 1 << 20

// KernelEvents returns the kernel's notifications about links, routes and devices. Device events are needed because a
// function that is rebound to another driver, such as vfio-pci, may never have had a link. The notifications cover the
// network namespace of the subscribing thread, which is the process's namespace unless the thread has entered another.
func KernelEvents() Events {
	return kernelEvents{}
}

type kernelEvents struct{}

// Subscribe implements Events.
func (kernelEvents) Subscribe(ctx context.Context, changed func()) (<-chan error, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	err := errors.Join(
		subscribeLinks(ctx, changed, cancel), subscribeRoutes(ctx, changed, cancel), subscribeUevents(ctx,
			changed, cancel))
	if err != nil {
		cancel(err)
		return nil, err
	}
	broken := make(chan error, 1)
	context.AfterFunc(ctx, func() { broken <- context.Cause(ctx) })
	return broken, nil
}

// subscribeLinks calls changed for each link event until ctx is done. It passes socket errors to failed, for example
// ENOBUFS if events were lost because the buffer was full; the reader must then list everything again.
func subscribeLinks(ctx context.Context, changed func(), failed context.CancelCauseFunc) error {
	updates := make(chan netlink.LinkUpdate)
	err := netlink.LinkSubscribeWithOptions(updates, ctx.Done(), netlink.LinkSubscribeOptions{
		ErrorCallback: failed, ReceiveBufferSize: receiveBuffer})
	if err != nil {
		return fmt.Errorf("links: %w", err)
	}
	go drain(updates, changed, failed)
	return nil
}

// subscribeRoutes is like subscribeLinks, but for routes, because a route can mean that the node uses a link.
func subscribeRoutes(ctx context.Context, changed func(), failed context.CancelCauseFunc) error {
	updates := make(chan netlink.RouteUpdate)
	err := netlink.RouteSubscribeWithOptions(updates, ctx.Done(), netlink.RouteSubscribeOptions{
		ErrorCallback: failed, ReceiveBufferSize: receiveBuffer})
	if err != nil {
		return fmt.Errorf("routes: %w", err)
	}
	go drain(updates, changed, failed)
	return nil
}

// drain calls changed for every update, and failed when the channel is closed.
func drain[T any](updates <-chan T, changed func(), failed context.CancelCauseFunc) {
	for range updates {
		changed()
	}
	failed(errors.New("the netlink socket was closed"))
}

// subscribeUevents is like subscribeLinks, but for device events, because netlink's route family reports neither driver
// changes nor changes in the number of virtual functions.
func subscribeUevents(ctx context.Context, changed func(), failed context.CancelCauseFunc) error {
	socket, err := openUevents()
	if err != nil {
		return fmt.Errorf("uevents: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = socket.Close() }) // opened for reading only
	go func() { failed(readUevents(socket, changed)) }()
	return nil
}

// openUevents opens a socket that receives the messages that the kernel sends to udev.
func openUevents() (*os.File, error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, err
	}
	const kernelGroup = 1 // udev sends its messages to another group
	err = unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup})
	if err == nil {
		err = unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	}
	if err != nil {
		_ = unix.Close(socket)
		return nil, err
	}
	return os.NewFile(uintptr(socket), "uevents"), nil
}

// readUevents calls changed for each message about network devices until reading fails, and returns the error.
func readUevents(reader io.Reader, changed func()) error {
	message := make([]byte, 8192) // the kernel's UEVENT_BUFFER_SIZE is 2048, not including the path
	for {
		length, err := reader.Read(message)
		if err != nil {
			return fmt.Errorf("cannot read uevents: %w", err)
		}
		if isAboutNetwork(message[:length]) {
			changed()
		}
	}
}

// isAboutNetwork reports whether a uevent is from a subsystem that discovery reads. A uevent consists of ACTION@PATH
// and variables, each terminated by a zero byte.
func isAboutNetwork(message []byte) bool {
	for variable := range bytes.SplitSeq(message, []byte{0}) {
		switch string(variable) {
		case "SUBSYSTEM=net", "SUBSYSTEM=pci", "SUBSYSTEM=infiniband":
			return true
		}
	}
	return false
}
