package sriov

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	port = "4242"
	// interval is between two messages; silence is how many are sent before it is believed that none arrives. That many
	// take several times as long as the first of two pods that see each other takes.
	interval = 100 * time.Millisecond
	silence  = 25
)

// crosses sends messages from one pod to an address of another until one arrives, and says whether one did.
func crosses(origin, target *pod, address string, messages int) (bool, error) {
	var receiver net.PacketConn
	err := inThread(target.path, func() (err error) {
		receiver, err = net.ListenPacket("udp4", net.JoinHostPort(address, port))
		return err
	})
	if err != nil {
		return false, err
	}
	defer func() { _ = receiver.Close() }() // is only read
	var sender net.Conn
	err = inThread(origin.path, func() (err error) {
		sender, err = net.Dial("udp4", net.JoinHostPort(address, port))
		return err
	})
	if err != nil {
		return false, err
	}
	defer func() { _ = sender.Close() }() // what was sent was sent
	buffer := make([]byte, 16)
	for range messages {
		_, _ = sender.Write([]byte("x")) // that nobody is there yet is an error of the one before
		if err := receiver.SetReadDeadline(time.Now().Add(interval)); err != nil {
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

// reaches expects that messages come through, sooner or later, and returns after how long the first did.
func (p *pod) reaches(target *pod, address string) time.Duration {
	p.Helper()
	start := time.Now()
	arrived, err := crosses(p, target, address, int(patience/interval))
	p.must(err)
	if !arrived {
		p.Fatalf("nothing comes through from %s to %s", p.path, address)
	}
	return time.Since(start)
}

// isolated expects that no message comes through.
func (p *pod) isolated(target *pod, address string) {
	p.Helper()
	arrived, err := crosses(p, target, address, silence)
	p.must(err)
	if arrived {
		p.Errorf("a message from %s came through to %s", p.path, address)
	}
}

// testProtocol is an Ethernet type for local experiments (IEEE 802).
const testProtocol = 0x88b5

// forged sends frames from an address that is not the sender's, and says whether one arrived.
func forged(origin, target *pod, name string) (bool, error) {
	source := net.HardwareAddr{2, 0, 0, 0, 0, 0x66}
	receiver, _, err := packetSocket(target.path, name)
	if err != nil {
		return false, err
	}
	defer func() { _ = receiver.Close() }() // is only read
	sender, index, err := packetSocket(origin.path, name)
	if err != nil {
		return false, err
	}
	defer func() { _ = sender.Close() }() // what was sent was sent
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, source...)
	frame = append(frame, testProtocol>>8, testProtocol&0xff)
	frame = append(frame, make([]byte, 46)...)
	raw, err := sender.SyscallConn()
	if err != nil {
		return false, err
	}
	buffer := make([]byte, 128)
	for range silence {
		var sent error
		err := raw.Write(func(fd uintptr) bool {
			sent = unix.Sendto(int(fd), frame, 0, &unix.SockaddrLinklayer{Ifindex: index, Halen: 6})
			return true
		})
		if err := errors.Join(err, sent, receiver.SetReadDeadline(time.Now().Add(interval))); err != nil {
			return false, err
		}
		n, err := receiver.Read(buffer)
		if err == nil && n >= 12 && net.HardwareAddr(buffer[6:12]).String() == source.String() {
			return true, nil
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return false, err
		}
	}
	return false, nil
}

// packetSocket opens a socket for frames of the test protocol on a link of a namespace.
func packetSocket(namespace, name string) (file *os.File, index int, err error) {
	const protocol = testProtocol>>8 | testProtocol&0xff<<8 // in network order
	err = inThread(namespace, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		index = link.Attrs().Index
		socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		file = os.NewFile(uintptr(socket), "packets")
		return unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: index})
	})
	return file, index, err
}
