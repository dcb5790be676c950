package discovery

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// What package nl lacks of the kernel's include/uapi/rdma/rdma_netlink.h: RDMA_NLDEV_CMD_PORT_GET,
// RDMA_NLDEV_ATTR_NDEV_INDEX and RDMA_NLDEV_ATTR_DEV_PROTOCOL.
const (
	rdmaGetPort      = 5
	rdmaAttrNetdev   = 50
	rdmaAttrProtocol = 67
)

// RDMANetns implements Hardware. The mode is one of the whole machine, so any namespace may be asked.
func (k *kernel) RDMANetns() string {
	handle, err := netlink.NewHandle(unix.NETLINK_RDMA)
	if err != nil {
		return ""
	}
	defer handle.Close()
	if mode, err := handle.RdmaSystemGetNetnsMode(); err == nil && (mode == RDMAShared || mode == RDMAExclusive) {
		return mode
	}
	return ""
}

// RDMADevices implements Hardware.
func (k *kernel) RDMADevices() ([]RDMADevice, error) {
	messages, err := k.getRDMA(nl.RDMA_NLDEV_CMD_GET)
	if err != nil {
		return nil, err
	}
	return rdmaDevicesIn(messages)
}

// RDMALinks implements Hardware. The kernel tells only of links in the namespace of who asks (fill_port_info of its
// drivers/infiniband/core/nldev.c).
func (k *kernel) RDMALinks(device int) ([]int, error) {
	messages, err := k.getRDMA(rdmaGetPort, nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_DEV_INDEX, nl.Uint32Attr(uint32(device))))
	if err != nil {
		return nil, err
	}
	return rdmaLinksIn(messages)
}

// getRDMA dumps what a command of RDMA_NL_NLDEV gets. The socket does not outlive the question: as long as it is
// open, the kernel's RDMA modules cannot be unloaded.
func (k *kernel) getRDMA(command int, data ...nl.NetlinkRequestData) ([][]byte, error) {
	socket, err := k.openRDMA()
	if err != nil {
		return nil, fmt.Errorf("cannot open a netlink socket: %w", err)
	}
	defer socket.Close()
	request := nl.NewNetlinkRequest(nl.RDMA_NL_NLDEV<<nl.RDMA_NL_GET_CLIENT_SHIFT|command, unix.NLM_F_DUMP)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_RDMA: {Socket: socket}}
	for _, d := range data {
		request.AddData(d)
	}
	return request.Execute(unix.NETLINK_RDMA, 0)
}

// openRDMA opens a socket in the namespace that the kernel's links are read in. To enter it takes a privilege, which a
// thread that is in it does not need.
func (k *kernel) openRDMA() (*nl.NetlinkSocket, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	current, err := netns.Get()
	if err != nil {
		return nil, err
	}
	defer func() { _ = current.Close() }() // nothing was written
	target := netns.None()
	if !current.Equal(k.netns) {
		target = k.netns
	}
	return nl.GetNetlinkSocketAt(target, netns.None(), unix.NETLINK_RDMA)
}

// rdmaDevicesIn returns the devices that messages tell of. A dump in which one appears or goes may list another twice.
func rdmaDevicesIn(messages [][]byte) ([]RDMADevice, error) {
	devices := make([]RDMADevice, 0, len(messages))
	known := map[int]bool{}
	for _, message := range messages {
		attributes, err := rdmaAttributes(message)
		if err != nil {
			return nil, err
		}
		index, ok := rdmaNumber(attributes[nl.RDMA_NLDEV_ATTR_DEV_INDEX])
		if !ok {
			return nil, errors.New("the kernel tells of an RDMA device without an index")
		}
		if known[index] {
			continue
		}
		known[index] = true
		devices = append(devices, RDMADevice{Index: index,
			Name:      unix.ByteSliceToString(attributes[nl.RDMA_NLDEV_ATTR_DEV_NAME]),
			LinkLayer: rdmaLinkLayer(unix.ByteSliceToString(attributes[rdmaAttrProtocol]))})
	}
	return devices, nil
}

// rdmaLinksIn returns the indexes of the links that messages about ports tell of, sorted. If a driver fails for a port
// the kernel ends the list there without an error.
func rdmaLinksIn(messages [][]byte) ([]int, error) {
	if len(messages) == 0 {
		return nil, errors.New("the kernel tells of no port")
	}
	var links []int
	for _, message := range messages {
		attributes, err := rdmaAttributes(message)
		if err != nil {
			return nil, err
		}
		if index, ok := rdmaNumber(attributes[rdmaAttrNetdev]); ok {
			links = append(links, index)
		}
	}
	return sortedIndexes(links), nil
}

// rdmaAttributes returns the attributes of a message by type. RDMA messages have no header of their family. Package nl's
// ParseRouteAttr panics on a last attribute without padding.
func rdmaAttributes(message []byte) (map[uint16][]byte, error) {
	attributes := map[uint16][]byte{}
	for rest := message; len(rest) > 0; {
		if len(rest) < unix.SizeofNlAttr {
			return nil, errNoAttributes
		}
		length, kind := int(nl.NativeEndian().Uint16(rest)), nl.NativeEndian().Uint16(rest[2:])
		if length < unix.SizeofNlAttr || length > len(rest) {
			return nil, errNoAttributes
		}
		attributes[kind&nl.NLA_TYPE_MASK] = rest[unix.SizeofNlAttr:length]
		padded := (length + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1)
		rest = rest[min(padded, len(rest)):]
	}
	return attributes, nil
}

var errNoAttributes = errors.New("cannot understand what the kernel says of RDMA devices: attributes are cut off")

// rdmaNumber returns the number in an attribute, and whether there is one.
func rdmaNumber(value []byte) (int, bool) {
	if len(value) != 4 {
		return 0, false
	}
	return int(nl.NativeEndian().Uint32(value)), true
}

// rdmaLinkLayer returns the link layer below a protocol, by the names that fill_dev_info of the kernel's nldev.c has.
func rdmaLinkLayer(protocol string) string {
	switch protocol {
	case "ib", "opa":
		return RDMAInfiniBand
	case "roce", "iw", "usnic":
		return RDMAEthernet
	}
	return ""
}
