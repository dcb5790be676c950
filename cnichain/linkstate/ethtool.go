package linkstate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// headerAttribute is the first attribute of every ethtool message. It identifies the link.
const headerAttribute = 1

// readEthtool reads all groups of ethtool settings, as well as the settings of the link's receive contexts. It omits
// groups that are not supported by the link's driver or the kernel.
func (s State) readEthtool(index int) error {
	family, err := families.get("ethtool")
	if err != nil {
		return absent(err)
	}
	var requests []*nl.NetlinkRequest
	for _, group := range groups() {
		requests = append(requests, ethtool(family, group.get, index))
	}
	napi, err := families.get("netdev")
	if absent(err) != nil {
		return err
	}
	if err == nil {
		requests = append(requests, listNAPI(napi, index))
	}
	kernel, err := openSocket(unix.NETLINK_GENERIC)
	if err != nil {
		return err
	}
	defer kernel.close()
	answers, err := kernel.call(requests...)
	if err != nil {
		return err
	}
	for i, group := range groups() {
		if err := answers[i].err; err != nil {
			// The kernel returns EINVAL for some groups on links without hardware, and ENETDOWN for devices that are
			// not ready.
			if absent(err) == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENETDOWN) {
				continue
			}
			return fmt.Errorf("ethtool %s: %w", group.name, err)
		}
		for _, reply := range answers[i].messages {
			for kind, attribute := range attributes(reply[unix.GENL_HDRLEN:]) {
				if kind != headerAttribute && !slices.Contains(group.except, kind) {
					s[key("ethtool."+group.name, "", kind)] = attribute
				}
			}
		}
	}
	s.removeSpeed()
	if len(answers) == len(groups()) {
		return nil
	}
	return s.addNAPI(answers[len(groups())])
}

// families caches the IDs of generic netlink families. They are built into the kernel, so their IDs do not change.
var families familyIDs //nolint:gochecknoglobals // state of the kernel, not of the program

type familyIDs struct{ known sync.Map }

func (f *familyIDs) get(name string) (uint16, error) {
	if id, ok := f.known.Load(name); ok {
		return id.(uint16), nil //nolint:forcetypeassert // the only type
	}
	family, err := netlink.GenlFamilyGet(name)
	if err != nil {
		return 0, err
	}
	f.known.Store(name, family.ID)
	return family.ID, nil
}

// ethtool returns a request for an ethtool command on a link. A request without attributes reads settings, and the
// kernel replies with a single message; to any other request, the kernel replies with an acknowledgment.
func ethtool(family uint16, command uint8, index int, content ...[]byte) *nl.NetlinkRequest {
	flags := 0
	if len(content) > 0 {
		flags = unix.NLM_F_ACK
	}
	request := nl.NewNetlinkRequest(int(family), flags)
	request.AddRawData(genericHeader(command))
	header := nl.NewRtAttr(headerAttribute|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(index))) //nolint:gosec // the kernel's own
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_FLAGS, nl.Uint32Attr(unix.ETHTOOL_FLAG_COMPACT_BITSETS))
	request.AddRawData(header.Serialize())
	for _, attribute := range content {
		request.AddRawData(padded(attribute))
	}
	return request
}

// genericHeader returns a struct genlmsghdr. The type in package nl leaves the reserved field uninitialized, which
// newer families reject.
func genericHeader(command uint8) []byte { return []byte{command, 1, 0, 0} }

// absent returns nil if err means that the kernel or the driver does not support a request, and err otherwise.
func absent(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func describe(subject string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", subject, err)
}

// listNAPI returns a request that lists a link's receive contexts (netdev netlink family, kernel 6.8).
func listNAPI(family uint16, index int) *nl.NetlinkRequest {
	const napiGet, ifIndex = 11, 1
	request := nl.NewNetlinkRequest(int(family), unix.NLM_F_DUMP)
	request.AddRawData(genericHeader(napiGet))
	number := nl.Uint32Attr(uint32(index)) //nolint:gosec // the kernel's own
	request.AddRawData(nl.NewRtAttr(ifIndex, number).Serialize())
	return request
}

// addNAPI adds the settings of the link's receive contexts, except for the IDs, interrupts and threads, which change
// whenever the link is set up.
func (s State) addNAPI(contexts answer) error {
	const firstSetting = 5
	if contexts.err != nil {
		return describe("NAPI settings", absent(contexts.err))
	}
	for i, reply := range contexts.messages {
		for kind, attribute := range attributes(reply[unix.GENL_HDRLEN:]) {
			if kind >= firstSetting {
				s[key(fmt.Sprintf("napi.%d", i), "", kind)] = attribute
			}
		}
	}
	return nil
}

// Ethtool ioctl commands that have no netlink equivalent (linux/ethtool.h).
const (
	getTunable    = 0x48
	getFlowHash   = 0x29 // ETHTOOL_GRXFH
	countRules    = 0x2e // ETHTOOL_GRXCLSRLCNT
	listRules     = 0x30 // ETHTOOL_GRXCLSRLALL
	getRule       = 0x2f // ETHTOOL_GRXCLSRULE
	ruleLength    = 192  // struct ethtool_rxnfc
	ruleCount     = 184  // offset of rule_cnt
	ruleLocation  = 176  // offset of fs.location
	lastFlowType  = 0x14
	lastTunable   = 4
	tunableHeader = 16
)

// readRules reads a link's receive rules, the hash fields for each flow type, and the link's tunables.
func (s State) readRules(name string) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	for id := uint32(1); id <= lastTunable; id++ {
		request := make([]byte, tunableHeader+8)
		binary.NativeEndian.PutUint32(request[4:], id)
		binary.NativeEndian.PutUint32(request[8:], tunableType(id))
		binary.NativeEndian.PutUint32(request[12:], tunableSize(id))
		if ioctl(socket, name, getTunable, request) == nil {
			s[fmt.Sprintf("ethtool.tunable.%d", id)] = request[headerLength:]
		}
	}
	for flow := uint32(1); flow <= lastFlowType; flow++ {
		request := make([]byte, ruleLength)
		binary.NativeEndian.PutUint32(request[4:], flow)
		err := ioctl(socket, name, getFlowHash, request)
		if err == nil {
			s[fmt.Sprintf("ethtool.flow-hash.%d", flow)] = request[4:16]
		}
		if flow == 1 && errors.Is(err, unix.EOPNOTSUPP) {
			break // TCP over IPv4: supported by every driver that hashes by header fields
		}
	}
	request := make([]byte, ruleLength)
	if ioctl(socket, name, countRules, request) != nil {
		return nil
	}
	count := binary.NativeEndian.Uint32(request[ruleCount:])
	request = make([]byte, ruleLength+4*int(count))
	binary.NativeEndian.PutUint32(request[ruleCount:], count)
	if err := ioctl(socket, name, listRules, request); err != nil {
		return describe("receive rules", absent(err))
	}
	locations := request[ruleCount+4:]
	for i := range int(count) {
		location := binary.NativeEndian.Uint32(locations[4*i:])
		rule := make([]byte, ruleLength)
		binary.NativeEndian.PutUint32(rule[ruleLocation:], location)
		if err := ioctl(socket, name, getRule, rule); err != nil {
			return fmt.Errorf("receive rule %d: %w", location, err)
		}
		s[fmt.Sprintf("ethtool.rule.%d", location)] = rule[headerLength:]
	}
	return nil
}

// tunableType and tunableSize return the values that the kernel requires (ethtool_tunable_valid): PFC storm prevention
// is a u16, and the other tunables are u32.
func tunableType(id uint32) uint32 {
	if id == 3 {
		return 2
	}
	return 3
}

func tunableSize(id uint32) uint32 {
	if id == 3 {
		return 2
	}
	return 4
}

// ioctl calls SIOCETHTOOL; the command is the first field of the request.
func ioctl(socket int, name string, command uint32, request []byte) error {
	binary.NativeEndian.PutUint32(request, command)
	var ifreq struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(ifreq.name[:unix.IFNAMSIZ-1], name)
	ifreq.data = unsafe.Pointer(&request[0])
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&ifreq)))
	if errno != 0 {
		return errno
	}
	return nil
}

// readDCB reads a link's data center bridging settings (IEEE 802.1Q), excluding the peer's settings and the counters.
func (s State) readDCB(kernel *socket, name string) error {
	const getIEEE, nameAttribute, ieee, pfc, pfcSettings = 21, 1, 13, 2, headerLength + 6
	exceptions := []uint16{4, 5, 6, 9} // the peer's settings, and congestion notification counters
	request := nl.NewNetlinkRequest(unix.RTM_GETDCB, 0)
	request.AddRawData([]byte{unix.AF_UNSPEC, getIEEE, 0, 0})
	request.AddRawData(nl.NewRtAttr(nameAttribute, nl.ZeroTerminated(name)).Serialize())
	replies, err := kernel.do(request)
	if err != nil {
		if errors.Is(err, unix.EINVAL) { // the kernel does not support DCB
			return nil
		}
		return describe("data center bridging", absent(err))
	}
	for _, reply := range replies {
		for kind, nested := range attributes(reply[min(len(reply), headerLength):]) {
			if kind != ieee {
				continue
			}
			for kind, attribute := range attributes(nested[headerLength:]) {
				if kind == pfc {
					attribute = attribute[:min(len(attribute), pfcSettings)] // the rest are counters
				}
				if !slices.Contains(exceptions, kind) {
					s[key("dcb", "", kind)] = attribute
				}
			}
		}
	}
	return nil
}
