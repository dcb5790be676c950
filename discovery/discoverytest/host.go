package discoverytest

import (
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// Host is a machine for a test. It consists of a recording and methods that add hardware and links to it. Tests can
// make other changes to the recording directly.
type Host struct {
	discovery.Recording
}

// NewHost returns a machine without network devices.
func NewHost() *Host {
	return &Host{discovery.Recording{Sys: discovery.Tree{
		Links: map[string]string{}, Files: map[string]string{}, Errors: map[string]string{}}}}
}

// Sources returns sources with which discovery.Read reads the machine's current state.
func (h *Host) Sources() discovery.Sources {
	sources, err := h.Recording.Sources()
	if err != nil {
		panic(fmt.Sprintf("discoverytest: the test made an impossible machine: %v", err))
	}
	return sources
}

// Function adds a PCI network function on NUMA node 0, below the machine's first PCI bridge. Files have the form
// name=content.
func (h *Host) Function(address string, files ...string) {
	h.FunctionBelow("devices/pci0000:00/0000:00:01.0", address, files...)
}

// FunctionBelow adds a PCI network function below a bridge's directory.
func (h *Host) FunctionBelow(bridge, address string, files ...string) {
	dir := bridge + "/" + address
	h.Symlink("bus/pci/devices/"+address, dir)
	h.WriteFiles(dir, "class=0x020000", "vendor=0x15b3", "device=0x101d", "numa_node=0")
	h.WriteFiles(dir, files...)
	h.Symlink(dir+"/driver", "bus/pci/drivers/mlx5_core")
}

// VirtualFunctions adds virtual functions at the given addresses to the PCI function pf, and sets the number of virtual
// functions that pf supports to at least 8.
func (h *Host) VirtualFunctions(pf string, addresses ...string) {
	dir := h.Dir(pf)
	h.WriteFiles(dir, fmt.Sprintf("sriov_totalvfs=%d", max(8, len(addresses))),
		fmt.Sprintf("sriov_numvfs=%d", len(addresses)))
	for i, address := range addresses {
		h.FunctionBelow(path.Dir(dir), address, "device=0x101e", "numa_node="+h.Sys.Files[dir+"/numa_node"])
		h.Symlink(h.Dir(address)+"/physfn", dir)
		h.Symlink(fmt.Sprintf("%s/virtfn%d", dir, i), h.Dir(address))
	}
}

// RDMA adds an RDMA device to a PCI function and associates the device's port with the function's current links. The
// device is also reported through netlink, like any device in the network namespace.
func (h *Host) RDMA(function, name string) {
	dir := h.Dir(function)
	h.Sys.Dirs = append(h.Sys.Dirs, dir+"/infiniband", dir+"/infiniband/"+name)
	var links []string
	for _, l := range h.Netlink.Links {
		if path.Dir(h.follow("class/net/"+l.Name)) == dir+"/net" {
			links = append(links, l.Name)
		}
	}
	h.RDMAOn(name, links...)
}

// RDMAOn adds an RDMA device that has no PCI function and whose ports are on the given links, such as an rxe device.
func (h *Host) RDMAOn(name string, links ...string) {
	h.Sys.Dirs = append(h.Sys.Dirs, "class/infiniband", "class/infiniband/"+name)
	device := discovery.RecordedRDMADevice{RDMADevice: discovery.RDMADevice{
		Name: name, LinkLayer: discovery.RDMAEthernet}}
	for _, known := range h.Netlink.RDMADevices {
		device.Index = max(device.Index, known.Index+1)
	}
	for _, link := range links {
		device.Links = append(device.Links, h.Link(link).Index)
	}
	slices.Sort(device.Links)
	h.Netlink.RDMADevices = append(h.Netlink.RDMADevices, device)
}

// RDMAPort adds the first port of a function's RDMA device, with files in the form name=content.
func (h *Host) RDMAPort(function, name string, files ...string) {
	dir := h.Dir(function) + "/infiniband/" + name
	h.Sys.Dirs = slices.DeleteFunc(h.Sys.Dirs, func(d string) bool { return d == "class/infiniband/"+name })
	h.Symlink("class/infiniband/"+name, dir)
	h.WriteFiles(dir+"/ports/1", files...)
}

// NIC adds a 100 Gbit/s link to a PCI function.
func (h *Host) NIC(name, function string) {
	h.add(discovery.RecordedLink{Name: name, Kind: "device"}, h.Dir(function)+"/net/"+name)
	h.Symlink(h.Dir(function)+"/net/"+name+"/device", h.Dir(function))
	h.Speed(name, 100000)
}

// NICOn adds a link on a device that is not a PCI function, such as a USB device. driver is a directory in sysfs.
func (h *Host) NICOn(name, device, driver string) {
	h.add(discovery.RecordedLink{Name: name, Kind: "device"}, device+"/net/"+name)
	h.Symlink(device+"/net/"+name+"/device", device)
	h.Symlink(device+"/driver", driver)
}

// Virtual adds a link without hardware. Unset fields get the same defaults as for other links.
func (h *Host) Virtual(l discovery.RecordedLink) {
	h.add(l, "devices/virtual/net/"+l.Name)
}

// add adds a link. Unless the link specifies an index and an address, it gets the next index and an address of its own.
func (h *Host) add(l discovery.RecordedLink, dir string) {
	if l.Index == 0 {
		l.Index = len(h.Netlink.Links) + 2 // the loopback link has index 1
	}
	if l.MTU == 0 {
		l.MTU = 1500
	}
	if l.MAC == "" {
		l.MAC = net.HardwareAddr{2, 0, 0, 0, byte(l.Index >> 8), byte(l.Index)}.String()
	}
	if l.OperState == "" {
		l.OperState, l.AdminUp, l.Carrier = "up", true, true
	}
	h.Netlink.Links = append(h.Netlink.Links, l)
	h.Symlink("class/net/"+l.Name, dir)
}

// Link returns a pointer to the named link, so that tests can modify it. The pointer becomes invalid when another link
// is added.
func (h *Host) Link(name string) *discovery.RecordedLink {
	i := slices.IndexFunc(h.Netlink.Links, func(l discovery.RecordedLink) bool { return l.Name == name })
	if i < 0 {
		panic("discoverytest: the machine has no link " + name)
	}
	return &h.Netlink.Links[i]
}

// Remove removes a link from the host's network namespace, as if the link had been moved into a pod.
func (h *Host) Remove(name string) {
	index := h.Link(name).Index
	for i := range h.Netlink.RDMADevices {
		d := &h.Netlink.RDMADevices[i]
		d.Links = slices.DeleteFunc(d.Links, func(link int) bool { return link == index })
	}
	h.Netlink.Links = slices.DeleteFunc(h.Netlink.Links, func(l discovery.RecordedLink) bool { return l.Name == name })
	delete(h.Sys.Links, "class/net/"+name)
}

// Enslave makes a link a port of another link.
func (h *Host) Enslave(name, master string) {
	h.Link(name).Master = h.Link(master).Index
}

// DefaultRoute adds a default route through a link.
func (h *Host) DefaultRoute(name string) {
	h.Netlink.DefaultRoutes = append(h.Netlink.DefaultRoutes, h.Link(name).Index)
}

// Speed sets the speed of a link in Mbit/s.
func (h *Host) Speed(name string, mbits int) {
	h.WriteFiles(h.follow("class/net/"+name), fmt.Sprintf("speed=%d", mbits))
}

// Dir returns a PCI function's directory in sysfs.
func (h *Host) Dir(function string) string {
	return h.follow("bus/pci/devices/" + function)
}

func (h *Host) follow(link string) string {
	target, ok := h.Sys.Links[link]
	if !ok {
		panic("discoverytest: the machine has no " + link)
	}
	return path.Join(path.Dir(link), target)
}

// WriteFiles writes files, given as name=content, to a sysfs directory.
func (h *Host) WriteFiles(dir string, files ...string) {
	for _, f := range files {
		name, content, _ := strings.Cut(f, "=")
		h.Sys.Files[dir+"/"+name] = content
	}
}

// Symlink adds a relative symbolic link to sysfs, like those created by the kernel.
func (h *Host) Symlink(name, target string) {
	h.Sys.Links[name] = strings.Repeat("../", strings.Count(name, "/")) + target
}
