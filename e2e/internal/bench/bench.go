package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/e2e/vm/guest"
)

// Keep the main thread in the machine's namespace; see the package comment.
var _ = func() bool { runtime.LockOSThread(); return true }()

// Bench represents the machine for the duration of one test. If a method cannot complete, it fails the test
// immediately.
type Bench struct {
	*testing.T
	// Patience is the time limit for each operation.
	Patience time.Duration
}

// New returns a Bench for this machine. If the test is not running on such a machine, New skips it with advice, which
// names the command to run instead.
func New(t *testing.T, patience time.Duration, advice string) *Bench {
	t.Helper()
	if os.Getenv(guest.Variable) == "" {
		t.Skip("needs a virtual machine of its own: " + advice)
	}
	b := &Bench{T: t, Patience: patience}
	b.Must(os.MkdirAll("/run/netns", 0o755))
	return b
}

// With returns the same machine for use in a subtest.
func (b *Bench) With(t *testing.T) *Bench { return &Bench{T: t, Patience: b.Patience} }

// Must fails the test immediately unless err is nil.
func (b *Bench) Must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// Eventually repeats check until it returns nil. If this takes longer than Patience, the test fails.
func (b *Bench) Eventually(what string, check func() error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), b.Patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.Fatalf("timed out waiting for %s after %s: %v", what, b.Patience, err)
		}
	}
}

// Exec runs a command that must succeed, and returns its output.
func (b *Bench) Exec(args ...string) string {
	b.Helper()
	output, err := b.TryExec(args...)
	b.Must(err)
	return output
}

// TryExec is like Exec, but for a command that may fail. It has a time limit, because some commands wait indefinitely
// for a daemon that is not running.
func (b *Bench) TryExec(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.Patience)
	defer cancel()
	output, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cannot run %q: %w: %s", args, err, output)
	}
	return strings.TrimSpace(string(output)), nil
}

// LinkByName returns a link in the calling thread's namespace.
func (b *Bench) LinkByName(name string) netlink.Link {
	b.Helper()
	link, err := netlink.LinkByName(name)
	b.Must(err)
	return link
}

// AddLink creates a link on the machine and sets it up. The link is deleted at the end of the test if it still exists.
func (b *Bench) AddLink(link netlink.Link) {
	b.Helper()
	b.Must(netlink.LinkAdd(link))
	b.Cleanup(func() {
		var missing netlink.LinkNotFoundError
		if err := netlink.LinkDel(link); err != nil && !errors.As(err, &missing) && !errors.Is(err, unix.ENODEV) {
			b.Error(err)
		}
	})
	b.Must(netlink.LinkSetUp(link))
}

// SysPCI returns the path of a PCI function, or of one of its files, in sysfs.
func SysPCI(parts ...string) string {
	return filepath.Join(append([]string{"/sys/bus/pci/devices"}, parts...)...)
}

// FindLink returns a PCI function's link. It returns an error unless the machine's own namespace contains exactly one
// such link.
func FindLink(address string) (netlink.Link, error) {
	links, err := os.ReadDir(SysPCI(address, "net"))
	if err != nil {
		return nil, err
	}
	if len(links) != 1 {
		return nil, fmt.Errorf("cannot find the link of %s: it has %d links here, want one", address, len(links))
	}
	return netlink.LinkByName(links[0].Name())
}

// LinkOf is like FindLink, but fails the test on error.
func (b *Bench) LinkOf(address string) netlink.Link {
	b.Helper()
	link, err := FindLink(address)
	b.Must(err)
	return link
}

// SetVFs changes the number of virtual functions on a physical function, and returns once all their links exist. It
// first sets the number to zero, because the kernel requires this.
func (b *Bench) SetVFs(pf string, count int) {
	b.Helper()
	b.Must(os.WriteFile(SysPCI(pf, "sriov_numvfs"), []byte(strconv.Itoa(count)), 0))
	b.Eventually(fmt.Sprintf("links of %d virtual functions of %s", count, pf), func() error {
		links, err := filepath.Glob(SysPCI(pf, "virtfn*", "net", "*"))
		if err == nil && len(links) != count {
			err = fmt.Errorf("there are %q", links)
		}
		return err
	})
}

// VF returns the PCI address of a virtual function.
func (b *Bench) VF(pf string, index int) string {
	b.Helper()
	target, err := os.Readlink(SysPCI(pf, fmt.Sprintf("virtfn%d", index)))
	b.Must(err)
	return filepath.Base(target)
}
