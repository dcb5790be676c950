package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
)

// Pod is a network namespace that usually stands in for a pod. It has an attachment if a driver in the test manages it.
type Pod struct {
	// Path is the path of the namespace.
	Path string
	// Attachment is nil if the driver does not manage the namespace. Add, Del, Attach, Detach and Destroy require it.
	Attachment *executor.Attachment

	bench  *Bench
	driver *Driver
}

// PodAt returns the network namespace at a path, without an attachment.
func (b *Bench) PodAt(path string) *Pod { return &Pod{Path: path, bench: b} }

// Add attaches the pod's devices.
func (p *Pod) Add() error {
	return p.driver.Executor.Add(context.Background(), p.Attachment, p.Path, "node")
}

// Del detaches the pod's devices.
func (p *Pod) Del() error { return p.driver.Executor.Del(context.Background(), p.Attachment) }

// Attach calls Add and fails the test on error.
func (p *Pod) Attach() {
	p.bench.Helper()
	p.bench.Must(p.Add())
}

// Detach calls Del and fails the test on error.
func (p *Pod) Detach() {
	p.bench.Helper()
	p.bench.Must(p.Del())
}

// Destroy removes all references to the pod's namespace, so that the kernel destroys it while the driver still uses it.
func (p *Pod) Destroy() {
	p.bench.Helper()
	cnitest.RemovePod(p.Path)
	p.bench.Must(host.Linux{}.Unpin(p.Attachment.Pin))
}

// Enter runs do on a new thread in the namespace. The thread terminates when do returns.
func (p *Pod) Enter(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread terminates with the goroutine
		file, err := os.Open(p.Path)
		if err == nil {
			err = errors.Join(unix.Setns(int(file.Fd()), unix.CLONE_NEWNET), file.Close())
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// Inside is like Enter, but fails the test on error.
func (p *Pod) Inside(do func() error) {
	p.bench.Helper()
	p.bench.Must(p.Enter(do))
}

// WithLink enters the namespace and passes the link with the given name to each function in turn, until one returns an
// error. The link must exist.
func (p *Pod) WithLink(name string, things ...func(netlink.Link) error) {
	p.bench.Helper()
	p.Inside(func() error {
		link, err := netlink.LinkByName(name)
		for _, do := range things {
			if err == nil {
				err = do(link)
			}
		}
		return err
	})
}

// Links describes the links in the pod, except lo and eth0.
func (p *Pod) Links() (lines []string) {
	p.bench.Helper()
	p.Inside(func() error {
		links, err := netlink.LinkList()
		for _, link := range links {
			attrs := link.Attrs()
			if attrs.Name != "lo" && attrs.Name != "eth0" {
				lines = append(lines, fmt.Sprintf("%s %s mtu %d up %v", attrs.Name, link.Type(), attrs.MTU,
					attrs.Flags&net.FlagUp != 0))
			}
		}
		return err
	})
	slices.Sort(lines)
	return lines
}

const (
	port = "4242"
	// Interval is the time between messages.
	Interval = 100 * time.Millisecond
	// Silence is the number of lost messages after which pods are considered isolated. Sending that many messages takes
	// several times as long as it takes for the first message to arrive between two connected pods.
	Silence = 25
)

// crosses sends up to the given number of messages to an address in another pod until one arrives, and reports whether
// one did.
func (p *Pod) crosses(target *Pod, address string, messages int) (bool, error) {
	var receiver net.PacketConn
	err := target.Enter(func() (err error) {
		receiver, err = net.ListenPacket("udp4", net.JoinHostPort(address, port))
		return err
	})
	if err != nil {
		return false, err
	}
	defer func() { _ = receiver.Close() }() // used only for reading
	var sender net.Conn
	err = p.Enter(func() (err error) {
		sender, err = net.Dial("udp4", net.JoinHostPort(address, port))
		return err
	})
	if err != nil {
		return false, err
	}
	defer func() { _ = sender.Close() }() // the data was already sent
	buffer := make([]byte, 16)
	for range messages {
		_, _ = sender.Write([]byte("x")) // the error may be for the previous packet, which had no receiver
		if err := receiver.SetReadDeadline(time.Now().Add(Interval)); err != nil {
			return false, err
		}
		if _, _, err = receiver.ReadFrom(buffer); err == nil {
			return true, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return false, err
		}
	}
	return false, nil
}

// Reaches checks that a message to the target pod eventually arrives, and returns how long this took.
func (p *Pod) Reaches(target *Pod, address string) time.Duration {
	p.bench.Helper()
	start := time.Now()
	arrived, err := p.crosses(target, address, int(p.bench.Patience/Interval))
	p.bench.Must(err)
	if !arrived {
		p.bench.Fatalf("no message from %s reached %s", p.Path, address)
	}
	return time.Since(start)
}

// Isolated checks that no message to the target pod arrives.
func (p *Pod) Isolated(target *Pod, address string) {
	p.bench.Helper()
	arrived, err := p.crosses(target, address, Silence)
	p.bench.Must(err)
	if arrived {
		p.bench.Errorf("a message from %s reached %s, want none", p.Path, address)
	}
}
