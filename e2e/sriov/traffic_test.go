package sriov

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	testbench "github.com/dra-networking/dra-network-driver/e2e/internal/bench"
)

// testProtocol is an EtherType for local experiments (IEEE 802).
const testProtocol = 0x88b5

// forged sends frames with a forged source address, and reports whether one of them arrived.
func forged(origin, target *pod, name string) (bool, error) {
	source := net.HardwareAddr{2, 0, 0, 0, 0, 0x66}
	receiver, _, err := packetSocket(target, name)
	if err != nil {
		return false, err
	}
	defer func() { _ = receiver.Close() }() // used only for reading
	sender, index, err := packetSocket(origin, name)
	if err != nil {
		return false, err
	}
	defer func() { _ = sender.Close() }() // the data was already sent
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, source...)
	frame = append(frame, testProtocol>>8, testProtocol&0xff)
	frame = append(frame, make([]byte, 46)...)
	raw, err := sender.SyscallConn()
	if err != nil {
		return false, err
	}
	buffer := make([]byte, 128)
	for range testbench.Silence {
		var sent error
		err := raw.Write(func(fd uintptr) bool {
			sent = unix.Sendto(int(fd), frame, 0, &unix.SockaddrLinklayer{Ifindex: index, Halen: 6})
			return true
		})
		if err := errors.Join(err, sent, receiver.SetReadDeadline(time.Now().Add(testbench.Interval))); err != nil {
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

// packetSocket opens a socket for test protocol frames on a link in a pod.
func packetSocket(p *pod, name string) (file *os.File, index int, err error) {
	const protocol = testProtocol>>8 | testProtocol&0xff<<8 // in network byte order
	err = p.Enter(func() error {
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
