package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// function is a virtual function on the host.
type function struct {
	pf    netlink.Link
	index int
	// link is empty for functions without a link, such as those bound to vfio-pci.
	link string
}

// find looks up the virtual function at a PCI address. Its number is the one in the name of the virtfn symlink, which
// netlink also uses (IFLA_VF_INFO). The number does not depend on where the function's network link is.
func (p *plugin) find(address string) (*function, error) {
	dir := filepath.Join(p.pci, address)
	pfDir := filepath.Join(dir, "physfn")
	names, err := os.ReadDir(filepath.Join(pfDir, "net"))
	if err == nil && len(names) == 0 {
		err = os.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not a virtual function whose physical function has a link here: %w", address, err)
	}
	f := &function{index: -1}
	if f.pf, err = netlink.LinkByName(names[0].Name()); err != nil {
		return nil, fmt.Errorf("physical function %s: %w", names[0].Name(), err)
	}
	entries, err := filepath.Glob(filepath.Join(pfDir, "virtfn*"))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if target, err := os.Readlink(entry); err == nil && filepath.Base(target) == address {
			if f.index, err = strconv.Atoi(strings.TrimPrefix(filepath.Base(entry), "virtfn")); err != nil {
				return nil, err
			}
		}
	}
	if f.index < 0 {
		return nil, fmt.Errorf("%s is not among the virtual functions of %s", address, f.pf.Attrs().Name)
	}
	if links, err := os.ReadDir(filepath.Join(dir, "net")); err == nil && len(links) > 0 {
		f.link = links[0].Name()
	}
	return f, nil
}

// settings contains the settings that are made through the physical function.
type settings struct {
	PF           string // name of the physical function at ADD
	MAC          string
	VLAN, QoS    int
	SpoofCheck   bool
	Trust        bool
	LinkState    uint32
	MinTx, MaxTx int
}

// settings reads the function's current settings.
func (f *function) settings() (settings, error) {
	for _, vf := range f.pf.Attrs().Vfs {
		if vf.ID == f.index {
			return settings{
				PF: f.pf.Attrs().Name, MAC: vf.Mac.String(), VLAN: vf.Vlan, QoS: vf.Qos, SpoofCheck: vf.Spoofchk,
				Trust:     vf.Trust == 1,
				LinkState: vf.LinkState, MinTx: int(vf.MinTxRate), MaxTx: int(vf.MaxTxRate),
			}, nil
		}
	}
	return settings{}, fmt.Errorf("%s does not report the settings of virtual function %d", f.pf.Attrs().Name, f.index)
}

// apply applies the settings in the configuration one after the other, and stops at the first one that is rejected.
func (f *function) apply(c *config) error {
	do := func(wanted bool, what string, set func() error) error {
		if !wanted {
			return nil
		}
		if err := set(); err != nil {
			return fmt.Errorf("cannot set %s of virtual function %d of %s: %w", what, f.index, f.pf.Attrs().Name, err)
		}
		return nil
	}
	value := func(number *int) int {
		if number == nil {
			return 0
		}
		return *number
	}
	for _, step := range []struct {
		wanted bool
		what   string
		set    func() error
	}{
		{c.VLAN != nil, "vlan",
			func() error { return netlink.LinkSetVfVlanQos(f.pf, f.index, *c.VLAN, value(c.VLANQoS)) }},
		{c.MAC != "", "mac", func() error { return f.setMAC(c.MAC) }},
		{c.MinTxRate != nil || c.MaxTxRate != nil, "rates", func() error {
			return netlink.LinkSetVfRate(f.pf, f.index, value(c.MinTxRate), value(c.MaxTxRate))
		}},
		{c.SpoofCheck != "", "spoofchk",
			func() error { return netlink.LinkSetVfSpoofchk(f.pf, f.index, c.SpoofCheck == "on") }},
		{c.Trust != "", "trust", func() error { return netlink.LinkSetVfTrust(f.pf, f.index, c.Trust == "on") }},
		{c.LinkState != "", "link_state",
			func() error { return netlink.LinkSetVfState(f.pf, f.index, linkStates()[c.LinkState]) }},
	} {
		if err := do(step.wanted, step.what, step.set); err != nil {
			return err
		}
	}
	return nil
}

func (f *function) setMAC(text string) error {
	mac, err := net.ParseMAC(text)
	if err != nil {
		return err
	}
	return netlink.LinkSetVfHardwareAddr(f.pf, f.index, mac)
}

// reset restores the settings that ADD changed. It tries to restore all of them, even after an error, and returns all
// errors.
func (f *function) reset(c *config, before settings) error {
	var problems []error
	if c.VLAN != nil {
		problems = append(problems, netlink.LinkSetVfVlanQos(f.pf, f.index, before.VLAN, before.QoS))
	}
	if c.SpoofCheck != "" {
		problems = append(problems, netlink.LinkSetVfSpoofchk(f.pf, f.index, before.SpoofCheck))
	}
	if c.MAC != "" || before.MAC != "" { // even if ADD did not set an address
		problems = append(problems, f.setMAC(before.MAC))
	}
	if c.Trust != "" {
		problems = append(problems, netlink.LinkSetVfTrust(f.pf, f.index, before.Trust))
	}
	if c.MinTxRate != nil || c.MaxTxRate != nil {
		problems = append(problems, netlink.LinkSetVfRate(f.pf, f.index, before.MinTx, before.MaxTx))
	}
	if c.LinkState != "" {
		problems = append(problems, netlink.LinkSetVfState(f.pf, f.index, before.LinkState))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("cannot reset virtual function %d of %s: %w", f.index, f.pf.Attrs().Name, err)
	}
	return nil
}
