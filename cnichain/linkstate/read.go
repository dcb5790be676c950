package linkstate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/discovery/linkkind"
)

const (
	headerLength = unix.SizeofRtAttr
	// attributeType masks the flags of a netlink attribute's type (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
	attributeType = 0x3fff
	// Include virtual functions, but not their counters (RTEXT_FILTER_* in linux/rtnetlink.h).
	withFunctions, withoutCounters = 1 << 0, 1 << 3
)

// Read returns the state of the link with the given index in the calling thread's network namespace. It returns
// [netlink.LinkNotFoundError] if there is no such link.
func Read(index int) (State, error) {
	state := State{}
	name, err := state.readLink(index)
	if err == nil {
		err = state.readEthtool(index)
	}
	if err == nil {
		err = state.readDCB(name)
	}
	if err == nil {
		err = state.readFiles(name)
	}
	if err == nil {
		err = state.readRules(name)
	}
	if err == nil {
		err = state.readPrograms(index)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the state of link %d: %w", index, err)
	}
	return state, nil
}

// readLink reads the RTM_GETLINK attributes and returns the link's name. The kernel nests a link's type and the type's
// settings; readLink stores each of them as a separate attribute.
func (s State) readLink(index int) (name string, err error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(index) //nolint:gosec // the kernel's own
	request.AddData(header)
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(withFunctions|withoutCounters)))
	replies, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if errors.Is(err, unix.ENODEV) {
		return "", netlink.LinkNotFoundError{}
	}
	if err != nil {
		return "", err
	}
	if len(replies) != 1 || len(replies[0]) < unix.SizeofIfInfomsg {
		return "", fmt.Errorf("the kernel answered with %d messages", len(replies))
	}
	info := nl.DeserializeIfInfomsg(replies[0])
	s["link.flags"] = binary.NativeEndian.AppendUint32(make([]byte, headerLength), info.Flags&^flagExceptions)
	names, exceptions := linkNames(), linkExceptions()
	pair := false
	for kind, attribute := range attributes(replies[0][unix.SizeofIfInfomsg:]) {
		switch {
		case kind == unix.IFLA_IFNAME:
			name = strings.TrimRight(string(attribute[headerLength:]), "\x00")
		case kind == unix.IFLA_LINKINFO:
			pair = s.addInfo(attribute)
		case exceptions[kind] == "":
			s[key("link", names[kind], kind)] = attribute
		}
	}
	if pair { // the attribute refers to the other end, which may move without the link
		delete(s, "link.link")
	}
	return name, nil
}

// addInfo adds a link's type and its settings (IFLA_LINKINFO), and reports whether the link is one of a pair. It
// ignores a port's settings, which belong to its master; the master itself is compared.
func (s State) addInfo(info []byte) (pair bool) {
	for kind, attribute := range attributes(info[headerLength:]) {
		switch kind {
		case unix.IFLA_INFO_KIND:
			s["linkinfo.kind"] = attribute
			pair = linkkind.IsPair(strings.TrimRight(string(attribute[headerLength:]), "\x00"))
		case unix.IFLA_INFO_DATA:
			for kind, setting := range attributes(attribute[headerLength:]) {
				s[key("linkinfo.data", "", kind)] = setting
			}
		}
	}
	return pair
}

func key(prefix, name string, kind uint16) string {
	if name == "" {
		name = strconv.Itoa(int(kind))
	}
	return prefix + "." + name
}

// attributes iterates over netlink attributes, each with its header, in the order of the message.
func attributes(data []byte) func(yield func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(data) >= headerLength {
			length := int(binary.NativeEndian.Uint16(data))
			if length < headerLength || length > len(data) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(data[2:])&attributeType, data[:length:length]) {
				return
			}
			data = data[min(len(data), (length+3)&^3):]
		}
	}
}

// readFiles reads a link's sysfs files, including those of its queues. A file that cannot be read belongs to an
// attribute that the link's driver does not support.
func (s State) readFiles(name string) error {
	root := filepath.Join("/sys/class/net", name)
	exceptions := fileExceptions()
	var paths []string
	for _, pattern := range []string{"*", "queues/*/*", "queues/*/byte_queue_limits/*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		paths = append(paths, found...)
	}
	for _, path := range paths {
		if exceptions[filepath.Base(path)] != "" {
			continue
		}
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o222 == 0 {
			continue // read-only files are also reported by netlink, or never change
		}
		if data, err := os.ReadFile(path); err == nil {
			s["sysfs."+strings.TrimPrefix(path, root+"/")] = []byte(strings.TrimSpace(string(data)))
		}
	}
	return nil
}
