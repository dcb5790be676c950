// Package rdmalink lists, moves and renames RDMA devices through netlink (NETLINK_RDMA,
// drivers/infiniband/core/nldev.c).
//
// Invariant: it implements requests to the kernel and does not depend on pods or on how devices are
// used.
//
// Sysfs provides less information: /sys/class/infiniband only contains the devices in the reader's network namespace,
// and /sys/class/infiniband_verbs contains the devices in all namespaces, where two devices may have the same name.
// Netlink uses the namespace of its socket, and a device keeps its netlink index when it is moved or renamed.
package rdmalink

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The network namespace modes: either all network namespaces can use all RDMA devices, or each device belongs to one
// namespace.
const (
	Shared    = "shared"
	Exclusive = "exclusive"
)

// The kinds of character devices, as they are named in requests to the kernel.
const (
	Verbs             = "uverbs"
	ConnectionManager = "rdma_cm"
	Management        = "umad"
	SubnetManagement  = "issm"
)

// Constants from include/uapi/rdma/rdma_netlink.h that the netlink library does not define.
const (
	commandPortGet    = 5
	commandGetChardev = 15
	attributeNdev     = 50
	attributeProtocol = 67
	attributeType     = 69
	attributeName     = 70
)

// Device is an RDMA device as it appears in a network namespace.
type Device struct {
	// Index is assigned by the kernel and is unique within a boot.
	Index uint32
	Name  string
	// Protocol is ib, roce, iw, opa or usnic. It is empty before Linux 5.1, and for devices without a port.
	Protocol string
	// Ports is the number of ports.
	Ports uint32
	// Links contains the sorted indexes of the links that underlie the ports and are in the namespace.
	Links []int
	// LinksUnknown is true if the kernel driver did not report the links behind all ports, so Links may be incomplete.
	LinksUnknown bool
}

// Handle sends requests in one network namespace. It is not safe for concurrent use.
type Handle struct {
	handle *netlink.Handle
	// socket also stores the number of the last request, since responses are matched by request number.
	socket *nl.SocketHandle
}

// Open opens a handle in the network namespace at the given path. An empty path means the caller's namespace. See
// [OpenAt].
func Open(path string) (*Handle, error) {
	if path == "" {
		return OpenAt(netns.None())
	}
	namespace, err := netns.GetFromPath(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = namespace.Close() }() // nothing was written
	return OpenAt(namespace)
}

// OpenAt opens a handle in a network namespace; netns.None() means the caller's namespace, which requires no privilege.
// If the kernel does not support RDMA, the error is unix.EPROTONOSUPPORT. Opening a handle may cause the kernel to load
// its RDMA module, so open a handle only if there are RDMA devices. The kernel's RDMA modules cannot be unloaded while
// a handle is open.
func OpenAt(namespace netns.NsHandle) (*Handle, error) {
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_RDMA)
	if err != nil {
		return nil, fmt.Errorf("cannot query RDMA devices: %w", err)
	}
	socket, err := nl.GetNetlinkSocketAt(namespace, netns.None(), unix.NETLINK_RDMA)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("cannot query RDMA devices: %w", err)
	}
	return &Handle{handle: handle, socket: &nl.SocketHandle{Socket: socket}}, nil
}

// Close closes the handle.
func (h *Handle) Close() {
	h.handle.Close()
	h.socket.Close()
}

// Mode returns Shared or Exclusive. The mode applies to the whole machine.
func (h *Handle) Mode() (string, error) {
	mode, err := h.handle.RdmaSystemGetNetnsMode()
	if err != nil {
		return "", fmt.Errorf("cannot query the namespace mode of RDMA devices: %w", err)
	}
	return mode, nil
}

// List returns the RDMA devices in the namespace, sorted by name, without the links behind their ports. In shared mode,
// these are all devices on the machine. If the devices change during the dump, the error is netlink.ErrDumpInterrupted.
func (h *Handle) List() ([]Device, error) {
	messages, err := h.request(nl.RDMA_NLDEV_CMD_GET, unix.NLM_F_DUMP, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot list RDMA devices: %w", err)
	}
	return parseDevices(messages)
}

// Links returns the sorted indexes of the links that belong to a device's ports and are in the namespace
// (fill_port_info in nldev.c).
func (h *Handle) Links(index uint32) ([]int, error) {
	messages, err := h.ports(index)
	if err != nil {
		return nil, err
	}
	return parsePorts(messages)
}

func (h *Handle) ports(index uint32) ([][]byte, error) {
	messages, err := h.request(commandPortGet, unix.NLM_F_DUMP, []*nl.RtAttr{indexAttribute(index)})
	if err != nil {
		return nil, fmt.Errorf("cannot list the ports of RDMA device %d: %w", index, err)
	}
	return messages, nil
}

// Devices is like List, but also sets Links. If devices change in the meantime, it reads all of them again. It queries
// the drivers, some of which query their hardware. If a driver fails, Devices sets LinksUnknown for that driver's
// device instead of returning an error, because the caller might not need the device.
func (h *Handle) Devices() (devices []Device, err error) {
	for range 10 {
		if devices, err = h.devices(); err == nil {
			return devices, nil
		}
	}
	return nil, err
}

func (h *Handle) devices() ([]Device, error) {
	devices, err := h.List()
	if err != nil {
		return nil, err
	}
	for i := range devices {
		messages, err := h.ports(devices[i].Index)
		if err == nil {
			err = devices[i].addPorts(messages)
		}
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, err
		}
		devices[i].LinksUnknown = devices[i].LinksUnknown || err != nil
		if !devices[i].LinksUnknown {
			continue
		}
		// The kernel does not return a specific error if the device has disappeared.
		now, listErr := h.List()
		if listErr != nil || !slices.ContainsFunc(now, func(d Device) bool { return d.Index == devices[i].Index }) {
			return nil, cmp.Or(listErr, err, errors.New("an RDMA device no longer exists"))
		}
	}
	return devices, nil
}

// addPorts adds the ports in the messages to the device.
func (d *Device) addPorts(messages [][]byte) (err error) {
	d.LinksUnknown = len(messages) < int(d.Ports)
	if len(messages) > 0 {
		d.Links, err = parsePorts(messages)
	}
	return err
}

// CharacterDevice returns the name of an RDMA device's character device in /dev/infiniband, such as uverbs0. Ports are
// numbered from 1; port is 0 for kinds without ports. device is nil for [ConnectionManager]. If there is no such
// character device, the error is unix.ENOENT or unix.EOPNOTSUPP.
func (h *Handle) CharacterDevice(kind string, device *Device, port uint32) (string, error) {
	attributes := []*nl.RtAttr{nl.NewRtAttr(attributeType, nl.ZeroTerminated(kind))}
	if device != nil {
		attributes = append(attributes, indexAttribute(device.Index))
	}
	if port != 0 {
		attributes = append(attributes, nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_PORT_INDEX, nl.Uint32Attr(port)))
	}
	messages, err := h.request(commandGetChardev, 0, attributes)
	if err != nil {
		return "", fmt.Errorf("cannot query the character device %s: %w", kind, err)
	}
	for _, message := range messages {
		values, err := parse(message)
		if err != nil {
			return "", err
		}
		if name := text(values[attributeName]); name != "" && !strings.Contains(name, "/") {
			return name, nil
		}
	}
	return "", fmt.Errorf("cannot query the character device %s: %w", kind, unix.ENOENT)
}

// Move moves a device to another namespace. The handle and the calling thread must both be in the device's namespace,
// because the kernel moves the device out of the thread's namespace. In shared mode, the error is unix.EOPNOTSUPP. If
// the other namespace already has a device with the same name, the error is unix.EEXIST.
func (h *Handle) Move(index uint32, namespace netns.NsHandle) error {
	return h.handle.RdmaLinkSetNsFd(&netlink.RdmaLink{Attrs: netlink.RdmaLinkAttrs{Index: index}}, uint32(namespace))
}

// Rename changes the name of a device.
func (h *Handle) Rename(index uint32, name string) error {
	return h.handle.RdmaLinkSetName(&netlink.RdmaLink{Attrs: netlink.RdmaLinkAttrs{Index: index}}, name)
}

// request sends a request and waits for the response. NLM_F_ACK makes the kernel acknowledge the request even if the
// result is empty, so that request does not wait forever.
func (h *Handle) request(command, flags int, attributes []*nl.RtAttr) ([][]byte, error) {
	request := nl.NewNetlinkRequest(nl.RDMA_NL_NLDEV<<nl.RDMA_NL_GET_CLIENT_SHIFT|command, flags|unix.NLM_F_ACK)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_RDMA: h.socket}
	for _, attribute := range attributes {
		request.AddData(attribute)
	}
	return request.Execute(unix.NETLINK_RDMA, 0)
}

func indexAttribute(index uint32) *nl.RtAttr {
	return nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_DEV_INDEX, nl.Uint32Attr(index))
}

func parseDevice(message []byte) (Device, error) {
	values, err := parse(message)
	if err != nil {
		return Device{}, err
	}
	device := Device{Name: text(values[nl.RDMA_NLDEV_ATTR_DEV_NAME]), Protocol: text(values[attributeProtocol])}
	index, hasIndex := number(values[nl.RDMA_NLDEV_ATTR_DEV_INDEX])
	if !hasIndex {
		return Device{}, errors.New("a device without an index")
	}
	device.Index = index
	device.Ports, _ = number(values[nl.RDMA_NLDEV_ATTR_PORT_INDEX]) // for a device, the number of its ports
	return device, nil
}

// parseDevices returns the devices in the messages, sorted by name. If a device appears or disappears during a dump,
// another device may be listed twice, so duplicates are dropped.
func parseDevices(messages [][]byte) ([]Device, error) {
	devices := make([]Device, 0, len(messages))
	for _, message := range messages {
		device, err := parseDevice(message)
		if err != nil {
			return nil, fmt.Errorf("cannot parse the kernel's list of RDMA devices: %w", err)
		}
		if !slices.ContainsFunc(devices, func(known Device) bool { return known.Index == device.Index }) {
			devices = append(devices, device)
		}
	}
	slices.SortFunc(devices, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	return devices, nil
}

// parsePorts returns the links in messages about ports. If a driver fails for a port, the kernel silently ends the list
// at that port.
func parsePorts(messages [][]byte) ([]int, error) {
	if len(messages) == 0 {
		return nil, errors.New("cannot list the ports of the RDMA device: its kernel driver reports none; see " +
			"the kernel's log (dmesg)")
	}
	var links []int
	for _, message := range messages {
		values, err := parse(message)
		if err != nil {
			return nil, fmt.Errorf("cannot parse the kernel's list of ports of an RDMA device: %w", err)
		}
		if link, has := number(values[attributeNdev]); has && link != 0 {
			links = append(links, int(link))
		}
	}
	slices.Sort(links)
	return slices.Compact(links), nil
}

// parse returns the attributes in a message (struct nlattr), keyed by type. It is used instead of the library's parser,
// which panics if the last attribute in a message is not padded.
func parse(message []byte) (map[uint16][]byte, error) {
	values := map[uint16][]byte{}
	for len(message) > 0 {
		if len(message) < unix.SizeofNlAttr {
			return nil, errors.New("a message that ends within an attribute")
		}
		length := int(binary.NativeEndian.Uint16(message))
		kind := binary.NativeEndian.Uint16(message[2:]) & nl.NLA_TYPE_MASK
		if length < unix.SizeofNlAttr || length > len(message) {
			return nil, fmt.Errorf("an attribute %d of %d bytes in %d", kind, length, len(message))
		}
		values[kind] = message[unix.SizeofNlAttr:length]
		padded := (length + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1)
		message = message[min(padded, len(message)):]
	}
	return values, nil
}

func text(value []byte) string { return unix.ByteSliceToString(value) }

func number(value []byte) (uint32, bool) {
	if len(value) != 4 {
		return 0, false
	}
	return binary.NativeEndian.Uint32(value), true
}
