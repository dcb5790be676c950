package discovery

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// sysfs reads a mounted sysfs. Files that a driver does not support (reading them fails) count as absent.
type sysfs struct {
	fsys fs.ReadLinkFS
}

const pciDevices = "bus/pci/devices"

// networkClass is the PCI base class of network controllers, as sysfs writes it.
const networkClass = "0x02"

// addressSet is NET_ADDR_SET of the kernel's include/uapi/linux/netdevice.h: somebody has set the link's address.
const addressSet = 3

// addLink adds what sysfs knows of a link. It fails with errChanged if sysfs does not know the link at all.
func (s sysfs) addLink(l *link) error {
	entry := path.Join("class/net", string(l.Name))
	target, err := s.fsys.ReadLink(entry)
	if err != nil {
		return fmt.Errorf("%w: sysfs has no %s; if this stays, the sysfs belongs to another network namespace "+
			"(the driver needs the host's network and a /sys mounted in it): %w", errChanged, entry, err)
	}
	dir := path.Join(path.Dir(entry), target)
	if l.Kind != "bridge" { // a bridge has the speed of its fastest port, which comes and goes with pods
		l.LinkSpeed = max(s.number(path.Join(dir, "speed"), 0), 0)
	}
	l.InheritedMAC = l.Kind == "bridge" && s.number(path.Join(dir, "addr_assign_type"), addressSet) != addressSet
	below, err := s.fsys.ReadLink(path.Join(dir, "device"))
	if err != nil {
		return nil //nolint:nilerr // a virtual link has no device below it
	}
	l.hardware = true
	device := path.Join(dir, below)
	l.function = pciFunction(device)
	l.port = port{
		representor: isRepresentor(s.text(path.Join(dir, "phys_port_name"))),
		number:      s.number(path.Join(dir, "dev_port"), 0),
	}
	// The facts of hardware that is not a PCI function of its own: virtio, USB, paravirtual and multi-port devices.
	l.Driver = s.linkBase(path.Join(device, "driver"))
	l.NUMANode = max(s.number(path.Join(device, "numa_node"), None), None)
	l.PCIeRoot = pcieRoot(device)
	return nil
}

// functions reads all PCI network functions, sorted as the file system sorts them.
func (s sysfs) functions() ([]Device, []Problem, error) {
	entries, err := fs.ReadDir(s.fsys, pciDevices)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list PCI functions: %w", err)
	}
	var functions []Device
	var problems []Problem
	indexes := map[PCIAddress]int{}
	for _, entry := range entries {
		dir, err := s.real(path.Join(pciDevices, entry.Name()))
		if err != nil || !strings.HasPrefix(s.text(path.Join(dir, "class")), networkClass) {
			continue
		}
		f := s.function(PCIAddress(entry.Name()), dir)
		functions = append(functions, f)
		if f.SRIOVCapable {
			if err := s.addVFIndexes(dir, indexes); err != nil {
				return nil, nil, err
			}
		}
	}
	known := functions[:0]
	for _, f := range functions {
		if f.PFAddress != "" {
			index, ok := indexes[f.PCIAddress]
			if !ok {
				problems = append(problems, Problem{Device: string(f.PCIAddress), Message: fmt.Sprintf(
					"cannot find the index of the virtual function: %s has no virtfn link to it", f.PFAddress)})
				continue
			}
			f.VFIndex = index
		}
		known = append(known, f)
	}
	return known, problems, nil
}

// function reads one PCI function whose directory is dir.
func (s sysfs) function(address PCIAddress, dir string) Device {
	_, rdma := fs.Stat(s.fsys, path.Join(dir, "infiniband"))
	d := Device{
		PCIAddress: address,
		PCIeRoot:   pcieRoot(dir),
		NUMANode:   max(s.number(path.Join(dir, "numa_node"), None), None),
		Vendor:     strings.TrimPrefix(s.text(path.Join(dir, "vendor")), "0x"),
		Product:    strings.TrimPrefix(s.text(path.Join(dir, "device")), "0x"),
		Driver:     s.linkBase(path.Join(dir, "driver")),
		RDMA:       rdma == nil,
		TotalVFs:   s.number(path.Join(dir, "sriov_totalvfs"), 0),
		NumVFs:     s.number(path.Join(dir, "sriov_numvfs"), 0),
		PFAddress:  PCIAddress(s.linkBase(path.Join(dir, "physfn"))),
		VFIndex:    None,
		VLANID:     None,
	}
	d.SRIOVCapable = d.TotalVFs > 0
	return d
}

// addVFIndexes reads the virtfn links of a physical function.
func (s sysfs) addVFIndexes(dir string, indexes map[PCIAddress]int) error {
	entries, err := fs.ReadDir(s.fsys, dir)
	if err != nil {
		return fmt.Errorf("%w: cannot list virtual functions: %w", errChanged, err)
	}
	for _, entry := range entries {
		digits, ok := strings.CutPrefix(entry.Name(), "virtfn")
		index, err := strconv.Atoi(digits)
		if !ok || err != nil {
			continue
		}
		if vf := s.linkBase(path.Join(dir, entry.Name())); vf != "" {
			indexes[PCIAddress(vf)] = index
		}
	}
	return nil
}

// real returns the path that the symbolic link name points to.
func (s sysfs) real(name string) (string, error) {
	target, err := s.fsys.ReadLink(name)
	return path.Join(path.Dir(name), target), err
}

// text returns the content of a file without white space around it; empty if it cannot be read.
func (s sysfs) text(name string) string {
	content, err := fs.ReadFile(s.fsys, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// number returns the number in a file, or absent if there is none.
func (s sysfs) number(name string, absent int) int {
	if n, err := strconv.Atoi(s.text(name)); err == nil {
		return n
	}
	return absent
}

// linkBase returns the last element of what a symbolic link points to; empty if there is no such link.
func (s sysfs) linkBase(name string) string {
	target, err := s.fsys.ReadLink(name)
	if err != nil {
		return ""
	}
	return path.Base(target)
}

// pciFunction returns the address of the PCI function that a device directory is, or that a virtio device stands on
// alone. Other devices that stand on a function share it with others, so it does not identify them.
func pciFunction(dir string) PCIAddress {
	if strings.HasPrefix(path.Base(dir), "virtio") {
		dir = path.Dir(dir)
	}
	if !isPCIAddress(path.Base(dir)) {
		return ""
	}
	return PCIAddress(path.Base(dir))
}

// isPCIAddress says whether s is domain:bus:device.function in lower-case hexadecimal digits.
func isPCIAddress(s string) bool {
	ok, err := regexp.MatchString(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`, s)
	return ok && err == nil
}

// pcieRoot returns the PCI root above a device directory; empty if there is none.
func pcieRoot(dir string) string {
	rest, ok := strings.CutPrefix(dir, "devices/")
	root, _, _ := strings.Cut(rest, "/")
	if !ok || !strings.HasPrefix(root, "pci") {
		return ""
	}
	return root
}

// isRepresentor says whether a phys_port_name is that of a representor of a virtual function or subfunction.
func isRepresentor(physPortName string) bool {
	ok, err := regexp.MatchString(`^(c[0-9]+)?pf[0-9]+(vf|sf)[0-9]+$`, physPortName)
	return ok && err == nil
}
