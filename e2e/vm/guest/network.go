package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink"
)

// makeVFs creates virtual functions on every physical function. The physical function's driver creates them only if its
// link is up. All virtual functions on a physical function are created at the same time, because the kernel allows
// their number to be changed only from 0, its value after a boot.
func makeVFs(count int) error {
	functions, err := filepath.Glob("/sys/bus/pci/devices/*/sriov_numvfs")
	if err != nil {
		return err
	}
	for _, file := range functions {
		links, err := os.ReadDir(filepath.Join(filepath.Dir(file), "net"))
		if err != nil {
			continue // not a NIC
		}
		for _, link := range links {
			if err := setUp(link.Name()); err != nil {
				return err
			}
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(count)), 0); err != nil {
			return fmt.Errorf("cannot make %d virtual functions of %s: %w", count, filepath.Dir(file), err)
		}
	}
	return nil
}

// nameUplink renames the link with the MAC address UplinkMAC. It compares addresses because the order of links is
// undefined.
func nameUplink(name string) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("cannot list links: %w", err)
	}
	for _, link := range links {
		if link.Attrs().HardwareAddr.String() == UplinkMAC {
			return netlink.LinkSetName(link, name)
		}
	}
	return fmt.Errorf("no NIC has the address %s", UplinkMAC)
}

// setUp sets a link up, because links are down when the kernel creates them.
func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("cannot set link %s up: %w", name, err)
	}
	return nil
}
