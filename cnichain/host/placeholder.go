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

// PlaceholderNetns makes the namespace on a thread that ends with it. One that an earlier process left is replaced.
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
		return errors.Join(fmt.Errorf("cannot make an interface %s at %s for DEL: %w", name, path, err), h.Unpin(path))
	}
	return nil
}

// onOwnThread runs a function on a thread that may keep another namespace, since the thread ends after it. The main
// thread does not end, so it is not used.
//
// A thread in another namespace must not return to the scheduler, which could run any goroutine on it.
func onOwnThread(do func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			ended <- do()
			return // still locked: the thread ends
		}
		defer runtime.UnlockOSThread()
		ended <- onOwnThread(do) // on another, as this one is locked
	}()
	return <-ended
}

// NewNamespace makes an empty network namespace at a path where nothing is; Unpin removes it. It needs CAP_SYS_ADMIN.
func NewNamespace(path string) error {
	if err := onOwnThread(func() error { return enterNewNamespace(path) }); err != nil {
		return fmt.Errorf("cannot make a network namespace at %s: %w", path, err)
	}
	return nil
}

// enterNewNamespace is for a thread that ends. The mount keeps the namespace alive. It uses the thread's own path,
// since /proc/self/ns/net is the namespace of the main thread.
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

// addPlaceholderLink makes one end of a pair, since every kernel that has pods has pairs.
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
