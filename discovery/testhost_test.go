package discovery_test

import (
	"fmt"
	"io/fs"
	"net"
	"path"
	"strings"
	"testing/fstest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/discovery"
)

// host is a machine under test: a sysfs tree and what netlink says.
type host struct {
	sys       fstest.MapFS
	links     []netlink.Link
	routes    []netlink.Route
	addresses []netlink.Addr
	// interrupted is how many dumps of links are interrupted before one is complete.
	interrupted int
}

func newHost() *host {
	return &host{sys: fstest.MapFS{}}
}

func (h *host) sources() discovery.Sources {
	return discovery.Sources{Sys: h.sys, Links: h}
}

// quickSources are the same on a file system that finds everything at once, for machines with many functions.
func (h *host) quickSources() discovery.Sources {
	tree := discovery.Tree{Links: map[string]string{}, Files: map[string]string{}}
	for name, file := range h.sys {
		switch file.Mode.Type() {
		case fs.ModeSymlink:
			tree.Links[name] = string(file.Data)
		case fs.ModeDir:
			tree.Dirs = append(tree.Dirs, name)
		default:
			tree.Files[name] = string(file.Data)
		}
	}
	return discovery.Sources{Sys: tree.FS(), Links: h}
}

func (h *host) LinkList() ([]netlink.Link, error) {
	if h.interrupted > 0 {
		h.interrupted--
		return h.links[:1], netlink.ErrDumpInterrupted
	}
	return h.links, nil
}

func (h *host) RouteList(_ netlink.Link, family int) ([]netlink.Route, error) {
	var routes []netlink.Route
	for _, r := range h.routes {
		if r.Family == family {
			routes = append(routes, r)
		}
	}
	return routes, nil
}

func (h *host) AddrList(netlink.Link, int) ([]netlink.Addr, error) { return h.addresses, nil }

// defaultRoute adds an IPv4 default route over the link with the index.
func (h *host) defaultRoute(index int) {
	_, all, _ := net.ParseCIDR("0.0.0.0/0")
	h.routes = append(h.routes, netlink.Route{Family: unix.AF_INET, LinkIndex: index, Dst: all, Type: unix.RTN_UNICAST})
}

// attrs are link attributes with index and name.
func attrs(index int, name string) netlink.LinkAttrs {
	return netlink.LinkAttrs{Index: index, Name: name, MTU: 1500, NetNsID: -1, OperState: netlink.OperUp,
		Flags: net.FlagUp, RawFlags: unix.IFF_UP | unix.IFF_LOWER_UP, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, byte(index)}}
}

// virtual adds a link without hardware.
func (h *host) virtual(l netlink.Link) {
	h.links = append(h.links, l)
	h.link("class/net/"+l.Attrs().Name, "devices/virtual/net/"+l.Attrs().Name)
}

// nic adds a link on a PCI function.
func (h *host) nic(index int, name, function string) {
	h.links = append(h.links, &netlink.Device{LinkAttrs: attrs(index, name)})
	dir := h.real(function)
	h.link("class/net/"+name, dir+"/net/"+name)
	h.link(dir+"/net/"+name+"/device", dir)
	h.files(dir+"/net/"+name, "speed=100000")
}

// function adds a PCI network function; files are name=content.
func (h *host) function(address string, files ...string) {
	h.functionAt("devices/pci0000:00/0000:00:01.0", address, files...)
}

// functionAt adds a PCI network function below a bridge.
func (h *host) functionAt(bridge, address string, files ...string) {
	dir := bridge + "/" + address
	h.link("bus/pci/devices/"+address, dir)
	h.files(dir, "class=0x020000", "vendor=0x15b3", "device=0x101d", "numa_node=0")
	h.files(dir, files...)
	h.link(dir+"/driver", "bus/pci/drivers/mlx5_core")
	h.files("bus/pci/drivers/mlx5_core", "bind=")
}

// sriov makes functions the virtual functions of pf.
func (h *host) sriov(pf string, vfs ...string) {
	h.files(h.real(pf), "sriov_totalvfs=8", fmt.Sprintf("sriov_numvfs=%d", len(vfs)))
	for i, vf := range vfs {
		h.functionAt(path.Dir(h.real(pf)), vf, "device=0x101e", "numa_node="+string(h.sys[h.real(pf)+"/numa_node"].Data))
		h.link(h.real(vf)+"/physfn", h.real(pf))
		h.link(fmt.Sprintf("%s/virtfn%d", h.real(pf), i), h.real(vf))
	}
}

// nicOn adds a link on a device that is no PCI function.
func (h *host) nicOn(index int, name, device, driver string) {
	h.links = append(h.links, &netlink.Device{LinkAttrs: attrs(index, name)})
	h.link("class/net/"+name, device+"/net/"+name)
	h.link(device+"/net/"+name+"/device", device)
	h.link(device+"/driver", driver)
}

// real is the directory of a PCI function.
func (h *host) real(function string) string {
	name := "bus/pci/devices/" + function
	return path.Join(path.Dir(name), string(h.sys[name].Data))
}

// files adds files below dir.
func (h *host) files(dir string, files ...string) {
	for _, f := range files {
		name, content, _ := strings.Cut(f, "=")
		h.sys[path.Join(dir, name)] = &fstest.MapFile{Data: []byte(content + "\n"), Mode: 0o444}
	}
}

// link adds a relative symbolic link, as the kernel makes them.
func (h *host) link(name, target string) {
	up := strings.Repeat("../", strings.Count(name, "/"))
	h.sys[name] = &fstest.MapFile{Data: []byte(up + target), Mode: fs.ModeSymlink | 0o777}
}

// sriovHost is a machine with a physical function with two virtual functions, the second of them without an interface,
// and a bridge.
func sriovHost() *host {
	h := newHost()
	h.virtual(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1, Name: "lo", Flags: net.FlagLoopback}})
	h.function("0000:03:00.0")
	h.sriov("0000:03:00.0", "0000:03:00.2", "0000:03:00.3")
	h.nic(2, "enp3s0f0", "0000:03:00.0")
	h.nic(3, "eth7", "0000:03:00.2")
	filtering := true
	bridge := attrs(4, "br-data")
	bridge.MTU = 9000
	h.virtual(&netlink.Bridge{LinkAttrs: bridge, VlanFiltering: &filtering})
	return h
}
