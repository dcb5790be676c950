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
	"github.com/dra-networking/dra-network-driver/cnichain/linkstate"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Restore finds the device on the host under any name, resets all properties that differ from its baseline, and
// verifies them.
//
// The order follows from the dependencies: the kernel driver creates the link, an RDMA device is identified by its
// link, the PF must permit the function's settings, and addresses and routes require the link to be up. After a crash,
// the next Restore finds the device again and completes the work.
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
	if device.KeepsLink {
		device.IfName, device.Driver, device.VF = "", "", nil
	}
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
		if err := checkUnstacked(handle, link, &device); err != nil {
			// While the device is down, the links stacked on it can neither send nor receive.
			return errors.Join(err, handle.LinkSetDown(link))
		}
		restoreOwnAddress(handle, link, &device)
		now.Index = link.Attrs().Index // differs if the baseline's index was in use when the link returned
	}
	// If an RDMA device is missing, the device stays in quarantine. Its link is still restored, because an
	// administrator who recreates the RDMA device will look for the link by name.
	missing := h.restoreRDMA(&now)
	if device.VF != nil { // first, since a function must not have an address that its PF does not allow
		if err := restoreVF(handle, &device); err != nil {
			return errors.Join(missing, err)
		}
	}
	if device.IfName == "" {
		return missing
	}
	return errors.Join(missing, restoreConfigured(handle, &device))
}

// restoreConfigured restores the link settings, and then the node's network configuration. It restores the kernel's
// attributes first, since some of them can be written only while the link is down, and again at the end, since some can
// be read only while the link is up.
func restoreConfigured(handle *netlink.Handle, device *cnichain.Device) error {
	if link, err := findDevice(handle, device); err != nil {
		return err
	} else if len(device.State) > 0 {
		if _, err := linkstate.Restore(link.Attrs().Index, device.State); err != nil {
			return err
		}
	}
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
	if err := restoreState(link, device); err != nil || device.Network == nil {
		return err
	}
	return restoreNetwork(handle, link, device)
}

// restoreState restores all attributes that the kernel reports, and returns an error if one of them still differs from
// the baseline. Shared devices and baselines from other boots have no state.
func restoreState(link netlink.Link, device *cnichain.Device) error {
	if len(device.State) == 0 {
		return nil
	}
	differences, err := linkstate.Restore(link.Attrs().Index, device.State)
	if err != nil {
		return err
	}
	if len(differences) > 0 {
		return fmt.Errorf("device %s is not in its original state: %s", device.Name, strings.Join(differences, ", "))
	}
	return nil
}

// restoreSettings restores the link settings. Some drivers reject a MAC address change on an untrusted function. In
// that case, it marks the function as trusted and retries; restoreVF revokes the trust, whether or not the retry
// succeeds.
func restoreSettings(handle *netlink.Handle, device *cnichain.Device) error {
	err := restoreLink(handle, device)
	if err == nil || errors.Is(err, os.ErrNotExist) || device.VF == nil || device.VF.Trust {
		return err
	}
	return errors.Join(whileTrusted(handle, device, func() error { return restoreLink(handle, device) }),
		restoreVF(handle, device))
}

// restoreDriver is the only restore step for a device whose baseline is from another boot. It is needed because a PCI
// function persists across reboots, and may still be bound to the driver that a pod used. The device must be on the
// host; its current name and settings do not matter.
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
		return nil // there is no evidence that it has a link in this boot
	}
	_, err := findDevice(handle, device)
	return err
}

// restoreLink restores the link settings from the baseline and verifies them, since some drivers accept a setting but
// ignore it.
func restoreLink(handle *netlink.Handle, device *cnichain.Device) error {
	link, err := findDevice(handle, device)
	if err != nil {
		return err
	}
	if len(differences(link.Attrs(), device)) == 0 {
		return nil // nothing to change; the link has just been read
	}
	if err := applyBaseline(handle, link, device); err != nil {
		return fmt.Errorf("cannot restore the settings of device %s: %w", device.Name, err)
	}
	link, err = findDevice(handle, device)
	if err != nil {
		return err
	}
	if wrong := differences(link.Attrs(), device); len(wrong) > 0 {
		return fmt.Errorf("device %s is not in its original state: %s", device.Name, strings.Join(wrong, ", "))
	}
	return nil
}

// FreeAddress does nothing for a function that already accepts other addresses, or whose baseline is from another boot.
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

// OnHost looks up the device on the host.
func (h Linux) OnHost(device cnichain.Device) (bool, error) {
	if device.IfName == "" || device.KeepsLink {
		return true, nil // it has no link, or the link was never moved
	}
	boot, err := h.Boot()
	if err != nil || device.BootID != boot && device.PCIAddress == "" {
		return err == nil, err
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return false, fmt.Errorf("cannot look up device %s: %w", device.Name, err)
	}
	defer handle.Close()
	_, err = findDevice(handle, &device)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Gone looks up the PCI function in sysfs.
func (Linux) Gone(device cnichain.Device) bool {
	if device.PCIAddress == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(sysPCI, device.PCIAddress))
	return errors.Is(err, os.ErrNotExist)
}

// applyBaseline changes only settings that differ from the baseline.
//
// The variable up tracks whether the link is up. Calls that set the link down leave it down; its final state is set at
// the end.
func applyBaseline(handle *netlink.Handle, link netlink.Link, device *cnichain.Device) error {
	attrs := link.Attrs()
	up := attrs.Flags&net.FlagUp != 0
	if attrs.Name != device.IfName {
		up = false // renaming sets the link down
	}
	if err := nameAsBefore(handle, link, device); err != nil {
		return errors.Join(err, stepAside(handle, link, device, err))
	}
	if err := setAddress(handle, link, device); err != nil {
		up = false // some drivers require the link to be down
		if err := errors.Join(handle.LinkSetDown(link), setAddress(handle, link, device)); err != nil {
			return err
		}
	}
	if device.MTU > 0 && attrs.MTU != device.MTU {
		if err := handle.LinkSetMTU(link, device.MTU); err != nil {
			return fmt.Errorf("MTU %d: %w", device.MTU, err)
		}
	}
	switch {
	case device.Up && !up:
		return handle.LinkSetUp(link)
	case !device.Up && up:
		return handle.LinkSetDown(link)
	}
	return nil
}

// nameAsBefore restores a link's names. It leaves alternative names alone if the baseline was recorded by a driver
// version that did not support them.
func nameAsBefore(handle *netlink.Handle, link netlink.Link, device *cnichain.Device) error {
	if device.Kind != "" {
		return setNames(handle, link, device, device.IfName)
	}
	if link.Attrs().Name == device.IfName {
		return nil
	}
	return rename(handle, link, device.IfName)
}

// setNames sets a link's name, and changes its alternative names and alias to those in the device's baseline.
func setNames(handle *netlink.Handle, link netlink.Link, device *cnichain.Device, name string) error {
	attrs := link.Attrs()
	for _, alt := range attrs.AltNames {
		if alt != name && !slices.Contains(device.AltNames, alt) { // rename removes an alternative name that matches
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

// stepAside assigns a unique transit name to a link if another link uses its own name. That other link may also be on
// its way to the host, and may need this link's current name, which happens when several functions are returned to
// their drivers concurrently.
func stepAside(handle *netlink.Handle, link netlink.Link, device *cnichain.Device, failure error) error {
	if !errors.Is(failure, unix.EEXIST) || link.Attrs().Name == transitName(device) {
		return nil
	}
	return rename(handle, link, transitName(device))
}

// setAddress sets the MAC address from the baseline. It does not rewrite an address that is already set, since a
// function whose address was set through its PF may reject any write.
func setAddress(handle *netlink.Handle, link netlink.Link, device *cnichain.Device) error {
	mac, err := net.ParseMAC(device.MAC)
	if err != nil || link.Attrs().HardwareAddr.String() == mac.String() {
		return nil //nolint:nilerr // a link without a MAC address does not need one
	}
	if err := handle.LinkSetHardwareAddr(link, mac); err != nil {
		return fmt.Errorf("address %s: %w", mac, err)
	}
	return nil
}

// rename sets the link down first, which older kernels require. It removes an alternative name that matches the new
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

// differences lists the properties that differ from the baseline.
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
	}
	return wrong
}
