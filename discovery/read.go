package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	readAttempts = 5
	readPause    = 20 * time.Millisecond
)

// errChanged is returned if the kernel's state changed during a scan, which makes the facts inconsistent.
var errChanged = errors.New("the node's links changed while they were read")

// Read reads the node's network devices. If a change interrupts a scan, Read repeats the scan a few times before it
// fails. Therefore, a device that is missing from the facts is not on the node. Errors about individual devices are
// reported in Facts.Problems.
func Read(ctx context.Context, source Sources) (Facts, error) {
	return attempt(ctx, func() (Facts, error) { return readOnce(source) })
}

// attempt repeats a scan until it is consistent.
func attempt[T any](ctx context.Context, reading func() (T, error)) (T, error) {
	var nothing T
	var err error
	for range readAttempts {
		var taken T
		if taken, err = reading(); err == nil {
			return taken, nil
		}
		if !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, errChanged) {
			break
		}
		select {
		case <-ctx.Done():
			return nothing, fmt.Errorf("cannot read the node's network devices: %w", context.Cause(ctx))
		case <-time.After(readPause):
		}
	}
	return nothing, fmt.Errorf("cannot read the node's network devices: %w", err)
}

// readOnce performs a single scan.
//
// It reads links first, then sysfs. If a link disappears in between, its directory is missing; readOnce returns
// errChanged, and the scan is repeated. If a link appears in between, it is missing from the facts, but the kernel's
// event triggers another scan.
func readOnce(source Sources) (Facts, error) {
	links, problems, err := readLinks(source.Links, source.NodeAddresses)
	if err != nil {
		return Facts{}, err
	}
	sys := &sysfs{fsys: source.Sys, problems: problems}
	functions, err := sys.functions()
	if err != nil {
		return Facts{}, err
	}
	addNearNodes(source.Sys, functions)
	if err := sys.each(len(links), func(worker *sysfs, i int) error {
		return worker.addLink(&links[i], functions)
	}); err != nil {
		return Facts{}, err
	}
	sys.addPorts(links, functions)
	byAddress := uplinks(links)
	if err := sys.addRDMA(source.Hardware, functions, byAddress, links); err != nil {
		return Facts{}, err
	}
	for i := range links {
		links[i].Immovable = isImmovable(source.Hardware, &links[i])
	}
	problems = append(sys.problems, addHardware(source.Hardware, functions, byAddress)...)
	return assemble(links, functions, byAddress, sys.rdmaOnly, problems), nil
}

// assemble combines links and PCI functions. It modifies the map of functions.
//
// A function may have several links: the link in uplinks represents the function, and the other links, such as
// representors, become devices without a function. The remaining functions have no link on the host. A virtual function
// without a link is still a device, since its link may be in a pod, or the function may be bound to a userspace driver.
// The same applies to any other function that is bound to such a driver or that only has RDMA devices.
func assemble(links []link, byAddress map[PCIAddress]Device, uplinks map[PCIAddress]int,
	rdmaOnly map[PCIAddress]bool, problems []Problem) Facts {
	facts := Facts{Problems: problems}
	devices := make(map[string]Device, len(links)+len(byAddress))
	vfs := make([]Device, 0, len(byAddress))
	sharing := sharedFunctions(links, byAddress)
	for _, l := range links {
		d := l.Device
		d.SharedFunction = l.isPort() && sharing[l.function]
		if f, ok := byAddress[l.function]; ok && uplinks[l.function] == l.index {
			d = d.withFunction(f)
			delete(byAddress, l.function)
		}
		if l.rdmaPort != nil {
			d.RDMAPort = *l.rdmaPort
		}
		if d.PFAddress != "" && d.AuxiliaryDevice == "" {
			vfs = append(vfs, d)
			continue
		}
		d.Type = d.classify(l.hardware)
		devices[d.identity()] = d
	}
	for _, f := range byAddress {
		switch {
		case f.PFAddress != "":
			vfs = append(vfs, f)
		case drivesFromUserspace(f.Driver), rdmaOnly[f.PCIAddress]:
			f.Type, f.Name = f.classify(true), unnamed(f.PCIAddress)
			devices[f.identity()] = f
		}
	}
	for i := range vfs {
		vfs[i].Type = TypeVF
	}
	protectPFs(vfs, devices)
	nameParents(devices)
	named, orphans := adopt(vfs, devices)
	for _, d := range named {
		devices[d.identity()] = d
	}
	nameRepresentors(links, devices)
	facts.Orphans = sortedByAddress(orphans)
	facts.add(devices, nil)
	facts.Problems = sortedProblems(facts.Problems)
	return facts
}

// sharedFunctions returns the set of PCI network functions that have several ports.
func sharedFunctions(links []link, byAddress map[PCIAddress]Device) map[PCIAddress]bool {
	seen, shared := map[PCIAddress]bool{}, map[PCIAddress]bool{}
	for i := range links {
		if _, known := byAddress[links[i].function]; known && links[i].isPort() {
			shared[links[i].function] = seen[links[i].function]
			seen[links[i].function] = true
		}
	}
	return shared
}

// isPort reports whether a link is a port of its PCI function, as opposed to a representor or a scalable function.
func (l *link) isPort() bool { return !l.port.representor && l.AuxiliaryDevice == "" }

// drivesFromUserspace reports whether a kernel driver does nothing but make a function accessible to applications. A
// function that is bound to such a driver has no interface in any network namespace.
func drivesFromUserspace(driver string) bool {
	return slices.Contains([]string{"vfio-pci", "uio_pci_generic", "igb_uio"}, driver)
}

// unnamed returns the device name for a physical function or NIC that has no interface to be named after: its address
// with "-" instead of ":" and ".". Neither the kernel nor udev uses names of this form.
func unnamed(address PCIAddress) IfName {
	return IfName("pci-" + strings.NewReplacer(":", "-", ".", "-").Replace(string(address)))
}

// nameRepresentors sets the RepresentorName of virtual and scalable functions. A representor's port name ends with the
// index of its virtual function or the number of its scalable function: pf0vf3, pf0sf88.
func nameRepresentors(links []link, devices map[string]Device) {
	type function struct {
		pf   PCIAddress
		port string
	}
	names := map[function]IfName{}
	for i := range links {
		l := &links[i]
		if port, ok := cutNumber(l.PortName, "pf"); ok && l.Representor {
			names[function{l.function, port}] = l.Interface
		}
	}
	for identity, d := range devices {
		port := fmt.Sprintf("vf%d", d.VFIndex)
		if d.Type == TypeSF {
			port = fmt.Sprintf("sf%d", d.SFNumber)
		}
		if name, ok := names[function{d.PFAddress, port}]; ok && d.PFAddress != "" {
			d.RepresentorName = name
			devices[identity] = d
		}
	}
}

// nameParents sets the PFName of scalable functions.
func nameParents(devices map[string]Device) {
	for identity, d := range devices {
		if pf, ok := devices[Device{PCIAddress: d.PFAddress}.identity()]; ok && d.AuxiliaryDevice != "" {
			devices[identity] = d.withPF(pf.Name)
		}
	}
}

// protectPFs marks a physical function as carrying the node's traffic if one of its virtual or scalable functions does:
// with most drivers, taking down a physical function also takes down these functions. For example, if a node's default
// route uses a virtual function of ens1f0, the node would lose its network along with ens1f0.
func protectPFs(vfs []Device, devices map[string]Device) {
	withCarrier := map[PCIAddress]bool{}
	for i := range vfs {
		withCarrier[vfs[i].PFAddress] = withCarrier[vfs[i].PFAddress] || vfs[i].DefaultRoute
	}
	for _, sf := range devices {
		withCarrier[sf.PFAddress] = withCarrier[sf.PFAddress] || sf.DefaultRoute
	}
	for identity, d := range devices {
		if d.PCIAddress != "" && withCarrier[d.PCIAddress] {
			d.DefaultRoute = true
			devices[identity] = d
		}
	}
}

// withFunction returns the link's device with the facts about the underlying PCI function added.
func (d Device) withFunction(f Device) Device {
	d.PCIAddress, d.PCIeRoot, d.NUMANode, d.NUMANodes = f.PCIAddress, f.PCIeRoot, f.NUMANode, f.NUMANodes
	d.Vendor, d.Product = f.Vendor, f.Product
	d.RDMA, d.RDMADevices = f.RDMA, f.RDMADevices
	d.RDMALinkLayer, d.RDMANetns, d.RDMAPort = f.RDMALinkLayer, f.RDMANetns, f.RDMAPort
	d.Driver = cmp.Or(d.Driver, f.Driver) // a virtio link uses the driver of the virtio device
	d.SRIOVCapable, d.TotalVFs, d.NumVFs = f.SRIOVCapable, f.TotalVFs, f.NumVFs
	d.EswitchMode = f.EswitchMode
	d.PFAddress, d.VFIndex, d.Settings = f.PFAddress, f.VFIndex, f.Settings
	return d
}

// classify returns the type of a device other than a virtual function. hardware is true if the link belongs to a
// hardware device.
func (d Device) classify(hardware bool) string {
	switch {
	case d.SRIOVCapable:
		return TypePF
	case d.AuxiliaryDevice != "":
		return TypeSF
	case d.Kind == kindOpenVSwitch && d.BridgeType == "":
		return TypeOVSDatapath
	case d.Kind == kindOpenVSwitch:
		return TypeOVSInternal
	case d.BridgeType != "":
		return TypeBridge
	case d.Kind == "vlan":
		return TypeVLAN
	case d.Kind == "bond":
		return TypeBond
	case hardware:
		return TypeNIC
	}
	return d.Kind
}

// sortedProblems returns the problems sorted by device and message, without duplicates, which occur because a link and
// its function share files.
func sortedProblems(problems []Problem) []Problem {
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(problems)
}
