package discovery

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysfs reads a mounted sysfs and collects problems.
type sysfs struct {
	fsys     fs.ReadLinkFS
	problems []Problem
	// rdmaOnly is the set of functions that the kernel never created an interface for; see the functions method.
	rdmaOnly map[PCIAddress]bool
}

// place is a directory in a sysfs. about is the device that problems in this directory are attributed to.
type place struct {
	*sysfs
	dir   string
	about string
}

const (
	pciDevices = "bus/pci/devices"
	// rdmaDirectory is the name of the directory that lists a function's RDMA devices and, below class, of the
	// directory that lists all RDMA devices in the network namespace.
	rdmaDirectory = "infiniband"
)

// networkClass is the PCI base class for network controllers, in the format used by sysfs.
const networkClass = "0x02"

// addressSet is NET_ADDR_SET in the kernel's include/uapi/linux/netdevice.h: the link's address was set explicitly.
const addressSet = 3

// addLink adds the facts from sysfs, except the port, to a link. known contains the PCI functions that have already
// been read. addLink fails with errChanged if sysfs does not contain the link.
func (s *sysfs) addLink(l *link, known map[PCIAddress]Device) error {
	entry := path.Join("class/net", string(l.Name))
	target, err := s.fsys.ReadLink(entry)
	if err != nil {
		return fmt.Errorf("%w: sysfs has no %s; if this persists, the sysfs belongs to another network namespace "+
			"(the driver needs the host's network and a /sys mounted in it): %w", errChanged, entry, err)
	}
	dir := place{s, path.Join(path.Dir(entry), target), string(l.Name)}
	l.dir = dir.dir
	if l.BridgeType == "" { // a bridge reports the speed of its fastest port, which changes as pods come and go
		l.LinkSpeed = knownSpeed(dir.number("speed", speeds()))
	}
	if l.Kind == "bridge" {
		l.InheritedMAC = dir.number("addr_assign_type", span{absent: addressSet, high: addressSet}) != addressSet
	}
	below, ok := dir.link("device")
	if !ok {
		return nil // a virtual link has no device below it
	}
	l.hardware = true
	device := place{s, path.Join(dir.dir, below), string(l.Name)}
	l.function = pciFunction(device.dir)
	l.PCIeRoot = pcieRoot(device.dir)
	if name := path.Base(device.dir); isScalableFunction(name) {
		device.addScalableFunction(l, name, known)
		return nil
	}
	if f, ok := known[l.function]; ok && path.Base(device.dir) == string(l.function) {
		l.Driver, l.NUMANode = f.Driver, f.NUMANode // they come from the same files, so do not read them again
		return nil
	}
	// Hardware without its own PCI function: virtio, USB, paravirtual and multi-port devices.
	l.Driver = device.linkBase("driver")
	l.NUMANode = device.number("numa_node", nodes())
	return nil
}

// addScalableFunction adds the facts from sysfs to a scalable function's link. The function uses the hardware of the
// physical function above it.
func (p place) addScalableFunction(l *link, name string, known map[PCIAddress]Device) {
	l.AuxiliaryDevice, l.Driver = name, p.linkBase("driver")
	l.SFNumber = p.number("sfnum", scalableFunctions())
	l.PFAddress = pciFunction(path.Dir(p.dir))
	pf, ok := known[l.PFAddress]
	if !ok {
		l.PFAddress = ""
		return
	}
	l.Vendor, l.Product, l.NUMANode, l.NUMANodes = pf.Vendor, pf.Product, pf.NUMANode, pf.NUMANodes
}

// addPorts adds facts that distinguish a function's hardware links from one another. The only link of a virtual
// function needs no such facts, since it is not a switch port. On machines with many functions, nearly all links are of
// this kind.
//
// addPorts reads files only if they are needed, since the driver may query the hardware when they are read.
func (s *sysfs) addPorts(links []link, known map[PCIAddress]Device) {
	counts := map[PCIAddress]int{}
	for i := range links {
		counts[links[i].function]++
	}
	for i := range links {
		l := &links[i]
		if !l.hardware || known[l.function].PFAddress != "" && counts[l.function] == 1 {
			continue
		}
		dir := place{s, l.dir, string(l.Name)}
		l.PortName, l.SwitchID = dir.word("phys_port_name"), dir.word("phys_switch_id")
		l.Representor = isRepresentor(l.PortName)
		l.port = port{representor: l.Representor, number: dir.number("dev_port", ports())}
	}
}

// functions reads all PCI network functions. It sets rdmaOnly for functions that have RDMA devices but have not had an
// interface since their driver was bound, such as InfiniBand adapters without IPoIB and cloud adapters. If a function
// has an interface in any network namespace, its "net" directory exists, although it appears empty in other namespaces.
func (s *sysfs) functions() (map[PCIAddress]Device, error) {
	entries, err := fs.ReadDir(s.fsys, pciDevices)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list PCI functions: %w", err)
	}
	read := make([]*function, len(entries))
	if err := s.each(len(entries), func(worker *sysfs, i int) (err error) {
		read[i], err = worker.function(entries[i].Name())
		return err
	}); err != nil {
		return nil, err
	}
	functions, indexes := make(map[PCIAddress]Device, len(read)), map[PCIAddress]int{}
	s.rdmaOnly = map[PCIAddress]bool{}
	for _, f := range read {
		if f != nil {
			functions[f.PCIAddress] = f.Device
			s.rdmaOnly[f.PCIAddress] = f.rdmaOnly
			maps.Copy(indexes, f.vfIndexes)
		}
	}
	s.setIndexes(functions, indexes)
	return functions, nil
}

// function is a PCI network function.
type function struct {
	Device
	// vfIndexes maps the addresses of the function's virtual functions to their indexes.
	vfIndexes map[PCIAddress]int
	rdmaOnly  bool
}

// function reads the named PCI function. It returns nil if that is not a network function.
func (s *sysfs) function(name string) (*function, error) {
	dir, ok := s.functionPlace(name)
	if !ok {
		return nil, nil
	}
	f := &function{Device: dir.function()}
	if f.RDMA {
		_, err := fs.Stat(s.fsys, dir.path("net"))
		f.rdmaOnly = errors.Is(err, fs.ErrNotExist)
	}
	if !f.SRIOVCapable {
		return f, nil
	}
	var err error
	f.vfIndexes, err = dir.vfIndexes()
	return f, err
}

// functionPlace returns the directory of a PCI function if it is a network function. This is determined by the
// function's class or, if the class cannot be read, by whether a network driver has created a subdirectory.
func (s *sysfs) functionPlace(name string) (place, bool) {
	if !isPCIAddress(name) {
		return place{}, false
	}
	entries := place{s, pciDevices, name}
	target, ok := entries.link(name)
	if !ok {
		return place{}, false // the function has been unplugged since it was listed, or a problem was recorded
	}
	dir := place{s, path.Join(pciDevices, target), name}
	class := dir.text("class")
	if class == "" {
		_, network := dir.list("net")
		return dir, network
	}
	return dir, strings.HasPrefix(class, networkClass)
}

// function reads a PCI function.
func (p place) function() Device {
	d := Device{
		PCIAddress: PCIAddress(p.about),
		PCIeRoot:   pcieRoot(p.dir),
		NUMANode:   p.number("numa_node", nodes()),
		Vendor:     p.id("vendor"),
		Product:    p.id("device"),
		Driver:     p.linkBase("driver"),
		PFAddress:  p.linkedFunction("physfn"),
		VFIndex:    None,
		VLANID:     None,
	}
	d.RDMADevices, d.RDMA = p.list(rdmaDirectory)
	if d.PFAddress != "" {
		return d // only physical functions have the files below
	}
	d.TotalVFs = p.number("sriov_totalvfs", functionCounts())
	d.SRIOVCapable = d.TotalVFs > 0
	if !d.SRIOVCapable {
		return d
	}
	d.NumVFs = p.number("sriov_numvfs", functionCounts())
	if d.NumVFs > d.TotalVFs {
		p.problem("sriov_numvfs is %d, more than sriov_totalvfs (%d)", d.NumVFs, d.TotalVFs)
		d.NumVFs = d.TotalVFs
	}
	return d
}

// vfIndexes reads a physical function's virtfn symlinks.
func (p place) vfIndexes() (map[PCIAddress]int, error) {
	entries, err := fs.ReadDir(p.fsys, p.dir)
	if err != nil {
		return nil, fmt.Errorf("%w: cannot list virtual functions: %w", errChanged, err)
	}
	indexes := map[PCIAddress]int{}
	for _, entry := range entries {
		digits, ok := strings.CutPrefix(entry.Name(), "virtfn")
		index, err := strconv.Atoi(digits)
		if !ok || err != nil || index < 0 {
			continue
		}
		if vf := p.linkedFunction(entry.Name()); vf != "" {
			indexes[vf] = index
		}
	}
	return indexes, nil
}

// setIndexes sets the indexes of virtual functions. A virtual function without an index cannot be named or offered.
func (s *sysfs) setIndexes(functions map[PCIAddress]Device, indexes map[PCIAddress]int) {
	for address, f := range functions {
		if f.PFAddress == "" {
			continue
		}
		index, ok := indexes[address]
		if !ok {
			place{s, "", string(address)}.problem(
				"cannot find the index of the virtual function, which cannot be used without one: %s has no virtfn "+
					"link to it", f.PFAddress)
			continue
		}
		f.VFIndex = index
		functions[address] = f
	}
}

// path returns the path to an entry in the directory. Both parts of the path are already clean.
func (p place) path(name string) string { return p.dir + "/" + name }

// problem records a problem with the device.
func (p place) problem(format string, arguments ...any) {
	p.problems = append(p.problems, Problem{Device: p.about, Message: fmt.Sprintf(format, arguments...)})
}

// failed records a problem with reading an entry, unless the entry simply does not exist.
func (p place) failed(name string, err error) {
	if err == nil || isAbsent(err) {
		return
	}
	reason := err
	if wrapped := (*fs.PathError)(nil); errors.As(err, &wrapped) {
		reason = wrapped.Err // omit the path, which depends on the mount point of sysfs
	}
	p.problem("cannot read %s: %v", name, reason)
}

// isAbsent reports whether an error from sysfs means that a fact is absent: the file does not exist, is not a link, or
// the driver does not provide the fact. The show functions in the kernel's net/core/net-sysfs.c return EINVAL if the
// link is down, EOPNOTSUPP if the driver does not implement the operation, and ENODEV if the device is being removed.
//
// All other errors are faults, such as EIO if the hardware does not respond, and are reported as problems with the
// device.
func isAbsent(err error) bool {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return true
	}
	for _, number := range []syscall.Errno{unix.EINVAL, unix.EOPNOTSUPP, unix.ENODEV, unix.ENOTDIR} {
		if errors.Is(err, number) {
			return true
		}
	}
	return false
}

// text returns the content of a file without surrounding white space, or "" if it cannot be read.
func (p place) text(name string) string {
	content, err := fs.ReadFile(p.fsys, p.path(name))
	if err != nil {
		p.failed(name, err)
		return ""
	}
	return strings.TrimSpace(string(content))
}

// number returns the number in a file. If the number is outside the span, it is reported as a problem and treated as
// absent.
func (p place) number(name string, valid span) int {
	n, err := valid.parse(p.text(name))
	if err != nil {
		p.problem("cannot use %s: %v", name, err)
	}
	return n
}

// word returns the name in a file if the name can be shown to users and used in policies.
func (p place) word(name string) string {
	text := p.text(name)
	if !isWord(text) {
		p.problem("cannot use %s: it contains %s, which is not a valid name", name, excerpt(text))
		return ""
	}
	return text
}

// id returns the PCI ID in a file.
func (p place) id(name string) string {
	id, err := parseID(p.text(name))
	if err != nil {
		p.problem("cannot use %s: %v", name, err)
	}
	return id
}

// list returns the names of a directory's entries, and whether the directory exists.
func (p place) list(name string) ([]string, bool) {
	entries, err := fs.ReadDir(p.fsys, p.path(name))
	if err != nil {
		p.failed(name, err)
		return nil, false
	}
	var names []string
	for _, entry := range entries {
		if !isWord(entry.Name()) {
			p.problem("cannot use all of %s: %s is not a valid name", name, excerpt(entry.Name()))
			continue
		}
		names = append(names, entry.Name())
	}
	return names, true
}

// link returns a symbolic link's target, and whether the link exists.
func (p place) link(name string) (string, bool) {
	target, err := p.fsys.ReadLink(p.path(name))
	p.failed(name, err)
	return target, err == nil
}

// linkBase returns the last element of a symbolic link's target, or "" if there is no such link.
func (p place) linkBase(name string) string {
	target, ok := p.link(name)
	if !ok {
		return ""
	}
	base := path.Base(target)
	if !isWord(base) {
		p.problem("cannot use %s: it points to %s, which is not a valid name", name, excerpt(base))
		return ""
	}
	return base
}

// linkedFunction returns the PCI function that a symbolic link points to, or "" if there is no such link.
func (p place) linkedFunction(name string) PCIAddress {
	base := p.linkBase(name)
	if base != "" && !isPCIAddress(base) {
		p.problem("cannot use %s: it points to %s, which is not a PCI function", name, excerpt(base))
		return ""
	}
	return PCIAddress(base)
}

// pciFunction returns the address of the PCI function that a device directory belongs to. A virtio device is treated as
// part of its function, since it is the function's only child. Other child devices may share their function with
// siblings, so the function's address does not identify them.
func pciFunction(dir string) PCIAddress {
	if strings.HasPrefix(path.Base(dir), "virtio") {
		dir = path.Dir(dir)
	}
	if !isPCIAddress(path.Base(dir)) {
		return ""
	}
	return PCIAddress(path.Base(dir))
}
