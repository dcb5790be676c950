package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// Sources provides access to the data for the checks. Tests replace it.
type Sources struct {
	// Root is the node's file system. Path is the directory where that file system is mounted, for use in system calls:
	// "/" on the node itself.
	Root fs.FS
	Path string
	// Query sends a request to the driver's socket. Ready queries the driver's readiness probe.
	Query nodeclient.Query
	Ready func(ctx context.Context) string
	// Get requests a path from an HTTP server on a socket.
	Get func(ctx context.Context, socket, path string) ([]byte, error)
	// Statfs is the statfs system call.
	Statfs func(path string, stat *unix.Statfs_t) error
	// MissingLinkTypes returns the elements of types that the kernel does not support.
	MissingLinkTypes func(types []string) ([]string, error)
}

// Gather reads the data for all checks. Unreadable data is treated as missing and reported by the checks.
//
// It queries the driver both before and after listing the driver's files. Items that appear or disappear in between are
// omitted, so that nothing in use looks like a leftover.
func Gather(ctx context.Context, sources Sources) *Input {
	input := &Input{Settings: defaultSettings()}
	before, err := sources.readDriver(ctx)
	if err != nil {
		input.Silence = err.Error()
		if sources.Ready != nil {
			input.Ready = sources.Ready(ctx)
		}
	} else {
		input.Driver, input.Settings = before, before.State.Settings
	}
	input.Processes = sources.processes()
	input.Runtime = sources.runtime(ctx, input)
	input.Kubelet = input.kubelet()
	sources.files(input)
	input.Pooled = sources.pooled(input)
	sources.hardware(input)
	if input.Driver != nil {
		input.Plugins = sources.plugins(input)
		sources.linkTypes(input)
		input.Mounts = sources.mounts(input.process("dra-network-driver"))
		if after, err := sources.readDriver(ctx); err == nil {
			input.dropInUse(after)
		}
	}
	return input
}

// readDriver reads either all lists or none. If some lists were missing, the items in them would look like leftovers.
func (s *Sources) readDriver(ctx context.Context) (*nodestate.Answers, error) {
	return nodeclient.Read(ctx, s.Query, nodeapi.PathState, nodeapi.PathPolicies, nodeapi.PathPublished,
		nodeapi.PathClaims, nodeapi.PathSandboxes, nodeapi.PathLeftovers)
}

// dropInUse removes the files of claims and sandboxes in the driver's second answers, because these files are in use.
// It also removes unused claims that were in transition.
func (input *Input) dropInUse(later *nodestate.Answers) {
	input.CDIFiles = slices.DeleteFunc(input.CDIFiles, func(file string) bool { return isOfAny(file, later.Claims) })
	input.Pins = slices.DeleteFunc(input.Pins, func(pin string) bool { return pinned(pin, later.Sandboxes) })
	// A claim was in transition if it has since been released or now has a pod.
	input.Driver.Claims = slices.DeleteFunc(input.Driver.Claims, func(c nodestate.Claim) bool {
		return c.Unused && !slices.ContainsFunc(later.Claims,
			func(other nodestate.Claim) bool { return other.Claim == c.Claim && other.Unused })
	})
}

// text returns the trimmed content of a short file, or "" if the file cannot be read.
func (s *Sources) text(file string) string {
	data, err := fs.ReadFile(s.Root, relative(file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func (s *Sources) names(dir string) []string {
	entries, err := fs.ReadDir(s.Root, relative(plainPath(dir)))
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// processes lists the running processes. It skips processes that exit before it has read them.
func (s *Sources) processes() []Process {
	var all []Process
	for _, pid := range s.names("/proc") {
		if _, err := strconv.Atoi(pid); err != nil {
			continue
		}
		name := s.text(path.Join("/proc", pid, "comm"))
		if name == "" {
			continue
		}
		args := strings.Split(s.text(path.Join("/proc", pid, "cmdline")), "\x00")
		all = append(all, Process{PID: pid, Name: name, Args: args,
			Contained: isContained(s.text(path.Join("/proc", pid, "status")))})
	}
	return all
}

// isContained reports whether a process is in a nested PID namespace. NSpid lists the process's ID in each PID
// namespace, from the reader's namespace to the process's own (proc_pid_status(5)).
func isContained(status string) bool {
	for line := range strings.Lines(status) {
		if ids, found := strings.CutPrefix(line, "NSpid:"); found {
			return len(strings.Fields(ids)) > 1
		}
	}
	return false
}

// runsCRIO reports whether the node's runtime is CRI-O according to the driver. If the driver does not answer, runsCRIO
// searches for a crio process. It ignores processes in containers, because any tenant can start a process with this
// name.
func (input *Input) runsCRIO(crio, containerd *Process) bool {
	if input.Driver != nil && input.Driver.State.Versions.Runtime != "" {
		return strings.HasPrefix(input.Driver.State.Versions.Runtime, "cri-o://")
	}
	return crio != nil && !crio.Contained && (containerd == nil || containerd.Contained)
}

// runtime reads the settings of the container runtime. If CRI-O is running, it reads them from CRI-O's socket. If
// containerd is running, it reads them from the configuration file specified by the flags of the process. If neither is
// running, it reads containerd's default configuration file, if that exists, because containerd may have failed to
// start.
func (s *Sources) runtime(ctx context.Context, input *Input) *Runtime {
	crio, process := input.process("crio"), input.process("containerd")
	if input.runsCRIO(crio, process) {
		return s.readCRIO(ctx, crio)
	}
	if process == nil {
		if _, err := fs.Stat(s.Root, relative(containerdFile)); err != nil {
			return nil
		}
		return readContainerd(s.Root, containerdFile)
	}
	return readContainerd(s.Root, cmp.Or(process.flag("config"), process.flag("c"), containerdFile))
}

// kubelet only reads flags, because the kubelet's configuration file specifies neither the root directory nor the node
// name.
func (input *Input) kubelet() *Kubelet {
	process := input.process("kubelet")
	if process == nil {
		return nil
	}
	return &Kubelet{RootDir: cmp.Or(process.flag("root-dir"), "/var/lib/kubelet"),
		NodeName: process.flag("hostname-override")}
}

// files lists the driver's files, and other programs' files in the same directories. A missing directory is treated as
// empty.
func (s *Sources) files(input *Input) {
	for _, name := range s.names(input.Settings.PluginDir) {
		if nodeapi.IsUnreadableJournal(name) {
			input.SetAside = append(input.SetAside, filepath.Join(input.Settings.PluginDir, name))
		}
	}
	for _, name := range s.names(input.Settings.CDIDir) {
		if kind, _ := nodeapi.ParseSpecName(name); kind != nodeapi.NoSpec {
			input.CDIFiles = append(input.CDIFiles, filepath.Join(input.Settings.CDIDir, name))
		}
	}
	for _, name := range s.names(input.Settings.NetNSDir) {
		if host.IsPinName(name) {
			input.Pins = append(input.Pins, filepath.Join(input.Settings.NetNSDir, name))
		}
	}
	for _, name := range s.names(input.Settings.RegistrarDir) {
		if driver, found := strings.CutSuffix(name, "-reg.sock"); found {
			input.Registered = append(input.Registered, driver)
		}
	}
	dir := networkDir
	if input.Runtime != nil {
		dir = cmp.Or(input.Runtime.NetworkDir, dir)
	}
	for _, name := range s.names(dir) {
		if file := path.Join(dir, name); strings.Contains(s.text(file), `"multus`) && input.Multus == "" {
			input.Multus = file
		}
	}
	for _, dir := range []string{input.Settings.PluginDir, input.Settings.CDIDir, input.Settings.NetNSDir,
		input.Settings.LogDir} {
		input.Disks = append(input.Disks, s.disk(dir))
	}
}

// disk returns the free space available to non-root users (f_bavail).
func (s *Sources) disk(dir string) Disk {
	disk := Disk{Path: dir}
	var stat unix.Statfs_t
	if err := s.Statfs(filepath.Join(s.Path, plainPath(dir)), &stat); err != nil {
		disk.Missing = true
		return disk
	}
	disk.ReadOnly = stat.Flags&unix.ST_RDONLY != 0
	disk.Free, disk.Inodes = stat.Bavail*uint64(stat.Bsize), stat.Ffree //nolint:gosec // a block's size is positive
	if stat.Files == 0 {
		disk.Inodes = unlimited // for example, on btrfs
	}
	return disk
}

// unlimited is the number of free inodes reported for a file system without a limit.
const unlimited = 1 << 40

func (s *Sources) plugins(input *Input) map[string]PluginFile {
	found := map[string]PluginFile{}
	for i := range input.Driver.State.Topologies {
		for _, name := range input.Driver.State.Topologies[i].Plugins {
			if _, known := found[name]; !known {
				found[name] = s.plugin(input, name)
			}
		}
	}
	return found
}

// mounts returns the mount points in a process's container, except the root. A process on the host can access all files
// on the host.
func (s *Sources) mounts(process *Process) []string {
	if process == nil {
		return nil
	}
	if !process.Contained {
		return []string{""} // the parent of every path
	}
	var paths []string
	for line := range strings.Lines(s.text(path.Join("/proc", process.PID, "mountinfo"))) {
		// "36 35 98:0 /mnt1 /mnt/parent rw,noatime - ext3 /dev/root rw", see proc_pid_mountinfo(5)
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] != "/" {
			paths = append(paths, fields[4])
		}
	}
	return paths
}

// plugin searches for a CNI plugin in the driver's directories, where the first match takes precedence. It also
// searches other common directories, to explain why the driver does not find an installed plugin.
func (s *Sources) plugin(input *Input, name string) PluginFile {
	state := &input.Driver.State
	plugin := PluginFile{HostPaths: state.HostPaths[name], LinkTypes: state.LinkTypes[name],
		PodAnnotation: state.PodAnnotations[name]}
	for _, file := range plugin.HostPaths {
		if _, err := s.stat(file); errors.Is(err, fs.ErrNotExist) {
			plugin.Absent = append(plugin.Absent, file)
		}
	}
	for _, dir := range input.Settings.CNIDirs {
		info, err := s.stat(path.Join(dir, name))
		if err == nil && info.Mode().IsRegular() && plugin.Path == "" {
			plugin.Path, plugin.Executable = path.Join(dir, name), info.Mode().Perm()&0o111 != 0
		}
	}
	rest := []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni", "/var/lib/rancher/k3s/data/cni"}
	if input.Runtime != nil {
		rest = append(rest, input.Runtime.CNIDirs...)
	}
	for _, dir := range rest {
		if info, err := s.stat(path.Join(dir, name)); err == nil && info.Mode().IsRegular() &&
			!containsPath(input.Settings.CNIDirs, dir) {
			plugin.Elsewhere = dir
		}
	}
	return plugin
}

// linkTypes finds the link types that plugins need but the kernel does not support. It does not load any modules: a
// type with a module on the node is supported, because the kernel loads the module on demand (depmod(8) lists
// rtnl-link-TYPE). The kernel is queried only for the other types, which are either built in or unsupported.
func (s *Sources) linkTypes(input *Input) {
	aliases := s.text(path.Join("/lib/modules", s.text("/proc/sys/kernel/osrelease"), "modules.alias"))
	needed := sets.New[string]()
	for name := range input.Plugins {
		needed.Insert(input.Plugins[name].LinkTypes...)
	}
	unloadable := host.WithoutModule(sets.List(needed), aliases)
	if len(unloadable) == 0 {
		return
	}
	missing, err := s.MissingLinkTypes(unloadable)
	if err != nil {
		input.LinkTypesUnknown = err.Error()
	}
	input.MissingLinkTypes = missing
}

// mostLinks is the maximum number of symlinks that stat follows.
const mostLinks = 8

// stat also follows symlinks with absolute targets, which os.Root would reject if the root is not "/".
func (s *Sources) stat(file string) (fs.FileInfo, error) {
	for range mostLinks {
		target, err := fs.ReadLink(s.Root, relative(file))
		if err != nil || !path.IsAbs(target) {
			break
		}
		file = target
	}
	return fs.Stat(s.Root, relative(file))
}

// hardware reads sysfs. It only finds links in the host's network namespace.
func (s *Sources) hardware(input *Input) {
	for _, name := range s.names("/sys/class/net") {
		input.Links = append(input.Links, Link{Name: name, Manager: s.manager(s.text(path.Join("/sys/class/net", name,
			"ifindex")))})
	}
	input.IOMMUGroups = len(s.names("/sys/kernel/iommu_groups"))
	if input.IOMMUGroups == 0 && s.text("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode") == "Y" {
		input.IOMMUGroups = 1 // vfio-pci also works without an IOMMU in this mode
	}
	_, err := fs.Stat(s.Root, "sys/bus/pci/drivers/vfio-pci")
	input.VFIO = err == nil
	input.RDMAParts = s.rdmaParts()
}

// manager returns the service that configures the link with the given index, according to the state files of
// NetworkManager and systemd-networkd. Querying the services through D-Bus would require access to the host's bus.
func (s *Sources) manager(index string) string {
	if index == "" {
		return ""
	}
	if strings.Contains(s.text(path.Join("/run/NetworkManager/devices", index)), "managed=true") {
		return "NetworkManager"
	}
	state := s.text(path.Join("/run/systemd/netif/links", index))
	if strings.Contains(state, "NETWORK_FILE=") {
		return "systemd-networkd"
	}
	return ""
}

// pooled returns devices with other owners: devices that device plugins have registered with the kubelet, and devices
// with a device information file for Multus. Devices that are allocated to pods come first. Registered devices are read
// from the kubelet's checkpoint (kubernetes, pkg/kubelet/cm/devicemanager/checkpoint), which is not an API. A
// checkpoint in an unknown format is treated as empty, so the check may miss devices.
func (s *Sources) pooled(input *Input) []PooledDevice {
	root := "/var/lib/kubelet"
	if input.Kubelet != nil {
		root = input.Kubelet.RootDir
	}
	found := s.checkpoint(path.Join(root, "device-plugins", "kubelet_internal_checkpoint"))
	// The kubelet keeps a terminated pod's devices in the checkpoint until it assigns a device from the same plugin to
	// another pod, which may never happen.
	if pods := s.names(path.Join(root, "pods")); pods != nil {
		found = slices.DeleteFunc(found, func(d PooledDevice) bool {
			return d.Pod != "" && !slices.Contains(pods, d.Pod)
		})
	}
	for _, name := range s.names(input.Settings.DeviceInfoDir) {
		file := path.Join(input.Settings.DeviceInfoDir, name)
		data, err := fs.ReadFile(s.Root, relative(plainPath(file)))
		var info nodeapi.DeviceInfo
		if err != nil || !nodeapi.IsDeviceInfo(name) || nodeapi.IsWrittenByDriver(data) ||
			json.Unmarshal(data, &info) != nil || info.PCI == nil {
			continue
		}
		found = append(found, PooledDevice{ID: info.PCI.Address, Resource: file})
	}
	return found
}

func (s *Sources) checkpoint(file string) []PooledDevice {
	data, err := fs.ReadFile(s.Root, relative(plainPath(file)))
	var checkpoint struct {
		Data struct {
			PodDeviceEntries []struct {
				PodUID       string
				ResourceName string
				DeviceIDs    map[string][]string // by NUMA node
			}
			RegisteredDevices map[string][]string // by resource
		}
	}
	if err != nil || json.Unmarshal(data, &checkpoint) != nil {
		return nil
	}
	var found []PooledDevice
	for _, entry := range checkpoint.Data.PodDeviceEntries {
		for _, node := range slices.Sorted(maps.Keys(entry.DeviceIDs)) {
			for _, id := range entry.DeviceIDs[node] {
				found = append(found, PooledDevice{ID: id, Resource: "resource " + entry.ResourceName,
					Pod: entry.PodUID})
			}
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(checkpoint.Data.RegisteredDevices)) {
		for _, id := range checkpoint.Data.RegisteredDevices[resource] {
			found = append(found, PooledDevice{ID: id, Resource: "resource " + resource})
		}
	}
	return found
}
