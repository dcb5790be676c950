package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sysPCI is where the kernel shows PCI functions.
const sysPCI = "/sys/bus/pci/devices"

// Snapshot reads the baseline of a device that is on the host. A baseline of another boot says nothing about links of
// this one: then a virtual device is the link of its name.
func (h Linux) Snapshot(device cnichain.Device) (cnichain.Device, error) {
	boot, err := h.Boot()
	if err != nil {
		return device, err
	}
	if device.BootID != boot {
		device.Baseline = cnichain.Baseline{Kind: device.Kind, Port: device.Port}
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return device, fmt.Errorf("cannot look at device %s: %w", device.Name, err)
	}
	defer handle.Close()
	if device.IfName != "" {
		link, err := findDevice(handle, &device)
		if err != nil {
			return device, err
		}
		readBaseline(&device, link)
		if device.AllowInUse && device.Exclusive {
			if device.Network, err = readNetwork(handle, link); err != nil {
				return device, err
			}
		}
	}
	device.BootID = boot
	device.Driver = driverOf(&device)
	if device.PCIAddress != "" {
		device.DriverOverride = overrideOf(device.PCIAddress)
	}
	if device.PF != "" {
		config, err := readVF(handle, &device)
		if err != nil {
			return device, err
		}
		device.VF = config
	}
	return device, nil
}

// ownFlags are those that an application can set and that stay when a link moves. Promiscuous and all-multicast are
// here only if somebody asked for them: the kernel does not show those that a master or a socket needs.
const ownFlags = unix.IFF_PROMISC | unix.IFF_ALLMULTI | unix.IFF_NOARP | unix.IFF_MULTICAST

func readBaseline(device *cnichain.Device, link netlink.Link) {
	attrs := link.Attrs()
	device.IfName = attrs.Name
	device.Baseline = cnichain.Baseline{
		Kind: link.Type(), Index: attrs.Index, Parent: attrs.ParentIndex, Port: portOf(attrs.Name),
		AltNames: slices.Sorted(slices.Values(attrs.AltNames)), Alias: attrs.Alias,
		MAC: attrs.HardwareAddr.String(), MTU: attrs.MTU, Up: attrs.Flags&net.FlagUp != 0,
		Flags: attrs.RawFlags & ownFlags, Group: attrs.Group, TxQLen: attrs.TxQLen, XDP: hasXDP(attrs),
	}
	if link.Type() == "bridge" && readSys(attrs.Name, "addr_assign_type") != addressSet {
		device.MAC = "" // that of one of its ports, and another one when ports come and go
	}
	if vlan, ok := link.(*netlink.Vlan); ok {
		device.VLANID, device.VLANProtocol = vlan.VlanId, vlan.VlanProtocol.String()
	}
}

func hasXDP(attrs *netlink.LinkAttrs) bool { return attrs.Xdp != nil && attrs.Xdp.Attached }

// addressSet is NET_ADDR_SET of net/core: an address that somebody has given.
const addressSet = "3"

// portOf tells the links of one PCI function apart.
func portOf(link string) string {
	return strings.TrimSpace(readSys(link, "dev_port") + " " + readSys(link, "phys_port_name"))
}

// readSys reads a file of a link in sysfs; "" where there is none, or the driver has no answer.
func readSys(link, file string) string {
	data, err := os.ReadFile(filepath.Join("/sys/class/net", link, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// driverOf is the kernel driver of the hardware, "" for virtual links.
func driverOf(device *cnichain.Device) string {
	path := filepath.Join(sysPCI, device.PCIAddress, "driver")
	if device.PCIAddress == "" {
		path = filepath.Join("/sys/class/net", device.IfName, "device", "driver")
	}
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// Restore finds the device wherever it is called on the host, changes what is not as its baseline says, and looks
// again.
func (h Linux) Restore(device cnichain.Device) error {
	boot, err := h.Boot()
	if err != nil {
		return err
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("cannot check device %s: %w", device.Name, err)
	}
	defer handle.Close()
	if device.BootID != boot {
		return restoreDriver(handle, &device)
	}
	if device.BindTo != "" {
		if err := restoreBinding(&device); err != nil {
			return err
		}
	}
	if driver := driverOf(&device); device.PCIAddress != "" && device.Driver != "" && driver != device.Driver {
		return fmt.Errorf("device %s (PCI %s) had the driver %q and has %q: bind it again", device.Name,
			device.PCIAddress, device.Driver, driver)
	}
	now := device
	if device.IfName != "" {
		link, err := findDevice(handle, &device)
		if err != nil {
			return err
		}
		restoreOwnAddress(handle, link, &device)
		now.Index = link.Attrs().Index // another one if a link had its own where it came back to
	}
	if err := h.restoreRDMA(&now); err != nil {
		return err
	}
	if device.VF != nil { // first, since a function may not have an address that its PF does not allow
		if err := restoreVF(handle, &device); err != nil {
			return err
		}
	}
	if device.IfName == "" {
		return nil
	}
	return restoreConfigured(handle, &device)
}

// restoreConfigured gives the link its settings, and then what the node had on it.
func restoreConfigured(handle *netlink.Handle, device *cnichain.Device) error {
	if err := restoreSettings(handle, device); err != nil {
		return err
	}
	if err := freeAddress(handle, device); err != nil {
		return err
	}
	link, err := findDevice(handle, device)
	if err != nil {
		return err
	}
	return restoreNetwork(handle, link, device)
}

func restoreSettings(handle *netlink.Handle, device *cnichain.Device) error {
	err := restoreLink(handle, device)
	if err == nil || errors.Is(err, os.ErrNotExist) || device.VF == nil || device.VF.Trust {
		return err
	}
	return errors.Join(whileTrusted(handle, device, func() error { return restoreLink(handle, device) }),
		restoreVF(handle, device))
}

// restoreDriver is all that is done for a device whose baseline is of another boot: a PCI function is the same one in
// every boot, and may still have the driver of a pod. It must be on the host, with whatever name and settings it has
// in this boot.
func restoreDriver(handle *netlink.Handle, device *cnichain.Device) error {
	if device.PCIAddress == "" {
		return nil
	}
	if device.BindTo != "" && device.BindTo != device.Driver && driverOf(device) == device.BindTo {
		if err := restoreBinding(device); err != nil {
			return err
		}
	}
	if device.IfName == "" || driverOf(device) != device.Driver {
		return nil // nothing says that it has a link in this boot
	}
	_, err := findDevice(handle, device)
	return err
}

func restoreLink(handle *netlink.Handle, device *cnichain.Device) error {
	link, err := findDevice(handle, device)
	if err != nil {
		return err
	}
	if err := applyBaseline(handle, link, device); err != nil {
		return fmt.Errorf("cannot give device %s its settings back: %w", device.Name, err)
	}
	link, err = findDevice(handle, device)
	if err != nil {
		return err
	}
	if wrong := differences(link.Attrs(), device); len(wrong) > 0 {
		return fmt.Errorf("device %s is not as it was: %s", device.Name, strings.Join(wrong, ", "))
	}
	return nil
}

// FreeAddress changes nothing of a function that may take other addresses, or whose baseline is of another boot.
func (h Linux) FreeAddress(device cnichain.Device) error {
	boot, err := h.Boot()
	if err != nil || device.BootID != boot || device.VF == nil {
		return err
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("cannot check device %s: %w", device.Name, err)
	}
	defer handle.Close()
	return freeAddress(handle, &device)
}

// OnHost looks for the device.
func (h Linux) OnHost(device cnichain.Device) (bool, error) {
	if device.IfName == "" {
		return true, nil // it has no link
	}
	boot, err := h.Boot()
	if err != nil || device.BootID != boot && device.PCIAddress == "" {
		return err == nil, err
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return false, fmt.Errorf("cannot look for device %s: %w", device.Name, err)
	}
	defer handle.Close()
	_, err = findDevice(handle, &device)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Gone looks for the PCI function.
func (Linux) Gone(device cnichain.Device) bool {
	if device.PCIAddress == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(sysPCI, device.PCIAddress))
	return errors.Is(err, os.ErrNotExist)
}

// findDevice finds hardware by its PCI address, and a virtual device by what no other link can have. What is found
// may be renamed, set down and moved, so a link that is not proven to be the device is never returned.
func findDevice(handle *netlink.Handle, device *cnichain.Device) (netlink.Link, error) {
	links, err := listLinks(handle)
	if err != nil {
		return nil, fmt.Errorf("cannot look for device %s: %w", device.Name, err)
	}
	if device.PCIAddress != "" {
		return findByPCI(links, device)
	}
	if link := findVirtual(links, device); link != nil {
		return link, nil
	}
	return nil, fmt.Errorf("device %s: the host has no link %s (index %d, address %s): %w", device.Name, device.IfName,
		device.Index, device.MAC, os.ErrNotExist)
}

// findVirtual prefers the link with the name that devices have on their way to the host, which only the driver gives:
// while the device was away, somebody may have made a link like it. Nil if there is none.
func findVirtual(links []netlink.Link, device *cnichain.Device) netlink.Link {
	var found netlink.Link
	for _, link := range links {
		switch {
		case device.BootID == "": // the baseline is still to be read
			if link.Attrs().Name == device.IfName {
				return link
			}
		case device.Kind != "" && link.Type() != device.Kind:
		case link.Attrs().Name == transitName(device):
			return link
		case found == nil && isDeviceOnHost(link, device):
			found = link
		}
	}
	return found
}

// isDeviceOnHost says whether a link of the device's kind is proven to be the virtual device, with a baseline of this
// boot. Of one parent the kernel makes only one VLAN with an ID and a protocol. Other links are the device if two of
// name, index and address are its own: any one of them may have changed, or belong to another by now.
func isDeviceOnHost(link netlink.Link, device *cnichain.Device) bool {
	attrs := link.Attrs()
	if device.Index == 0 { // of a driver that noted no boot: indexes may be those of an earlier one
		return attrs.Name == device.IfName && sameAddress(attrs, device)
	}
	if device.Kind != cnichain.KindVeth && attrs.ParentIndex != device.Parent {
		return false
	}
	if vlan, ok := link.(*netlink.Vlan); ok {
		return vlan.VlanId == device.VLANID && vlan.VlanProtocol.String() == device.VLANProtocol
	}
	return matches(attrs, device) >= 2
}

// matches counts what of name, index and address is the device's.
func matches(attrs *netlink.LinkAttrs, device *cnichain.Device) int {
	count := 0
	for _, equal := range []bool{attrs.Name == device.IfName, attrs.Index == device.Index, sameAddress(attrs, device)} {
		if equal {
			count++
		}
	}
	return count
}

func sameAddress(attrs *netlink.LinkAttrs, device *cnichain.Device) bool {
	return device.HasUniqueMAC() && attrs.HardwareAddr.String() == device.MAC
}

// findByPCI takes the link of the function that is on the same port: some functions have several, and representors.
func findByPCI(links []netlink.Link, device *cnichain.Device) (netlink.Link, error) {
	names, err := linksOfFunction(device.PCIAddress)
	if err != nil {
		return nil, fmt.Errorf("cannot look for device %s: %w", device.Name, err)
	}
	var best netlink.Link
	for _, link := range links {
		attrs := link.Attrs()
		if !slices.Contains(names, attrs.Name) {
			continue
		}
		if device.Kind != "" && portOf(attrs.Name) != device.Port { // without a kind the baseline is still to be read
			continue
		}
		if best == nil || matches(attrs, device) > matches(best.Attrs(), device) {
			best = link
		}
	}
	if best == nil {
		return nil, fmt.Errorf("device %s (PCI %s) has no link on the host: %w", device.Name, device.PCIAddress,
			os.ErrNotExist)
	}
	return best, nil
}

// linksOfFunction are the names of a PCI function's links that are on the host. Those of virtio stand on a device
// between.
func linksOfFunction(address string) (names []string, err error) {
	for _, between := range []string{"", "virtio*"} {
		paths, err := filepath.Glob(filepath.Join(sysPCI, address, between, "net", "*"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			names = append(names, filepath.Base(path))
		}
	}
	return names, nil
}

// applyBaseline changes only what is not as it was.
func applyBaseline(handle *netlink.Handle, link netlink.Link, device *cnichain.Device) error {
	attrs := link.Attrs()
	up := attrs.Flags&net.FlagUp != 0
	if attrs.Name != device.IfName {
		up = false // a link that gets a name is set down
	}
	if err := nameAsBefore(handle, link, device); err != nil {
		return errors.Join(err, stepAside(handle, link, device, err))
	}
	if err := setAddress(handle, link, device); err != nil {
		up = false // some drivers want the link down for that
		if err := errors.Join(handle.LinkSetDown(link), setAddress(handle, link, device)); err != nil {
			return err
		}
	}
	if device.MTU > 0 && attrs.MTU != device.MTU {
		if err := handle.LinkSetMTU(link, device.MTU); err != nil {
			return fmt.Errorf("MTU %d: %w", device.MTU, err)
		}
	}
	if err := setProperties(handle, link, device); err != nil {
		return err
	}
	switch {
	case device.Up && !up:
		return handle.LinkSetUp(link)
	case !device.Up && up:
		return handle.LinkSetDown(link)
	}
	return nil
}

// setProperties sets what is in no tenant's interest to inherit.
func setProperties(handle *netlink.Handle, link netlink.Link, device *cnichain.Device) error {
	attrs := link.Attrs()
	if device.Kind == "" {
		return nil // a baseline of an earlier version does not say
	}
	var problems []error
	if hasXDP(attrs) && !device.XDP {
		detachXDP(link)
	}
	if attrs.Group != device.Group {
		problems = append(problems, handle.LinkSetGroup(link, int(device.Group)))
	}
	if attrs.TxQLen != device.TxQLen {
		problems = append(problems, handle.LinkSetTxQLen(link, device.TxQLen))
	}
	for _, flag := range []struct {
		bit             uint32
		enable, disable func(netlink.Link) error
	}{
		{unix.IFF_PROMISC, handle.SetPromiscOn, handle.SetPromiscOff},
		{unix.IFF_ALLMULTI, handle.LinkSetAllmulticastOn, handle.LinkSetAllmulticastOff},
		{unix.IFF_MULTICAST, handle.LinkSetMulticastOn, handle.LinkSetMulticastOff},
		{unix.IFF_NOARP, handle.LinkSetARPOff, handle.LinkSetARPOn},
	} {
		switch current, baseline := attrs.RawFlags&flag.bit, device.Flags&flag.bit; {
		case current == baseline:
		case baseline != 0:
			problems = append(problems, flag.enable(link))
		default:
			problems = append(problems, flag.disable(link))
		}
	}
	return errors.Join(problems...)
}

// detachXDP detaches programs however they are attached. The kernel says yes also where nothing was, so whether it
// helped is seen afterwards.
func detachXDP(link netlink.Link) {
	for _, mode := range []int{unix.XDP_FLAGS_SKB_MODE, unix.XDP_FLAGS_DRV_MODE, unix.XDP_FLAGS_HW_MODE} {
		_ = netlink.LinkSetXdpFdWithFlags(link, -1, mode)
	}
}

// nameAsBefore leaves further names alone where the baseline is of a driver that did not note them.
func nameAsBefore(handle *netlink.Handle, link netlink.Link, device *cnichain.Device) error {
	if device.Kind != "" {
		return setNames(handle, link, device, device.IfName)
	}
	if link.Attrs().Name == device.IfName {
		return nil
	}
	return rename(handle, link, device.IfName)
}

// setNames gives a link a name, and the alternative names and label of the device's baseline and no others.
func setNames(handle *netlink.Handle, link netlink.Link, device *cnichain.Device, name string) error {
	attrs := link.Attrs()
	for _, alt := range attrs.AltNames {
		if alt != name && !slices.Contains(device.AltNames, alt) { // rename takes that one
			if err := handle.LinkDelAltName(link, alt); err != nil {
				return fmt.Errorf("alternative name %s: %w", alt, err)
			}
		}
	}
	if attrs.Name != name {
		if err := rename(handle, link, name); err != nil {
			return err
		}
	}
	for _, alt := range device.AltNames {
		if !slices.Contains(attrs.AltNames, alt) {
			if err := handle.LinkAddAltName(link, alt); err != nil {
				return fmt.Errorf("alternative name %s: %w", alt, err)
			}
		}
	}
	if attrs.Alias != device.Alias {
		if err := handle.LinkSetAlias(link, device.Alias); err != nil {
			return fmt.Errorf("alias %q: %w", device.Alias, err)
		}
	}
	return nil
}

// stepAside gives a link that can't have its name, since another link has it, a name that no other link wants: the
// other may be on its way to the host, too, and want the name that this one has now. So do functions that get their
// drivers back at once.
func stepAside(handle *netlink.Handle, link netlink.Link, device *cnichain.Device, failure error) error {
	if !errors.Is(failure, unix.EEXIST) || link.Attrs().Name == transitName(device) {
		return nil
	}
	return rename(handle, link, transitName(device))
}

func setAddress(handle *netlink.Handle, link netlink.Link, device *cnichain.Device) error {
	mac, err := net.ParseMAC(device.MAC)
	if err != nil || link.Attrs().HardwareAddr.String() == mac.String() {
		return nil //nolint:nilerr // links without an address have none to be set
	}
	if err := handle.LinkSetHardwareAddr(link, mac); err != nil {
		return fmt.Errorf("address %s: %w", mac, err)
	}
	return nil
}

// rename sets the link down first, as older kernels want it. One of its own alternative names must go to become its
// name.
func rename(handle *netlink.Handle, link netlink.Link, name string) error {
	if slices.Contains(link.Attrs().AltNames, name) {
		if err := handle.LinkDelAltName(link, name); err != nil {
			return err
		}
	}
	if err := handle.LinkSetDown(link); err != nil {
		return err
	}
	if err := handle.LinkSetName(link, name); err != nil {
		return fmt.Errorf("name %s: %w", name, err)
	}
	return nil
}

// differences lists what is not as the baseline says.
func differences(attrs *netlink.LinkAttrs, device *cnichain.Device) []string {
	var wrong []string
	differs := func(property string, current, baseline any) {
		if current != baseline {
			wrong = append(wrong, fmt.Sprintf("%s is %v, was %v", property, current, baseline))
		}
	}
	differs("name", attrs.Name, device.IfName)
	if device.MAC != "" {
		differs("address", attrs.HardwareAddr.String(), device.MAC)
	}
	if device.MTU > 0 {
		differs("MTU", attrs.MTU, device.MTU)
	}
	differs("up", attrs.Flags&net.FlagUp != 0, device.Up)
	if device.Kind != "" {
		if names := slices.Sorted(slices.Values(attrs.AltNames)); !slices.Equal(names, device.AltNames) {
			differs("alternative names", strings.Join(names, " "), strings.Join(device.AltNames, " "))
		}
		differs("alias", attrs.Alias, device.Alias)
		differs("flags", attrs.RawFlags&ownFlags, device.Flags)
		differs("group", attrs.Group, device.Group)
		differs("queue length", attrs.TxQLen, device.TxQLen)
		if hasXDP(attrs) && !device.XDP { // one that is gone can't be put back
			wrong = append(wrong, "it has an XDP program")
		}
	}
	return wrong
}
