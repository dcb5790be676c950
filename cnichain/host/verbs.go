package host

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery/rdmalink"
)

// VerbsDevice reads the character device from netlink and the GIDs from sysfs, since netlink does not report GIDs. A
// query through the character device (UVERBS_METHOD_QUERY_GID_TABLE in
// drivers/infiniband/core/uverbs_std_types_device.c) would require a device context, which every kernel driver creates
// in its own way.
func (Linux) VerbsDevice(path string, device cnichain.RDMADevice) (verbs string, table []cnichain.GIDEntry, err error) {
	err = withRDMA(path, func(handle *rdmalink.Handle) (err error) {
		verbs, err = handle.CharacterDevice(rdmalink.Verbs, &rdmalink.Device{Index: device.Index}, 0)
		return err
	})
	if err == nil && verbs == "" {
		err = errors.New("the kernel no longer has RDMA devices")
	}
	if err == nil {
		err = withSysfs(path, func(sysfs string) (err error) {
			table, err = readGIDTable(sysfs, device.Name)
			return belowSys(err, sysfs)
		})
	}
	if err != nil {
		return verbs, nil, fmt.Errorf("cannot read the GIDs of RDMA device %s: %w", device.Name, err)
	}
	return verbs, table, nil
}

// withSysfs calls a function with the path to a sysfs instance for a network namespace; an empty path refers to the
// host's. A sysfs instance shows the RDMA devices in the namespace in which it was created (sysfs_init_fs_context in
// fs/sysfs/mount.c). The instance is not mounted anywhere, so it disappears even if the process is killed.
func withSysfs(path string, do func(sysfs string) error) error {
	if path == "" {
		return do("/sys")
	}
	mount := -1
	err := ns.WithNetNSPath(path, func(ns.NetNS) error {
		context, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
		if err != nil {
			return fmt.Errorf("cannot open a sysfs (Linux 5.2 or later): %w", err)
		}
		defer func() { _ = unix.Close(context) }()
		if err := unix.FsconfigCreate(context); err != nil {
			return fmt.Errorf("cannot create a sysfs: %w", err)
		}
		mount, err = unix.Fsmount(context, unix.FSMOUNT_CLOEXEC,
			unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(mount) }()
	return do(fmt.Sprintf("/proc/self/fd/%d", mount))
}

// belowSys replaces the path in an error with the familiar one below /sys. If the path contained a file descriptor
// number, each error would differ from the previous one and would therefore be reported again.
func belowSys(err error, sysfs string) error {
	var failed *os.PathError
	if errors.As(err, &failed) {
		failed.Path = "/sys" + strings.TrimPrefix(failed.Path, sysfs)
	}
	return err
}

// readGIDTable reads the nonempty GID entries of all ports of an RDMA device.
func readGIDTable(sysfs, device string) (table []cnichain.GIDEntry, err error) {
	if device == "" || device == "." || device == ".." || strings.Contains(device, "/") {
		return nil, fmt.Errorf("its name %q is not a file name", device) // an application may have renamed it
	}
	ports := filepath.Join(sysfs, "class/infiniband", device, "ports")
	names, err := os.ReadDir(ports)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		port, err := strconv.ParseUint(name.Name(), 10, 32)
		if err != nil {
			continue
		}
		entries, err := readGIDsOfPort(filepath.Join(ports, name.Name()), uint32(port))
		if err != nil {
			return nil, err
		}
		table = append(table, entries...)
	}
	return table, nil
}

// readGIDsOfPort reads a port's GID table from sysfs (Documentation/ABI/stable/sysfs-class-infiniband). It omits empty
// entries but preserves the indexes of the others, since applications need them.
func readGIDsOfPort(path string, port uint32) (table []cnichain.GIDEntry, err error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	layer, err := readAttribute(dir, "link_layer")
	if err != nil {
		return nil, err
	}
	indexes, err := os.ReadDir(filepath.Join(path, "gids"))
	if err != nil {
		return nil, err
	}
	for _, name := range indexes {
		index, err := strconv.Atoi(name.Name())
		if err != nil {
			continue
		}
		entry, isSet, err := readGID(dir, index, layer)
		if err != nil {
			return nil, err
		}
		if isSet {
			entry.Port = port
			table = append(table, entry)
		}
	}
	return table, nil
}

// readGID reads one entry, which is spread over three files. Since the kernel may replace the entry between reads, it
// rereads the first file at the end.
func readGID(port *os.File, index int, layer string) (entry cnichain.GIDEntry, isSet bool, err error) {
	text, err := readAttribute(port, fmt.Sprintf("gids/%d", index))
	for attempt := 0; err == nil && attempt < 3; attempt++ {
		before := text
		entry = cnichain.GIDEntry{Index: index}
		if entry.GID, err = parseGID(before); err != nil || entry.GID.IsUnspecified() {
			return cnichain.GIDEntry{}, false, err
		}
		if entry.Type, entry.Link, err = readGIDAttributes(port, index); err != nil {
			return cnichain.GIDEntry{}, false, err
		}
		if text, err = readAttribute(port, fmt.Sprintf("gids/%d", index)); err == nil && text == before {
			entry.Type = gidType(entry.Type, layer)
			return entry, entry.Type != "", nil
		}
	}
	return cnichain.GIDEntry{}, false, err // an entry that keeps changing is unusable
}

// readGIDAttributes returns empty strings for missing attributes, for which the kernel returns EINVAL: either the entry
// is gone, or it is an InfiniBand entry, which has no link.
func readGIDAttributes(port *os.File, index int) (gidType, link string, err error) {
	gidType, err = readAttribute(port, fmt.Sprintf("gid_attrs/types/%d", index))
	if err == nil {
		link, err = readAttribute(port, fmt.Sprintf("gid_attrs/ndevs/%d", index))
	}
	if errors.Is(err, unix.EINVAL) {
		err = nil
	}
	return gidType, link, err
}

// gidType converts the kernel's name for a GID type (gid_type_str in drivers/infiniband/core/cache.c). It returns "" if
// the name is empty or unknown.
func gidType(text, layer string) string {
	switch {
	case text == "RoCE v2":
		return cnichain.GIDRoCEv2
	case text == "IB/RoCE v1" && layer == "InfiniBand":
		return cnichain.GIDInfiniBand
	case text == "IB/RoCE v1":
		return cnichain.GIDRoCEv1
	}
	return ""
}

func parseGID(text string) (netip.Addr, error) {
	bytes, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if err != nil || len(bytes) != 16 {
		return netip.Addr{}, fmt.Errorf("%q is not a GID", text)
	}
	return netip.AddrFrom16([16]byte(bytes)), nil
}

// readAttribute reads a short file. A GID table has up to a thousand files, most of which belong to empty entries, and
// os.ReadFile would need twice as many system calls.
func readAttribute(dir *os.File, name string) (string, error) {
	file, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	defer func() { _ = unix.Close(file) }()
	buffer := make([]byte, 128)
	n, err := unix.Read(file, buffer)
	if err != nil {
		return "", &os.PathError{Op: "read", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	return strings.TrimSpace(string(buffer[:n])), nil
}

// Addresses reads the list from the kernel, and starts over if a concurrent change interrupts the dump.
func (Linux) Addresses(path string) (links []cnichain.LinkAddresses, err error) {
	err = inNamespace(path, func(handle *netlink.Handle) error {
		found, err := listLinks(handle)
		if err != nil {
			return err
		}
		addresses, err := handle.AddrList(nil, netlink.FAMILY_ALL)
		for attempt := 1; attempt < 10 && errors.Is(err, netlink.ErrDumpInterrupted); attempt++ {
			addresses, err = handle.AddrList(nil, netlink.FAMILY_ALL)
		}
		if err != nil {
			return err
		}
		ofLinks := map[int][]netip.Addr{} // an application may have thousands of links and addresses
		for i := range addresses {
			if address, ok := netip.AddrFromSlice(addresses[i].IP); ok {
				ofLinks[addresses[i].LinkIndex] = append(ofLinks[addresses[i].LinkIndex], address.Unmap())
			}
		}
		for _, link := range found {
			attributes := link.Attrs()
			links = append(links, cnichain.LinkAddresses{Index: attributes.Index, Name: attributes.Name,
				MAC: attributes.HardwareAddr, Addresses: ofLinks[attributes.Index]})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the addresses of %s: %w", path, err)
	}
	return links, nil
}
