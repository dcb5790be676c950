package linkstate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// writable returns the RTM_GETLINK attributes that RTM_SETLINK accepts in the same format.
func writable() []uint16 {
	return []uint16{
		unix.IFLA_BROADCAST, unix.IFLA_TXQLEN, unix.IFLA_MAP, unix.IFLA_LINKMODE, unix.IFLA_GROUP, unix.IFLA_PROTO_DOWN,
		unix.IFLA_GSO_MAX_SEGS, unix.IFLA_GSO_MAX_SIZE, iflaGROMaxSize, iflaGSOIPv4Max, iflaGROIPv4Max,
	}
}

// Restore writes the attributes from an earlier state back to the link with the given index, and returns the
// differences that remain. These include attributes that the kernel rejects, described along with the write errors.
func Restore(index int, earlier State) (differences []string, err error) {
	now, err := Read(index)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(now[carrierAttribute], earlier[carrierAttribute]) && isOn(earlier[carrierAttribute]) {
		_ = setLink(index, 0, 0, earlier[carrierAttribute]) // hardware drivers reject it
	}
	changed := now.differing(earlier)
	if len(changed) == 0 {
		return nil, nil
	}
	failures := errors.Join( // only for messages, since the resulting state is read again
		restoreFlags(index, changed, earlier), restoreLink(index, changed, earlier),
		restoreKind(index, changed, earlier),
		restoreEthtool(index, changed, now, earlier), restoreFiles(index, changed, earlier),
		restoreRules(index, changed, earlier), restorePrograms(index, changed, now),
	)
	if now, err = Read(index); err != nil {
		return nil, err
	}
	if differences = now.Differences(earlier); len(differences) > 0 && failures != nil {
		differences = append(differences, strings.ReplaceAll(failures.Error(), "\n", "; "))
	}
	return differences, nil
}

func contains(changed []string, prefix string) bool {
	for _, key := range changed {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// setLink sends RTM_NEWLINK for an existing link. It sets the flags selected by mask (ifi_change).
func setLink(index int, flags, mask uint32, content ...[]byte) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(index) //nolint:gosec // the kernel's own
	header.Flags, header.Change = flags, mask
	request.AddData(header)
	for _, attribute := range content {
		request.AddRawData(padded(attribute))
	}
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

func padded(attribute []byte) []byte {
	return append(attribute[:len(attribute):len(attribute)], make([]byte, (4-len(attribute)%4)%4)...)
}

func restoreFlags(index int, changed []string, earlier State) error {
	if !contains(changed, "link.flags") || len(earlier["link.flags"]) < headerLength+4 {
		return nil
	}
	flags := binary.NativeEndian.Uint32(earlier["link.flags"][headerLength:])
	mask := uint32(unix.IFF_PROMISC | unix.IFF_ALLMULTI | unix.IFF_NOARP | unix.IFF_MULTICAST | unix.IFF_DEBUG |
		unix.IFF_NOTRAILERS | unix.IFF_PORTSEL | unix.IFF_AUTOMEDIA | unix.IFF_DYNAMIC)
	if err := setLink(index, flags, mask); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	return nil
}

func isOn(attribute []byte) bool {
	return len(attribute) > headerLength && attribute[headerLength] != 0
}

// restoreLink writes each attribute in a separate request, because drivers reject some attributes, which must not
// prevent the others from being written. If the link mode changes, restoreLink sets the link down, and the caller sets
// it up again: the kernel recomputes the operational state only when the link is set up (rfc2863_policy).
func restoreLink(index int, changed []string, earlier State) error {
	var problems []error
	if contains(changed, "link.linkmode") {
		problems = append(problems, setLink(index, 0, unix.IFF_UP))
	}
	names := linkNames()
	for _, kind := range writable() {
		name := key("link", names[kind], kind)
		if !contains(changed, name) || earlier[name] == nil {
			continue
		}
		if err := setLink(index, 0, 0, earlier[name]); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

// restoreKind writes the settings of the link's type, such as the mode of a macvlan.
func restoreKind(index int, changed []string, earlier State) error {
	if !contains(changed, "linkinfo.data.") || earlier["linkinfo.kind"] == nil {
		return nil
	}
	data := nl.NewRtAttr(unix.IFLA_INFO_DATA|unix.NLA_F_NESTED, nil)
	var content []byte
	for _, name := range changed {
		if strings.HasPrefix(name, "linkinfo.data.") {
			content = append(content, padded(earlier[name])...)
		}
	}
	data.Data = content
	info := nl.NewRtAttr(unix.IFLA_LINKINFO|unix.NLA_F_NESTED, append(padded(earlier["linkinfo.kind"]),
		data.Serialize()...))
	if err := setLink(index, 0, 0, info.Serialize()); err != nil {
		return fmt.Errorf("settings of its type: %w", err)
	}
	return nil
}

func restoreEthtool(index int, changed []string, now, earlier State) error {
	if !contains(changed, "ethtool.") {
		return nil
	}
	family, err := families.get("ethtool")
	if err != nil {
		return err
	}
	kernel, err := openSocket(unix.NETLINK_GENERIC)
	if err != nil {
		return err
	}
	defer kernel.close()
	var problems []error
	for _, group := range groups() {
		prefix := "ethtool." + group.name + "."
		var content [][]byte
		for _, name := range changed {
			switch {
			case !strings.HasPrefix(name, prefix) || earlier[name] == nil:
			case name == wantedFeatures:
				content = append(content, changedBits(now[name], earlier[name]))
			default:
				content = append(content, earlier[name])
			}
		}
		if len(content) == 0 || group.set == 0 {
			continue
		}
		if _, err := kernel.do(ethtool(family, group.set, index, content...)); err != nil {
			problems = append(problems, fmt.Errorf("ethtool %s: %w", group.name, err))
		}
	}
	return errors.Join(problems...)
}

// wantedFeatures is ETHTOOL_A_FEATURES_WANTED. The kernel only accepts changes to the features in this bit set;
// all other features are fixed (ethnl_set_features).
const wantedFeatures = "ethtool.features.3"

// changedBits returns a compact bit set with the values from the earlier set and a mask of the bits that currently
// differ.
func changedBits(now, earlier []byte) []byte {
	const size, value, mask = 2, 4, 5
	bits := func(set []byte) (length, content []byte) {
		for kind, attribute := range attributes(set[min(len(set), headerLength):]) {
			switch kind {
			case size:
				length = attribute[headerLength:]
			case value:
				content = attribute[headerLength:]
			}
		}
		return length, content
	}
	length, wanted := bits(earlier)
	_, present := bits(now)
	differing := make([]byte, len(wanted))
	for i := range min(len(wanted), len(present)) {
		differing[i] = wanted[i] ^ present[i]
	}
	set := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_WANTED|unix.NLA_F_NESTED, nil)
	set.AddRtAttr(size, length)
	set.AddRtAttr(value, wanted)
	set.AddRtAttr(mask, differing)
	return set.Serialize()
}

func restoreFiles(index int, changed []string, earlier State) error {
	if !contains(changed, "sysfs.") {
		return nil
	}
	found, err := netlink.LinkByIndex(index)
	if err != nil {
		return err
	}
	var problems []error
	for _, name := range changed {
		file, isFile := strings.CutPrefix(name, "sysfs.")
		if !isFile || earlier[name] == nil {
			continue
		}
		path := filepath.Join("/sys/class/net", found.Attrs().Name, file)
		problems = append(problems, os.WriteFile(path, earlier[name], 0))
	}
	return errors.Join(problems...)
}

// restoreRules restores the settings that are accessible only through the ethtool ioctl. It deletes receive rules that
// were added in a pod.
func restoreRules(index int, changed []string, earlier State) error {
	const setTunable, setFlowHash, deleteRule = 0x49, 0x2a, 0x31
	found, err := netlink.LinkByIndex(index)
	if err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	var problems []error
	for _, name := range changed {
		kind, number, _ := strings.Cut(strings.TrimPrefix(name, "ethtool."), ".")
		command, request := uint32(0), make([]byte, ruleLength)
		copy(request[headerLength:], earlier[name])
		switch {
		case kind == "tunable" && earlier[name] != nil:
			command = setTunable
		case kind == "flow-hash" && earlier[name] != nil:
			command = setFlowHash
		case kind == "rule" && earlier[name] == nil:
			location, err := strconv.ParseUint(number, 10, 32)
			if err != nil {
				return err
			}
			binary.NativeEndian.PutUint32(request[ruleLocation:], uint32(location))
			command = deleteRule
		default:
			continue
		}
		if err := ioctl(socket, found.Attrs().Name, command, request); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

// restorePrograms detaches all programs from hooks whose programs have changed. Host programs that were removed in a
// pod cannot be reattached, so they remain a difference; devices with programs are not offered to pods, however.
func restorePrograms(index int, changed []string, now State) error {
	var problems []error
	for name, hook := range hooks() {
		if contains(changed, "bpf."+name) {
			problems = append(problems, detachPrograms(index, hook))
		}
	}
	if contains(changed, "link.xdp") && now["link.xdp"] != nil {
		for _, mode := range []int{unix.XDP_FLAGS_SKB_MODE, unix.XDP_FLAGS_DRV_MODE, unix.XDP_FLAGS_HW_MODE} {
			// This is a no-op if there is no program in this mode, and fails if a BPF link exists.
			_ = netlink.LinkSetXdpFdWithFlags(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}, -1, mode)
		}
		if found, err := netlink.LinkByIndex(index); err == nil {
			if xdp := found.Attrs().Xdp; xdp != nil && xdp.Attached {
				problems = append(problems, detachXDPLinks(index, ebpf.ProgramID(xdp.ProgId)))
			}
		}
	}
	return errors.Join(problems...)
}
