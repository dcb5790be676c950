package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/discovery/linkkind"
)

// Recording contains everything that Read reads on a machine, so that the same facts can be read on another machine or
// in a test. It contains no serial numbers, IP addresses or routes; it only records which links carry the node's
// addresses and default routes.
type Recording struct {
	// Sys contains the part of sysfs that was read.
	Sys Tree
	// Netlink is the data from netlink.
	Netlink RecordedNetlink
}

// RecordedNetlink is the part of a network namespace's netlink state that Read needs.
type RecordedNetlink struct {
	// Links contains all links except the loopback, sorted by index.
	Links []RecordedLink `json:"links"`
	// DefaultRoutes contains the sorted indexes of the links used by default routes in the main table.
	DefaultRoutes []int `json:"defaultRoutes,omitempty"`
	// NodeAddresses contains the sorted indexes of the links that have an address listed in the Node object.
	NodeAddresses []int `json:"nodeAddresses,omitempty"`
	// EswitchModes contains the switch modes of the physical functions that have an embedded switch.
	EswitchModes map[PCIAddress]string `json:"eswitchModes,omitempty"`
	// RDMANetns has the same meaning as Device.RDMANetns.
	RDMANetns string `json:"rdmaNetns,omitempty"`
	// RDMADevices is sorted by index. RDMAError is the reason why the devices could not be listed.
	RDMADevices []RecordedRDMADevice `json:"rdmaDevices,omitempty"`
	RDMAError   string               `json:"rdmaError,omitempty"`
}

// RecordedRDMADevice is an RDMA device in RecordedNetlink.
type RecordedRDMADevice struct {
	RDMADevice
	// Links contains the sorted indexes of the links behind the device's ports. It is empty if they were not read, as
	// for virtual functions. Error is the reason why they could not be read.
	Links []int  `json:"links,omitempty"`
	Error string `json:"error,omitempty"`
}

// RecordedLink is a link in RecordedNetlink. The fields correspond to those in netlink; see Device for the fields that
// both types have in common.
type RecordedLink struct {
	Index    int      `json:"index"`
	Name     string   `json:"name"`
	AltNames []string `json:"altNames,omitempty"`
	Kind     string   `json:"kind"`
	MAC      string   `json:"mac,omitempty"`
	MTU      int      `json:"mtu"`
	// LinkType is the hardware type, such as infiniband, or empty for Ethernet.
	LinkType string `json:"linkType,omitempty"`
	// Immovable is nil if the kernel does not report whether the link can be moved.
	Immovable *bool  `json:"immovable,omitempty"`
	OperState string `json:"operState"`
	AdminUp   bool   `json:"adminUp,omitempty"`
	Carrier   bool   `json:"carrier,omitempty"`
	// Master and Parent are the indexes of links in the same namespace, or 0.
	Master        int  `json:"master,omitempty"`
	Parent        int  `json:"parent,omitempty"`
	VLANID        int  `json:"vlanID,omitempty"`
	VLANFiltering bool `json:"vlanFiltering,omitempty"`
	// VFs contains the settings of the link's virtual functions, ordered by index. VFsError is the reason why the
	// settings could not be read.
	VFs      []VFSettings `json:"vfs,omitempty"`
	VFsError string       `json:"vfsError,omitempty"`

	// permanentMAC is the hardware's own address. It must be replaced in names, since interfaces may be named after it.
	permanentMAC string
}

// Record reads the node's network devices in the same way as Read and returns a recording of the data that it read.
func Record(ctx context.Context, source Sources) (Recording, error) {
	return attempt(ctx, func() (Recording, error) { return recordOnce(source) })
}

func recordOnce(source Sources) (Recording, error) {
	dump := &dumps{LinkLister: source.Links}
	sys := newRecorder(source.Sys)
	hardware := &recordedHardware{source: source.Hardware, vfs: map[int][]VFSettings{}, vfErrors: map[int]string{},
		eswitchModes: map[PCIAddress]string{}, rdmaDevices: map[int]*RecordedRDMADevice{}}
	recorded := Sources{Sys: sys, Links: dump, NodeAddresses: source.NodeAddresses}
	if source.Hardware != nil {
		recorded.Hardware = hardware
	}
	if _, err := readOnce(recorded); err != nil {
		return Recording{}, err
	}
	routes, err := defaultRoutes(dump)
	if err != nil {
		return Recording{}, err
	}
	addresses, err := linksWith(dump, source.NodeAddresses)
	if err != nil {
		return Recording{}, err
	}
	recording := Recording{Sys: sys.pruned(), Netlink: RecordedNetlink{
		DefaultRoutes: sortedIndexes(routes), NodeAddresses: sortedIndexes(addresses),
		EswitchModes: hardware.eswitchModes, RDMANetns: hardware.rdmaNetns,
		RDMADevices: hardware.recordedRDMA(), RDMAError: hardware.rdmaError,
	}}
	for _, l := range dump.links {
		if l.Attrs().Flags&net.FlagLoopback == 0 {
			recorded := recordedLink(l)
			if immovable, known := hardware.Immovable(recorded.Index); known {
				recorded.Immovable = &immovable
			}
			recorded.VFs, recorded.VFsError = hardware.vfs[recorded.Index], hardware.vfErrors[recorded.Index]
			recording.Netlink.Links = append(recording.Netlink.Links, recorded)
		}
	}
	slices.SortFunc(recording.Netlink.Links, func(a, b RecordedLink) int { return a.Index - b.Index })
	return recording, nil
}

func sortedIndexes(indexes []int) []int {
	slices.Sort(indexes)
	return slices.Compact(indexes)
}

// dumps caches the netlink dumps from a scan, so that the facts and the recording are based on the same state.
type dumps struct {
	LinkLister
	links     []netlink.Link
	routes    map[int][]netlink.Route
	addresses []netlink.Addr
}

// LinkList implements LinkLister.
func (d *dumps) LinkList() (_ []netlink.Link, err error) {
	d.links, err = d.LinkLister.LinkList()
	return d.links, err
}

// RouteList implements LinkLister.
func (d *dumps) RouteList(_ netlink.Link, family int) ([]netlink.Route, error) {
	if known, ok := d.routes[family]; ok {
		return known, nil
	}
	routes, err := d.LinkLister.RouteList(nil, family)
	if err != nil {
		return nil, err
	}
	if d.routes == nil {
		d.routes = map[int][]netlink.Route{}
	}
	d.routes[family] = routes
	return routes, nil
}

// AddrList implements LinkLister.
func (d *dumps) AddrList(netlink.Link, int) (_ []netlink.Addr, err error) {
	if d.addresses == nil {
		d.addresses, err = d.LinkLister.AddrList(nil, unix.AF_UNSPEC)
	}
	return d.addresses, err
}

// recordedHardware wraps another Hardware and records its results.
type recordedHardware struct {
	source       Hardware
	vfs          map[int][]VFSettings
	vfErrors     map[int]string
	eswitchModes map[PCIAddress]string
	rdmaNetns    string
	rdmaDevices  map[int]*RecordedRDMADevice
	rdmaError    string
}

// VFs implements Hardware.
func (r *recordedHardware) VFs(link int) ([]VFSettings, error) {
	settings, err := r.source.VFs(link)
	switch {
	case err != nil:
		r.vfErrors[link] = err.Error()
	case len(settings) > 0:
		r.vfs[link] = settings
	}
	return settings, err
}

// Immovable implements Hardware.
func (r *recordedHardware) Immovable(link int) (immovable, known bool) {
	if r.source == nil {
		return false, false
	}
	return r.source.Immovable(link)
}

// EswitchMode implements Hardware.
func (r *recordedHardware) EswitchMode(function PCIAddress) string {
	mode := r.source.EswitchMode(function)
	if mode != "" {
		r.eswitchModes[function] = mode
	}
	return mode
}

// RDMANetns implements Hardware.
func (r *recordedHardware) RDMANetns() string {
	r.rdmaNetns = r.source.RDMANetns()
	return r.rdmaNetns
}

// RDMADevices implements Hardware.
func (r *recordedHardware) RDMADevices() ([]RDMADevice, error) {
	devices, err := r.source.RDMADevices()
	if err != nil && len(r.rdmaDevices) == 0 {
		r.rdmaError = err.Error()
	}
	for _, d := range devices {
		if r.rdmaDevices[d.Index] == nil { // otherwise, this list only serves to classify failures
			r.rdmaDevices[d.Index] = &RecordedRDMADevice{RDMADevice: d}
		}
	}
	return devices, err
}

// RDMALinks implements Hardware.
func (r *recordedHardware) RDMALinks(device int) ([]int, error) {
	links, err := r.source.RDMALinks(device)
	if d := r.rdmaDevices[device]; d != nil {
		d.Links = links
		if err != nil {
			d.Error = err.Error()
		}
	}
	return links, err
}

// recordedRDMA returns the RDMA devices, sorted by index.
func (r *recordedHardware) recordedRDMA() []RecordedRDMADevice {
	var devices []RecordedRDMADevice
	for _, index := range slices.Sorted(maps.Keys(r.rdmaDevices)) {
		devices = append(devices, *r.rdmaDevices[index])
	}
	return devices
}

func recordedLink(l netlink.Link) RecordedLink {
	attrs := l.Attrs()
	recorded := RecordedLink{
		Index: attrs.Index, Name: attrs.Name, AltNames: slices.Sorted(slices.Values(attrs.AltNames)), Kind: l.Type(),
		MAC: attrs.HardwareAddr.String(), MTU: attrs.MTU, LinkType: linkType(attrs), OperState: attrs.OperState.String(),
		AdminUp: attrs.Flags&net.FlagUp != 0, Carrier: attrs.RawFlags&unix.IFF_LOWER_UP != 0,
		Master: attrs.MasterIndex, Parent: linkkind.Lower(l), permanentMAC: attrs.PermHWAddr.String(),
	}
	switch l := l.(type) {
	case *netlink.Bridge:
		recorded.VLANFiltering = l.VlanFiltering != nil && *l.VlanFiltering
	case *netlink.Vlan:
		recorded.VLANID = l.VlanId
	}
	return recorded
}

// netlink converts the link to the netlink library's type.
func (r RecordedLink) netlink() (netlink.Link, error) {
	attrs := netlink.LinkAttrs{
		Index: r.Index, Name: r.Name, AltNames: r.AltNames, MTU: r.MTU, MasterIndex: r.Master, ParentIndex: r.Parent,
		EncapType: r.LinkType, NetNsID: -1,
	}
	if r.MAC != "" {
		var err error
		if attrs.HardwareAddr, err = hardwareAddress(r.MAC); err != nil {
			return nil, fmt.Errorf("link %d: mac: %w", r.Index, err)
		}
	}
	for attrs.OperState.String() != r.OperState {
		if attrs.OperState++; attrs.OperState > netlink.OperUp {
			return nil, fmt.Errorf("link %d: operState: unknown state %s", r.Index, excerpt(r.OperState))
		}
	}
	if r.AdminUp {
		attrs.Flags |= net.FlagUp
	}
	if r.Carrier {
		attrs.RawFlags |= unix.IFF_LOWER_UP
	}
	switch r.Kind {
	case "":
		return nil, fmt.Errorf("link %d: kind: is missing", r.Index)
	case "device":
		return &netlink.Device{LinkAttrs: attrs}, nil
	case "bridge":
		return &netlink.Bridge{LinkAttrs: attrs, VlanFiltering: &r.VLANFiltering}, nil
	case "vlan":
		return &netlink.Vlan{LinkAttrs: attrs, VlanId: r.VLANID}, nil
	}
	return &netlink.GenericLink{LinkAttrs: attrs, LinkType: r.Kind}, nil
}

// Sources returns sources that replay the recording.
func (r Recording) Sources() (Sources, error) {
	replay := &replayed{recorded: r.Netlink}
	for _, l := range r.Netlink.Links {
		link, err := l.netlink()
		if err != nil {
			return Sources{}, err
		}
		replay.links = append(replay.links, link)
	}
	sources := Sources{Sys: r.Sys.FS(), Links: replay, Hardware: replay}
	if len(r.Netlink.NodeAddresses) > 0 {
		sources.NodeAddresses = []netip.Addr{replayedAddress()}
	}
	return sources, nil
}

// replayedAddress is used instead of every address of the recorded node. RFC 5737 reserves it for documentation.
func replayedAddress() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, 1}) }

// replayed replays recorded netlink data.
type replayed struct {
	recorded RecordedNetlink
	links    []netlink.Link
}

// LinkList implements LinkLister.
func (r *replayed) LinkList() ([]netlink.Link, error) { return r.links, nil }

// RouteList implements LinkLister.
func (r *replayed) RouteList(_ netlink.Link, family int) ([]netlink.Route, error) {
	if family != unix.AF_INET {
		return nil, nil
	}
	var routes []netlink.Route
	for _, index := range r.recorded.DefaultRoutes {
		routes = append(routes, netlink.Route{Family: family, LinkIndex: index, Type: unix.RTN_UNICAST})
	}
	return routes, nil
}

// AddrList implements LinkLister.
func (r *replayed) AddrList(netlink.Link, int) ([]netlink.Addr, error) {
	var addresses []netlink.Addr
	for _, index := range r.recorded.NodeAddresses {
		ip := &net.IPNet{IP: replayedAddress().AsSlice(), Mask: net.CIDRMask(32, 32)}
		addresses = append(addresses, netlink.Addr{IPNet: ip, LinkIndex: index})
	}
	return addresses, nil
}

// VFs implements Hardware.
func (r *replayed) VFs(link int) ([]VFSettings, error) {
	for _, l := range r.recorded.Links {
		if l.Index == link && l.VFsError != "" {
			return nil, errors.New(l.VFsError)
		} else if l.Index == link {
			return l.VFs, nil
		}
	}
	return nil, nil
}

// Immovable implements Hardware.
func (r *replayed) Immovable(link int) (immovable, known bool) {
	for i := range r.recorded.Links {
		if l := &r.recorded.Links[i]; l.Index == link && l.Immovable != nil {
			return *l.Immovable, true
		}
	}
	return false, false
}

// EswitchMode implements Hardware.
func (r *replayed) EswitchMode(function PCIAddress) string { return r.recorded.EswitchModes[function] }

// RDMANetns implements Hardware.
func (r *replayed) RDMANetns() string { return r.recorded.RDMANetns }

// RDMADevices implements Hardware.
func (r *replayed) RDMADevices() ([]RDMADevice, error) {
	if r.recorded.RDMAError != "" {
		return nil, errors.New(r.recorded.RDMAError)
	}
	devices := make([]RDMADevice, 0, len(r.recorded.RDMADevices))
	for i := range r.recorded.RDMADevices {
		devices = append(devices, r.recorded.RDMADevices[i].RDMADevice)
	}
	return devices, nil
}

// RDMALinks implements Hardware.
func (r *replayed) RDMALinks(device int) ([]int, error) {
	for i := range r.recorded.RDMADevices {
		if d := &r.recorded.RDMADevices[i]; d.Index == device && d.Error != "" {
			return d.Links, errors.New(d.Error)
		} else if d.Index == device {
			return d.Links, nil
		}
	}
	return nil, fmt.Errorf("no RDMA device %d", device)
}

// File names in a recording.
const (
	sysFile     = "sysfs.json"
	netlinkFile = "netlink.json"
)

// Files returns the recording as files. The same recording always results in the same files.
func (r Recording) Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, part := range map[string]any{sysFile: r.Sys, netlinkFile: r.Netlink} {
		content, err := json.MarshalIndent(part, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("cannot write %s of a recording: %w", name, err)
		}
		files[name] = append(content, '\n')
	}
	return files, nil
}

// Write writes the recording to a directory, which it creates if necessary. None of the recording's files may exist in
// the directory.
func (r Recording) Write(dir string) error {
	files, err := r.Files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot create a directory for the recording: %w", err)
	}
	for name := range files {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("cannot write the recording: %[2]s already contains a %[1]s; choose another "+
				"directory", name,
				dir)
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return fmt.Errorf("cannot write the recording: %w", err)
		}
	}
	return nil
}

// OpenRecording reads a recording from a directory.
func OpenRecording(dir fs.FS) (Recording, error) {
	var r Recording
	for _, part := range []struct {
		name   string
		target any
	}{{netlinkFile, &r.Netlink}, {sysFile, &r.Sys}} {
		content, err := fs.ReadFile(dir, part.name)
		if err == nil {
			err = json.Unmarshal(content, part.target)
		}
		if wrapped := (*fs.PathError)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // the path in the error is the same name
		}
		if err != nil {
			return Recording{}, fmt.Errorf("cannot read %s of the recording: %w", part.name, err)
		}
	}
	return r, nil
}
