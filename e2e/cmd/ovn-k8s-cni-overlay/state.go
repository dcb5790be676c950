package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
)

// plugin knows where things are.
type plugin struct {
	state string // folder of records and addresses
	pci   string // of sysfs
}

// record is what DEL must know. It is written before anything is made.
type record struct {
	// Network is whose addresses the attachment has.
	Network string
	// Link and MAC are what a virtual function had on the host; empty for a veth.
	Link, MAC string
	// DeviceID is that of the function.
	DeviceID string
}

func (p *plugin) recordPath(args *skel.CmdArgs) string {
	return filepath.Join(p.state, "attachments", args.ContainerID+"-"+args.IfName)
}

func (p *plugin) save(args *skel.CmdArgs, r record) error {
	data, err := json.Marshal(r)
	path := p.recordPath(args)
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
		return fmt.Errorf("cannot keep what DEL must know: %w", err)
	}
	return nil
}

// load returns nil where there is no record.
func (p *plugin) load(args *skel.CmdArgs) (*record, error) {
	data, err := os.ReadFile(p.recordPath(args))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	r := &record{}
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the record of ADD: %w", err)
	}
	return r, nil
}

// lease takes the first free address of each subnet, which is a file with the name of the attachment in it.
func (p *plugin) lease(args *skel.CmdArgs, c *config) ([]netip.Prefix, error) {
	folder := filepath.Join(p.state, c.Name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	var leased []netip.Prefix
	for _, subnet := range c.subnets {
		address, err := leaseOne(folder, args.ContainerID+"-"+args.IfName, subnet, c.excluded)
		if err != nil {
			return nil, err
		}
		leased = append(leased, netip.PrefixFrom(address, subnet.Bits()))
	}
	return leased, nil
}

func leaseOne(folder, owner string, subnet netip.Prefix, excluded []netip.Prefix) (netip.Addr, error) {
	// not the first, nor the last
	for address := subnet.Addr().Next(); subnet.Contains(address.Next()); address = address.Next() {
		if slices.ContainsFunc(excluded, func(p netip.Prefix) bool { return p.Contains(address) }) {
			continue
		}
		file, err := os.OpenFile(filepath.Join(folder, address.String()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return netip.Addr{}, err
		}
		_, err = file.WriteString(owner)
		return address, errors.Join(err, file.Close())
	}
	return netip.Addr{}, fmt.Errorf("subnet %s is full", subnet)
}

// release gives the addresses of an attachment back.
func (p *plugin) release(args *skel.CmdArgs, network string) error {
	folder := filepath.Join(p.state, network)
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		owner, readErr := os.ReadFile(path)
		err = errors.Join(err, readErr)
		if string(owner) == args.ContainerID+"-"+args.IfName {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}
