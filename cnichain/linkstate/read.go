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

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/discovery/linkkind"
)

const (
	headerLength = unix.SizeofRtAttr
	// attributeType masks out the flags in a netlink attribute's type (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
	attributeType = 0x3fff
	// Include virtual functions, but not their counters (RTEXT_FILTER_* in linux/rtnetlink.h).
	withFunctions, withoutCounters = 1 << 0, 1 << 3
)

// Read returns the state of the link with the given index in the calling thread's network namespace. It returns
// [netlink.LinkNotFoundError] if there is no such link.
func Read(index int) (State, error) {
	kernel, err := openSocket(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer kernel.close()
	state := State{}
	name, err := state.readLink(kernel, index)
	if err == nil {
		err = state.readEthtool(index)
	}
	if err == nil {
		err = state.readDCB(kernel, name)
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
func (s State) readLink(kernel *socket, index int) (name string, err error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = int32(index) //nolint:gosec // the kernel's own
	request.AddData(header)
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(withFunctions|withoutCounters)))
	replies, err := kernel.do(request)
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
	if pair { // the attribute refers to the other end, which can be moved independently
		delete(s, "link.link")
	}
	return name, nil
}

// addInfo adds a link's type and its settings (IFLA_LINKINFO), and reports whether the link is one of a pair. It
// ignores port settings, which belong to the port's master; the master itself is compared.
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

// attributes iterates over the netlink attributes in data, in message order. Each attribute includes its header.
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

// readFiles reads a link's sysfs files, including those of its queues. If a file cannot be read, the link's driver does
// not support the attribute.
func (s State) readFiles(name string) error {
	root := filepath.Join("/sys/class/net", name)
	exceptions := fileExceptions()
	page := make([]byte, os.Getpagesize()) // the maximum length of an attribute
	directories := []string{root}
	for len(directories) > 0 {
		directory := directories[0]
		directories = directories[1:]
		entries, err := os.ReadDir(directory)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			path := directory + "/" + entry.Name()
			if entry.IsDir() && (directory != root || entry.Name() == "queues") {
				directories = append(directories, path)
			}
			if !entry.Type().IsRegular() || exceptions[entry.Name()] != "" {
				continue
			}
			var info unix.Stat_t
			if err := unix.Lstat(path, &info); err != nil || info.Mode&0o222 == 0 {
				continue // read-only attributes are also reported by netlink, or never change
			}
			if data, err := readAttribute(path, page); err == nil {
				s["sysfs."+path[len(root)+1:]] = bytes.Clone(bytes.TrimSpace(data))
			}
		}
	}
	return nil
}

// readAttribute reads a sysfs file into page. os.ReadFile needs three times as many system calls, because it also
// registers the file for polling. A link can have hundreds of such files, and a pod is waiting.
func readAttribute(path string, page []byte) ([]byte, error) {
	file, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(file) }()
	for {
		n, err := unix.Read(file, page)
		if !errors.Is(err, unix.EINTR) {
			return page[:max(n, 0)], err
		}
	}
}
