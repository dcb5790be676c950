package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// PlaceholderNetns replaces any namespace that an earlier process has left at the path.
func (h Linux) PlaceholderNetns(path, name string, addresses []net.IPNet) error {
	err := h.Unpin(path)
	if err == nil {
		err = NewNamespace(path)
	}
	if err == nil {
		err = inNamespace(path,
			func(handle *netlink.Handle) error { return addPlaceholderLink(handle, name, addresses) })
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot create an interface %s at %s for DEL: %w",
			name, path, err), h.Unpin(path))
	}
	return nil
}

// onOwnThread runs a function on a thread that terminates afterwards, so the function may leave the thread in another
// namespace. It never uses the main thread, which does not terminate.
//
// A thread in another namespace must not return to the scheduler, which could run any goroutine on it.
func onOwnThread(do func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			ended <- do()
			return // still locked: the thread terminates
		}
		defer runtime.UnlockOSThread()
		ended <- onOwnThread(do) // on another thread, since this one is locked
	}()
	return <-ended
}

// NewNamespace creates an empty network namespace at a path that must not exist; Unpin removes it. It requires
// CAP_SYS_ADMIN.
func NewNamespace(path string) error {
	if err := onOwnThread(func() error { return enterNewNamespace(path) }); err != nil {
		return fmt.Errorf("cannot create a network namespace at %s: %w", path, err)
	}
	return nil
}

// enterNewNamespace must run on a thread that terminates afterwards. The mount keeps the namespace alive. The mount's
// source is the thread's own path, since /proc/self/ns/net refers to the main thread's namespace.
func enterNewNamespace(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path, "none", unix.MS_BIND, "")
}

// addPlaceholderLink creates a veth pair and configures one end. It uses a veth pair because this link kind is
// available on every kernel that runs pods.
func addPlaceholderLink(handle *netlink.Handle, name string, addresses []net.IPNet) error {
	if err := handle.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name},
		PeerName: "other-end"}); err != nil {
		return err
	}
	link, err := handle.LinkByName(name)
	if err != nil {
		return err
	}
	for i := range addresses {
		if err := handle.AddrAdd(link, &netlink.Addr{IPNet: &addresses[i]}); err != nil {
			return err
		}
	}
	return nil
}
