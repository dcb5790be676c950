package ovnkube

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"k8s.io/klog/v2"
)

// vswitch implements br-int and, using files, the Interface table. It does not need a lock: concurrent requests are for
// different pods, and each port is a separate file. The methods run in the node's namespace and enter the pod's
// namespace on a separate thread (ns.Do).
type vswitch struct {
	state string // directory with one file per port
	pci   string // PCI devices in sysfs
}

// port is a row in the Interface table, with the values that the real server writes to external_ids.
type port struct {
	IfaceID string `json:"iface-id"`
	UID     string `json:"iface-id-ver"`
	Sandbox string `json:"sandbox"`
	IfName  string `json:"pod-if-name"`
	Network string `json:"k8s.ovn.org/network"`
	NADKey  string `json:"k8s.ovn.org/nad"`
	// Netdev is a virtual function's previous name on the host.
	Netdev string `json:"vf-netdev-name,omitempty"`
}

func (v *vswitch) portPath(name string) string { return filepath.Join(v.state, "ports", name) }

// checkMapping returns an error if a localnet has no bridge mapping.
func (v *vswitch) checkMapping(conf *netConf) error {
	if conf.Topology != localnet {
		return nil
	}
	list, err := mappings()
	if err != nil {
		return fmt.Errorf("failed getting openvswitch: %w", err)
	}
	if !isMapped(list, conf.physicalNetwork()) {
		return fmt.Errorf("failed to find OVN bridge-mapping for network: %q", conf.physicalNetwork())
	}
	return nil
}

// plug creates the pod's interface, which is one end of a veth pair or the link of a virtual function (netdev). If it
// fails halfway, it does not clean up: the kubelet recreates the pod's sandbox, and the DEL for the old sandbox removes
// its port.
func (v *vswitch) plug(r *podRequest, addresses podNetwork, netdev string) (*types100.Result, error) {
	pod, err := ns.GetNS(r.netns)
	if err != nil {
		return nil, fmt.Errorf("failed to open netns %q: %w", r.netns, err)
	}
	defer func() { _ = pod.Close() }() // used only for reading
	host := &types100.Interface{}
	if netdev == "" {
		host, err = makeVeth(r, pod)
	} else {
		host.Name, err = Representor(r.conf.DeviceID), moveToPod(netdev, r.ifName, pod)
	}
	if err != nil {
		return nil, err
	}
	inPod := &types100.Interface{Name: r.ifName, Mac: addresses.MAC, Sandbox: r.netns}
	result := &types100.Result{Interfaces: []*types100.Interface{host, inPod}}
	for _, text := range addresses.IPs {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("failed to parse pod IP %q: %w", text, err)
		}
		result.IPs = append(result.IPs, &types100.IPConfig{Interface: types100.Int(1), Address: net.IPNet{
			IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}})
	}
	if err := pod.Do(func(ns.NetNS) error { return configure(inPod, r.conf.MTU, result.IPs) }); err != nil {
		return nil, err
	}
	return result, v.addPort(host.Name, port{IfaceID: r.namespace + "_" + r.pod + "_" + r.key, UID: r.uid,
		Sandbox: r.sandbox, IfName: r.ifName, Network: r.conf.Name, NADKey: r.key, Netdev: netdev})
}

// makeVeth creates the veth pair. The name of the host end is composed of the sandbox ID and the index of the other
// end. The index is known only after creation; until then, the name is derived from the sandbox ID alone.
func makeVeth(r *podRequest, pod ns.NetNS) (*types100.Interface, error) {
	host, err := ns.GetCurrentNS()
	if err != nil {
		return nil, err
	}
	defer func() { _ = host.Close() }() // used only for reading
	made := &types100.Interface{}
	err = pod.Do(func(ns.NetNS) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = r.ifName, r.conf.MTU
		between := "v" + r.sandbox[:min(len(r.sandbox), 13)]
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: between, PeerNamespace: netlink.NsFd(int(host.Fd()))}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("failed to make veth pair %s: %w", r.ifName, err)
		}
		inPod, err := netlink.LinkByName(r.ifName)
		if err != nil {
			return err
		}
		made.Name = hostName(r.sandbox, inPod.Attrs().Index)
		return host.Do(func(ns.NetNS) error {
			link, err := netlink.LinkByName(between)
			if err != nil {
				return err
			}
			made.Mac = link.Attrs().HardwareAddr.String()
			return errors.Join(netlink.LinkSetName(link, made.Name), netlink.LinkSetUp(link), connect(made.Name))
		})
	})
	return made, err
}

// hostName returns the name for the host end of a pod's veth pair. IFNAMSIZ limits the name to 15 characters.
func hostName(sandbox string, index int) string {
	suffix := "_" + strconv.Itoa(index)
	return sandbox[:15-len(suffix)] + suffix
}

// addPort adds a port. If an older sandbox has a port for the same pod and network, addPort removes the old port, since
// a sandbox may have terminated without a DEL.
func (v *vswitch) addPort(name string, p port) error {
	ports, err := v.ports()
	if err != nil {
		return err
	}
	for stale, other := range ports {
		if other.IfaceID == p.IfaceID && stale != name {
			err = errors.Join(err, v.deletePort(stale))
		}
	}
	data, marshalErr := json.Marshal(p)
	return errors.Join(err, marshalErr, os.MkdirAll(filepath.Dir(v.portPath(name)), 0o700),
		os.WriteFile(v.portPath(name), data, 0o600))
}

func (v *vswitch) ports() (map[string]port, error) {
	entries, err := os.ReadDir(filepath.Dir(v.portPath("any")))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	ports := map[string]port{}
	for _, entry := range entries {
		var p port
		data, readErr := os.ReadFile(v.portPath(entry.Name()))
		err = errors.Join(err, readErr)
		if readErr == nil {
			err = errors.Join(err, json.Unmarshal(data, &p))
		}
		ports[entry.Name()] = p
	}
	return ports, err
}

// deletePort removes a port, and the veth pair whose host end has the same name. It is not an error if either no longer
// exists.
func (v *vswitch) deletePort(name string) error {
	err := disconnect(name)
	if err != nil {
		return err
	}
	err = os.Remove(v.portPath(name))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	link, linkErr := netlink.LinkByName(name)
	if linkErr == nil && link.Type() == "veth" {
		linkErr = netlink.LinkDel(link)
	}
	return errors.Join(err, unlessGone(linkErr))
}

// sweep removes ports whose interface no longer exists. The real node removes the rows in the Interface table that have
// no Open vSwitch port number (ofport=-1) because the pod terminated while the server was down. A function's
// representor is kept.
func (v *vswitch) sweep() error {
	ports, err := v.ports()
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		if ports[name].Netdev != "" {
			continue
		}
		_, linkErr := netlink.LinkByName(name)
		var gone netlink.LinkNotFoundError
		if errors.As(linkErr, &gone) {
			klog.InfoS("Removing a port without an interface", "port", name)
			linkErr = v.deletePort(name)
		}
		err = errors.Join(err, linkErr)
	}
	return err
}

// unplug removes the pod's port and returns a virtual function to the host. It needs the pod's namespace. If the
// interface no longer exists there, unplug cannot determine which port belongs to a veth, but still succeeds, like the
// real server.
func (v *vswitch) unplug(r *podRequest) error {
	pod, err := ns.GetNS(r.netns)
	if err != nil {
		return fmt.Errorf("failed to get container namespace for pod %s/%s NAD %s: %w", r.namespace, r.pod,
			r.conf.NADName, err)
	}
	defer func() { _ = pod.Close() }() // used only for reading
	name := r.sandbox[:15]
	err = pod.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByName(r.ifName)
		if err == nil {
			name = hostName(r.sandbox, link.Attrs().Index)
		}
		return err
	})
	if err == nil && r.conf.DeviceID != "" {
		err = v.returnFunction(r, pod)
	}
	if err != nil {
		klog.ErrorS(err, "Cannot remove the container interface", "request", r.String(), "interface", r.ifName)
	}
	if r.conf.DeviceID != "" {
		name = Representor(r.conf.DeviceID)
	}
	return v.deletePort(name)
}

// Representor returns the port name for a virtual function.
func Representor(address string) string {
	return "r" + strings.NewReplacer(":", "_", ".", "_").Replace(address)
}

// configure sets the MTU, MAC address and IP addresses of the pod's interface, and sets it up.
func configure(inPod *types100.Interface, mtu int, addresses []*types100.IPConfig) error {
	link, err := netlink.LinkByName(inPod.Name)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(inPod.Mac)
	if err != nil {
		return fmt.Errorf("failed to parse pod MAC %q: %w", inPod.Mac, err)
	}
	if err := errors.Join(netlink.LinkSetHardwareAddr(link, mac), netlink.LinkSetMTU(link, mtu),
		netlink.LinkSetUp(link)); err != nil {
		return err
	}
	for _, address := range addresses {
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &address.Address}); err != nil {
			return fmt.Errorf("failed to add IP addr %s to %s: %w", address.Address.String(), inPod.Name, err)
		}
	}
	return nil
}

// unlessGone returns err unless it means that a link does not exist; in that case, it returns nil.
func unlessGone(err error) error {
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) {
		return nil
	}
	return err
}
