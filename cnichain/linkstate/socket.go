package linkstate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// socket is a netlink socket in the network namespace of the thread that opened it. Unlike the sockets of the netlink
// library, it can send several requests with one system call: reading a link takes about thirty requests while a pod
// waits.
type socket struct {
	file     int
	sequence uint32
	buffer   []byte
}

const (
	// maxMessage is the size of the netlink library's receive buffer. The kernel splits longer dumps.
	maxMessage = 64 << 10
	// receiveBuffer is large enough for the replies to all requests needed to read one link; a long reply is a few KiB.
	receiveBuffer = 1 << 20
	answerSeconds = 60 // as in the netlink library
)

func openSocket(protocol int) (*socket, error) {
	file, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err == nil {
		err = errors.Join(unix.SetsockoptInt(file, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer),
			unix.SetsockoptTimeval(file, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerSeconds}))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open a netlink socket: %w", err)
	}
	return &socket{file: file, buffer: make([]byte, maxMessage)}, nil
}

func (s *socket) close() { _ = unix.Close(s.file) }

// answer holds the payloads of the kernel's replies to a request, or the error that the kernel returned.
type answer struct {
	messages [][]byte
	err      error
	complete bool
}

// call sends requests and returns the replies in the same order. Only the last request may be a dump.
func (s *socket) call(requests ...*nl.NetlinkRequest) ([]answer, error) {
	var data []byte
	first := s.sequence + 1
	for _, request := range requests {
		s.sequence++
		request.Seq = s.sequence
		data = append(data, request.Serialize()...)
	}
	if err := unix.Sendto(s.file, data, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("cannot send netlink requests: %w", err)
	}
	answers := make([]answer, len(requests))
	for remaining := len(requests); remaining > 0; {
		messages, err := s.receive()
		if err != nil {
			return nil, fmt.Errorf("cannot receive netlink replies: %w", err)
		}
		for i := range messages {
			number := messages[i].Header.Seq - first
			if number >= uint32(len(answers)) || answers[number].complete { //nolint:gosec // a small number
				continue // for example the acknowledgment of an earlier request
			}
			if answers[number].add(&messages[i]); answers[number].complete {
				remaining--
			}
		}
	}
	return answers, nil
}

// add adds a message to the answer.
func (a *answer) add(message *syscall.NetlinkMessage) {
	switch message.Header.Type {
	case unix.NLMSG_ERROR, unix.NLMSG_DONE:
		a.complete = true
		if len(message.Data) >= 4 {
			if number := int32(binary.NativeEndian.Uint32(message.Data)); number != 0 {
				a.err = syscall.Errno(-number) //nolint:gosec // negative
			}
		}
	default:
		a.messages = append(a.messages, bytes.Clone(message.Data))
		a.complete = message.Header.Flags&unix.NLM_F_MULTI == 0
	}
	if message.Header.Flags&unix.NLM_F_DUMP_INTR != 0 {
		a.err = netlink.ErrDumpInterrupted
	}
}

// receive returns the next messages from the kernel. They are valid until the next call.
func (s *socket) receive() ([]syscall.NetlinkMessage, error) {
	for {
		n, address, err := unix.Recvfrom(s.file, s.buffer, 0)
		switch sender, ok := address.(*unix.SockaddrNetlink); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case ok && sender.Pid == nl.PidKernel:
			return syscall.ParseNetlinkMessage(s.buffer[:n])
		}
	}
}

// do is like call, but for a single request.
func (s *socket) do(request *nl.NetlinkRequest) ([][]byte, error) {
	answers, err := s.call(request)
	if err != nil {
		return nil, err
	}
	return answers[0].messages, answers[0].err
}
