package host

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// reportedVF is like findVF, but returns an error if the PF no longer reports the configuration. The PF did report it
// when the baseline was recorded.
func reportedVF(handle *netlink.Handle, device *cnichain.Device) (netlink.Link, *netlink.VfInfo, error) {
	pf, info, err := findVF(handle, device)
	if err == nil && info == nil {
		err = fmt.Errorf("device %s: PF %s no longer reports the configuration of its virtual functions", device.Name,
			pf.Attrs().Name)
	}
	return pf, info, err
}

func vfConfig(info *netlink.VfInfo) cnichain.VFConfig {
	return cnichain.VFConfig{
		MAC: info.Mac.String(), VLAN: info.Vlan, QoS: info.Qos, SpoofChk: info.Spoofchk,
		Trust:     info.Trust == 1, // all bits are set if the driver does not report it
		LinkState: info.LinkState, MinTxRate: info.MinTxRate, MaxTxRate: info.MaxTxRate,
	}
}

// findVF finds the PF link that configures a virtual function. A PF may also have links that are representors. The
// virtual function's index is the N in the PF's virtfn<N>. The returned configuration is nil if the PF does not report
// it.
func findVF(handle *netlink.Handle, device *cnichain.Device) (netlink.Link, *netlink.VfInfo, error) {
	dir := filepath.Join(sysPCI, device.PF)
	index, err := vfIndex(dir, device.PCIAddress)
	if err != nil {
		return nil, nil, fmt.Errorf("device %s: %w", device.Name, err)
	}
	var pf netlink.Link
	for link, err := range linksOfFunction(handle, device.PF) {
		if err != nil {
			return nil, nil, fmt.Errorf("device %s: cannot inspect its PF %s: %w", device.Name, device.PF, err)
		}
		pf = link
		for i := range pf.Attrs().Vfs {
			if pf.Attrs().Vfs[i].ID == index {
				return pf, &pf.Attrs().Vfs[i], nil
			}
		}
	}
	if pf == nil {
		return nil, nil, fmt.Errorf("device %s: its PF %s has no link on the host: %w", device.Name, device.PF, errNoPF)
	}
	return pf, nil, nil
}

var errNoPF = errors.New("not there")

// vfIndex returns the number of a virtual function within its PF. The number is read again for each use: after a change
// to sriov_numvfs, another function may have the PCI address, and a setting for the old number would affect an
// unrelated function.
func vfIndex(pfDir, address string) (int, error) {
	functions, err := filepath.Glob(filepath.Join(pfDir, "virtfn*"))
	if err != nil {
		return 0, err
	}
	for _, path := range functions {
		if target, err := os.Readlink(path); err == nil && filepath.Base(target) == address {
			return strconv.Atoi(strings.TrimPrefix(filepath.Base(path), "virtfn"))
		}
	}
	return 0, fmt.Errorf("PCI %s is no longer a virtual function of %s: %w", address, filepath.Base(pfDir),
		os.ErrNotExist)
}

// restoreVF writes those settings that differ from the baseline, and verifies them. It skips settings that already
// match, since some drivers reset a function on every write.
func restoreVF(handle *netlink.Handle, device *cnichain.Device) error {
	pf, info, err := reportedVF(handle, device)
	if err != nil {
		return err
	}
	for _, change := range vfChanges(vfConfig(info), device) {
		if err := change.apply(handle, pf, info.ID); err != nil {
			return fmt.Errorf("cannot restore device %s: cannot set its %s on PF %s: %w", device.Name, change.setting,
				pf.Attrs().Name, err)
		}
	}
	_, info, err = reportedVF(handle, device)
	if err != nil {
		return err
	}
	left := vfChanges(vfConfig(info), device)
	if len(left) == 0 || len(left) == 1 && left[0].setting == vfAddress && isZeroMAC(device.VF.MAC) &&
		info.Mac.String() == device.MAC {
		return nil // if the driver cannot unset it, setVFAddress sets the function's own address, which is equivalent
	}
	return fmt.Errorf("device %s is not in its original state: PF %s did not restore its %s",
		device.Name, pf.Attrs().Name, left[0].setting)
}

// restoreOwnAddress restores the address through the function itself if the physical function stores the same address,
// because some drivers (igb) do not distinguish the two. These drivers treat an address set through the physical
// function as set by an administrator, and then reject any other address that a later owner tries to set. If
// restoreOwnAddress fails, later steps restore the address and report the error.
func restoreOwnAddress(handle *netlink.Handle, link netlink.Link, device *cnichain.Device) {
	if device.VF != nil && device.VF.MAC == device.MAC {
		_ = setAddress(handle, link, device)
	}
}

// freeAddress makes a function accept MAC addresses other than its own again. The igb driver rejects other addresses
// once an address has been set through the physical function, even if it is the function's own; some CNI plugins set it
// on every DEL. This state has only two signs: the physical function reports the function's own address as the
// administrative address, and the function cannot set any other address.
func freeAddress(handle *netlink.Handle, device *cnichain.Device) error {
	if device.IfName == "" || device.VF == nil || device.VF.Trust ||
		isZeroMAC(device.VF.MAC) || device.VF.MAC != device.MAC {
		return nil
	}
	address, err := net.ParseMAC(device.MAC)
	if err != nil {
		return nil //nolint:nilerr // a link without an address needs none
	}
	link, err := findDevice(handle, device)
	if err != nil {
		return err
	}
	err = takeOtherAddress(handle, link, address)
	if !isRefusal(err) {
		return err
	}
	pf, info, err := reportedVF(handle, device)
	if err != nil {
		return err
	}
	if err := handle.LinkSetVfHardwareAddr(pf, info.ID, make(net.HardwareAddr, len(address))); err != nil {
		return restoreVF(handle, device) // there is no other way, since the driver rejects zeros
	}
	if err := takeOtherAddress(handle, link, address); err != nil && !isRefusal(err) {
		return err
	}
	// With other drivers, the function's own address may really have been set as the administrative address. In that
	// case, restoreVF sets it again.
	return restoreVF(handle, device)
}

// takeOtherAddress sets another address and then restores the original one. If the other address is rejected, the link
// is left unchanged.
func takeOtherAddress(handle *netlink.Handle, link netlink.Link, address net.HardwareAddr) error {
	name := link.Attrs().Name
	if err := handle.LinkSetHardwareAddr(link, otherAddress(address)); err != nil {
		if isRefusal(err) {
			return err
		}
		return nil // the link cannot change its address in this state, or at all
	}
	if err := handle.LinkSetHardwareAddr(link, address); err != nil {
		return fmt.Errorf("cannot restore %s: cannot set its address %s: %w",
			name, address, errors.Join(err, errAddressLost))
	}
	return nil
}

// errAddressLost indicates that the original address could not be restored, as opposed to another address being
// rejected.
var errAddressLost = errors.New("the interface has a temporary address; the driver tries again")

// isRefusal reports whether an error means that the physical function refuses to let the virtual function use an
// address.
func isRefusal(err error) bool {
	return !errors.Is(err, errAddressLost) &&
		(errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES))
}

// otherAddress derives a locally administered address that no other device has.
func otherAddress(address net.HardwareAddr) net.HardwareAddr {
	hash := fnv.New32a()
	_, _ = hash.Write(address)
	sum := hash.Sum32()
	derived := net.HardwareAddr{0x02, 'd', byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}
	if bytes.Equal(derived, address) {
		derived[5]++
	}
	return derived
}

// whileTrusted marks a function as trusted, calls do, and leaves the function trusted. Once an address has been set
// through the physical function, some drivers (igb) allow only a trusted function to set its own address, even to the
// same value.
func whileTrusted(handle *netlink.Handle, device *cnichain.Device, do func() error) error {
	pf, info, err := reportedVF(handle, device)
	if err != nil {
		return err
	}
	if err := handle.LinkSetVfTrust(pf, info.ID, true); err != nil {
		return fmt.Errorf("cannot temporarily trust device %s on PF %s: %w", device.Name, pf.Attrs().Name, err)
	}
	return do()
}

// vfChange is a virtual function setting that has to be written through the PF link.
type vfChange struct {
	setting string
	apply   func(handle *netlink.Handle, pf netlink.Link, vf int) error
}

const vfAddress = "address"

// vfChanges lists a function's settings that differ from the desired ones. Trust comes first, since other settings
// depend on it.
func vfChanges(current cnichain.VFConfig, device *cnichain.Device) []vfChange {
	want := *device.VF
	var changes []vfChange
	change := func(differs bool, setting string, apply func(h *netlink.Handle, pf netlink.Link, vf int) error) {
		if differs {
			changes = append(changes, vfChange{setting: setting, apply: apply})
		}
	}
	change(current.Trust != want.Trust, "trust", func(h *netlink.Handle, pf netlink.Link, vf int) error {
		return h.LinkSetVfTrust(pf, vf, want.Trust)
	})
	change(current.SpoofChk != want.SpoofChk, "spoof check", func(h *netlink.Handle, pf netlink.Link, vf int) error {
		return h.LinkSetVfSpoofchk(pf, vf, want.SpoofChk)
	})
	change(current.VLAN != want.VLAN || current.QoS != want.QoS, "VLAN",
		func(h *netlink.Handle, pf netlink.Link, vf int) error {
			return h.LinkSetVfVlanQos(pf, vf, want.VLAN, want.QoS)
		})
	change(current.MinTxRate != want.MinTxRate || current.MaxTxRate != want.MaxTxRate, "rates",
		func(h *netlink.Handle, pf netlink.Link, vf int) error {
			return h.LinkSetVfRate(pf, vf, int(want.MinTxRate), int(want.MaxTxRate))
		})
	change(current.LinkState != want.LinkState, "link state", func(h *netlink.Handle, pf netlink.Link, vf int) error {
		return h.LinkSetVfState(pf, vf, want.LinkState)
	})
	change(current.MAC != want.MAC, vfAddress, func(h *netlink.Handle, pf netlink.Link, vf int) error {
		return setVFAddress(h, pf, vf, device)
	})
	return changes
}

// setVFAddress sets the administrative address. If the baseline has no administrative address and the driver rejects
// zeros, it sets the function's own address.
func setVFAddress(handle *netlink.Handle, pf netlink.Link, vf int, device *cnichain.Device) error {
	mac, err := net.ParseMAC(device.VF.MAC)
	if err != nil {
		return err
	}
	err = handle.LinkSetVfHardwareAddr(pf, vf, mac)
	if err == nil || !isZeroMAC(device.VF.MAC) {
		return err
	}
	address, parseErr := net.ParseMAC(device.MAC)
	if parseErr != nil {
		return err
	}
	return handle.LinkSetVfHardwareAddr(pf, vf, address)
}

func isZeroMAC(mac string) bool { return mac == "" || mac == "00:00:00:00:00:00" }
