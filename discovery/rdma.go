package discovery

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vishvananda/netlink"
)

// RDMADevice is an RDMA device as listed through netlink.
type RDMADevice struct {
	// Index is the number that the kernel assigned to the device, starting at 0. It does not change when the device is
	// renamed.
	Index int    `json:"index"`
	Name  string `json:"name"`
	// LinkLayer is RDMAEthernet, RDMAInfiniBand, or empty if the kernel does not report it.
	LinkLayer string `json:"linkLayer,omitempty"`
}

// rdmaReading is a single scan of the RDMA devices in a network namespace.
type rdmaReading struct {
	*sysfs
	source    Hardware
	functions map[PCIAddress]Device
	uplinks   map[PCIAddress]int
	// linkLayers maps the names of the listed devices to their link layers.
	linkLayers map[string]string
	// ports maps their names to the facts about their first ports.
	ports map[string]RDMAPort
	// ofVFs contains the names of the devices that belong to virtual functions.
	ofVFs map[string]bool
	// byLink maps the index of each link to the names of the devices that have a port on the link.
	byLink map[int][]string
}

// addRDMA adds information about RDMA devices to functions and links. Sysfs lists the RDMA devices of each PCI
// function. Netlink lists the links behind the ports of any RDMA device; this is needed because RDMA devices on bonds,
// subfunctions and virtual links have no PCI function. addRDMA fails with errChanged or netlink.ErrDumpInterrupted if
// the devices change in the meantime.
func (s *sysfs) addRDMA(source Hardware, functions map[PCIAddress]Device, uplinks map[PCIAddress]int,
	links []link) error {
	present, _ := place{s, "class", ""}.list(rdmaDirectory)
	capable := len(present) > 0
	for _, f := range functions {
		capable = capable || f.RDMA
	}
	if source == nil || !capable { // if there are no RDMA devices, a query would load kernel modules unnecessarily
		return nil
	}
	r := &rdmaReading{sysfs: s, source: source, functions: functions, uplinks: uplinks,
		linkLayers: map[string]string{}, ports: map[string]RDMAPort{}, ofVFs: map[string]bool{},
		byLink: map[int][]string{}}
	if len(present) > 0 {
		if err := r.list(); err != nil {
			return err
		}
	}
	r.addPorts(links)
	r.addMembers(links)
	r.describe(source.RDMANetns(), links)
	return nil
}

// list queries all devices and the links behind their ports.
func (r *rdmaReading) list() error {
	devices, err := r.source.RDMADevices()
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("cannot list RDMA devices: %w", err)
	}
	if err != nil {
		place{r.sysfs, "", ""}.problem("cannot list RDMA devices; using only the RDMA devices of PCI functions: %v", err)
		return nil
	}
	for _, f := range r.functions {
		for _, name := range f.RDMADevices {
			r.ofVFs[name] = r.ofVFs[name] || f.PFAddress != ""
		}
	}
	for _, d := range devices {
		if !isWord(d.Name) || d.Name == "" {
			place{r.sysfs, "", ""}.problem("ignoring RDMA device %d: %s is not a valid name", d.Index, excerpt(d.Name))
			continue
		}
		r.linkLayers[d.Name] = d.LinkLayer
		if r.ofVFs[d.Name] { // its link is the function's link, and drivers would query the firmware for each port
			continue
		}
		if err := r.addLinks(d); err != nil {
			return err
		}
	}
	return r.readPorts(slices.Sorted(maps.Keys(r.linkLayers)))
}

// readPorts reads the first ports of the named devices.
func (r *rdmaReading) readPorts(names []string) error {
	read := make([]RDMAPort, len(names))
	err := r.each(len(names), func(worker *sysfs, i int) error {
		read[i], _ = worker.rdmaPort(names[i], 1, r.ofVFs[names[i]])
		return nil
	})
	for i, name := range names {
		r.ports[name] = read[i]
	}
	return err
}

// addLinks reads the links behind a device's ports.
func (r *rdmaReading) addLinks(d RDMADevice) error {
	links, err := r.source.RDMALinks(d.Index)
	for _, index := range links {
		r.byLink[index] = append(r.byLink[index], d.Name)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("cannot read the ports of RDMA device %s: %w", excerpt(d.Name), err)
	}
	// The kernel does not return a specific error if the device has disappeared since it was listed.
	if now, listErr := r.source.RDMADevices(); listErr == nil && !slices.Contains(now, d) {
		return fmt.Errorf("%w: RDMA device %s no longer exists", errChanged, excerpt(d.Name))
	}
	place{r.sysfs, "", d.Name}.problem("cannot read the links below the ports of the RDMA device: %v", err)
	return nil
}

// addPorts adds to each link the devices that have a port on it. A representor does not get one: the RDMA device
// belongs to the function that it represents.
func (r *rdmaReading) addPorts(links []link) {
	for i := range links {
		l := &links[i]
		if names := r.byLink[l.index]; len(names) > 0 && !l.Representor {
			r.add(l, names)
		}
	}
}

// addMembers adds the devices of members to their bonds and teams: the RDMA device of a hardware bond (mlx5_bond_0)
// reports one of the members as its port's link, and the kernel assigns the RoCE addresses (GIDs) for a bond's IP
// addresses to the members' devices (drivers/infiniband/core/roce_gid_mgmt.c).
//
// It must run after addPorts, so that bonds also get the devices that netlink reported for their members.
func (r *rdmaReading) addMembers(links []link) {
	members := map[IfName][]string{}
	for i := range links {
		if master := links[i].Master; master != "" {
			members[master] = append(members[master], r.names(&links[i])...)
		}
	}
	for i := range links {
		if kind := links[i].Kind; kind == "bond" || kind == "team" {
			listed := slices.DeleteFunc(members[links[i].Name], func(name string) bool {
				_, listed := r.linkLayers[name]
				return !listed
			})
			r.add(&links[i], listed)
		}
	}
}

// function returns the PCI function whose facts are copied to the link's device.
func (r *rdmaReading) function(l *link) (Device, bool) {
	f, ok := r.functions[l.function]
	return f, ok && r.uplinks[l.function] == l.index
}

// names returns the names of a link's RDMA devices.
func (r *rdmaReading) names(l *link) []string {
	if f, ok := r.function(l); ok {
		return f.RDMADevices
	}
	return l.RDMADevices
}

// add adds the names of RDMA devices to a link.
func (r *rdmaReading) add(l *link, names []string) {
	if f, ok := r.function(l); ok {
		f.RDMADevices = slices.Concat(f.RDMADevices, names)
		r.functions[l.function] = f
		return
	}
	l.RDMADevices = slices.Concat(l.RDMADevices, names)
}

// describe sets the properties that are derived from the RDMA device names.
func (r *rdmaReading) describe(netns string, links []link) {
	describe := func(d *Device) {
		slices.Sort(d.RDMADevices)
		d.RDMADevices = slices.Compact(d.RDMADevices)
		if len(d.RDMADevices) > 0 {
			d.RDMA, d.RDMALinkLayer = true, r.linkLayers[d.RDMADevices[0]]
			d.RDMAPort = r.ports[d.RDMADevices[0]]
		}
		if d.RDMA {
			d.RDMANetns = netns
		}
	}
	for address, f := range r.functions {
		describe(&f)
		r.functions[address] = f
	}
	for i := range links {
		l := &links[i]
		describe(&l.Device)
		names := l.RDMADevices
		if len(names) == 0 {
			names = r.functions[l.function].RDMADevices
		}
		if l.port.number == 0 || len(names) == 0 {
			continue
		}
		// An RDMA device with several ports, as on ConnectX-3, has a link for each port. dev_port starts at 0.
		if port, exists := r.rdmaPort(names[0], l.port.number+1, r.ofVFs[names[0]]); exists {
			l.rdmaPort = &port
		}
	}
}
