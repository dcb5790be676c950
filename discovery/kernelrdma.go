package discovery

import (
	"runtime"

	"github.com/vishvananda/netns"

	"github.com/dra-networking/dra-network-driver/discovery/rdmalink"
)

// RDMANetns implements Hardware. The mode applies to the whole machine, so it can be queried from any namespace.
func (k *kernel) RDMANetns() (mode string) {
	err := k.askRDMA(func(handle *rdmalink.Handle) (err error) {
		mode, err = handle.Mode()
		return err
	})
	if err != nil || mode != RDMAShared && mode != RDMAExclusive {
		return ""
	}
	return mode
}

// RDMADevices implements Hardware.
func (k *kernel) RDMADevices() (devices []RDMADevice, err error) {
	err = k.askRDMA(func(handle *rdmalink.Handle) error {
		found, err := handle.List()
		for _, device := range found {
			devices = append(devices, RDMADevice{
				Index: int(device.Index), Name: device.Name, LinkLayer: rdmaLinkLayer(device.Protocol),
			})
		}
		return err
	})
	return devices, err
}

// RDMALinks implements Hardware.
func (k *kernel) RDMALinks(device int) (links []int, err error) {
	err = k.askRDMA(func(handle *rdmalink.Handle) (err error) {
		links, err = handle.Links(uint32(device))
		return err
	})
	return links, err
}

// askRDMA runs a query in the same network namespace as the other sockets of k. Entering the namespace requires
// privileges unless the thread is already in it. The handle is closed after the query, because the kernel's RDMA
// modules cannot be unloaded while it is open.
func (k *kernel) askRDMA(query func(*rdmalink.Handle) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	current, err := netns.Get()
	if err != nil {
		return err
	}
	defer func() { _ = current.Close() }() // nothing was written
	target := netns.None()
	if !current.Equal(k.netns) {
		target = k.netns
	}
	handle, err := rdmalink.OpenAt(target)
	if err != nil {
		return err
	}
	defer handle.Close()
	return query(handle)
}

// rdmaLinkLayer returns the link layer for a protocol, with the names used by fill_dev_info in the kernel's nldev.c.
func rdmaLinkLayer(protocol string) string {
	switch protocol {
	case "ib", "opa":
		return RDMAInfiniBand
	case "roce", "iw", "usnic":
		return RDMAEthernet
	}
	return ""
}
