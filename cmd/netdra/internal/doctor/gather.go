package doctor

import (
	"context"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// Sources are where things are read.
type Sources struct {
	// Root is the node's file system, and Path where that is for system calls: "/" on the node itself.
	Root fs.FS
	Path string
	// Ask asks the driver's socket, and Ready its probe.
	Ask   func(ctx context.Context, path string, into any) error
	Ready func(ctx context.Context) string
	// Statfs is the system call.
	Statfs func(path string, into *unix.Statfs_t) error
	// Cluster asks the API server; nil: nobody is asked.
	Cluster func(ctx context.Context) *Cluster
}

// Gather reads everything. What can't be read is as if it were not there, and the checks say so.
//
// The driver is asked before and after its files are listed: what a claim or a pod has made or removed meanwhile is left out,
// and so nothing that is in use looks left over.
func Gather(ctx context.Context, from Sources) *Input {
	in := &Input{Settings: defaultSettings()}
	before, err := answers(ctx, from)
	if err != nil {
		in.Silence = err.Error()
		if from.Ready != nil {
			in.Ready = from.Ready(ctx)
		}
	} else {
		in.Driver, in.Settings = before, before.State.Settings
	}
	in.Hostname = from.text("/proc/sys/kernel/hostname")
	in.Processes = from.processes()
	in.Containerd = from.containerd(in)
	in.Kubelet = in.kubelet()
	from.files(in)
	from.hardware(in)
	if in.Driver != nil {
		in.Plugins = from.plugins(in)
		in.Mounts = from.mounts(in.process("dra-network-driver"))
		if after, err := answers(ctx, from); err == nil {
			in.known(after)
		}
	}
	if from.Cluster != nil {
		in.Cluster = from.Cluster(ctx)
	}
	return in
}

// answers asks the driver everything.
func answers(ctx context.Context, from Sources) (*nodestate.Answers, error) {
	all := &nodestate.Answers{}
	for _, one := range []struct {
		path string
		into any
	}{
		{nodeapi.PathState, &all.State},
		{nodeapi.PathPolicies, &all.Inputs},
		{nodeapi.PathPublished, &all.Published},
		{nodeapi.PathClaims, &all.Claims},
		{nodeapi.PathSandboxes, &all.Sandboxes},
		{nodeapi.PathLeftovers, &all.Leftovers},
	} {
		if err := from.Ask(ctx, one.path, one.into); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// known leaves out the files of what the driver has now.
func (in *Input) known(now *nodestate.Answers) {
	in.CDIFiles = slices.DeleteFunc(in.CDIFiles, func(file string) bool { return isOfAny(file, now.Claims) })
	in.Pins = slices.DeleteFunc(in.Pins, func(pin string) bool { return pinned(pin, now.Sandboxes) })
	// A claim that is released, or whose pod has come, was only looked at in between.
	in.Driver.Claims = slices.DeleteFunc(in.Driver.Claims, func(c nodestate.Claim) bool {
		return c.Orphaned && !slices.ContainsFunc(now.Claims, func(other nodestate.Claim) bool { return other.Claim == c.Claim && other.Orphaned })
	})
}

// text is a short file of the kernel, trimmed; empty if it can't be read.
func (s *Sources) text(file string) string {
	data, err := fs.ReadFile(s.Root, relative(file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// names are what is in a directory.
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
		all = append(all, Process{PID: pid, Name: name, Args: args, Contained: isContained(s.text(path.Join("/proc", pid, "status")))})
	}
	return all
}

// isContained says whether a process has an ID for each of several PID namespaces.
func isContained(status string) bool {
	for line := range strings.Lines(status) {
		if ids, found := strings.CutPrefix(line, "NSpid:"); found {
			return len(strings.Fields(ids)) > 1
		}
	}
	return false
}

func (s *Sources) containerd(in *Input) *Containerd {
	process := in.process("containerd")
	if process == nil {
		if _, err := fs.Stat(s.Root, relative(containerdFile)); err != nil {
			return nil
		}
		return readContainerd(s.Root, containerdFile)
	}
	file := process.flag("config")
	if file == "" {
		file = process.flag("c")
	}
	if file == "" {
		file = containerdFile
	}
	return readContainerd(s.Root, file)
}

func (in *Input) kubelet() *Kubelet {
	process := in.process("kubelet")
	if process == nil {
		return nil
	}
	root := process.flag("root-dir")
	if root == "" {
		root = "/var/lib/kubelet"
	}
	return &Kubelet{RootDir: root, NodeName: process.flag("hostname-override")}
}

// files lists what the driver and others have in its directories.
func (s *Sources) files(in *Input) {
	for _, name := range s.names(in.Settings.PluginDir) {
		if nodeapi.IsUnreadableJournal(name) {
			in.SetAside = append(in.SetAside, filepath.Join(in.Settings.PluginDir, name))
		}
	}
	for _, name := range s.names(in.Settings.CDIDir) {
		if kind, _ := nodeapi.ParseSpecName(name); kind != nodeapi.NoSpec {
			in.CDIFiles = append(in.CDIFiles, filepath.Join(in.Settings.CDIDir, name))
		}
	}
	for _, name := range s.names(in.Settings.NetNSDir) {
		if cnichain.IsPinName(name) {
			in.Pins = append(in.Pins, filepath.Join(in.Settings.NetNSDir, name))
		}
	}
	for _, name := range s.names(in.Settings.RegistrarDir) {
		if driver, found := strings.CutSuffix(name, "-reg.sock"); found {
			in.Registered = append(in.Registered, driver)
		}
	}
	for _, name := range s.names("/etc/cni/net.d") {
		if file := path.Join("/etc/cni/net.d", name); strings.Contains(s.text(file), `"multus`) && in.Multus == "" {
			in.Multus = file
		}
	}
	for _, dir := range []string{in.Settings.PluginDir, in.Settings.CDIDir, in.Settings.NetNSDir, in.Settings.LogDir} {
		in.Disks = append(in.Disks, s.disk(dir))
	}
}

func (s *Sources) disk(dir string) Disk {
	disk := Disk{Path: dir}
	var stat unix.Statfs_t
	if err := s.Statfs(filepath.Join(s.Path, plainPath(dir)), &stat); err != nil {
		disk.Missing = true
		return disk
	}
	disk.ReadOnly = stat.Flags&unix.ST_RDONLY != 0
	disk.Free, disk.Inodes = stat.Bavail*uint64(stat.Bsize), stat.Ffree //nolint:gosec // the size of a block is positive
	if stat.Files == 0 {
		disk.Inodes = unlimited // as btrfs has
	}
	return disk
}

// unlimited is more inodes than anybody needs.
const unlimited = 1 << 40

// plugins finds the CNI plugins of topologies.
func (s *Sources) plugins(in *Input) map[string]PluginFile {
	found := map[string]PluginFile{}
	for i := range in.Driver.State.Topologies {
		for _, name := range in.Driver.State.Topologies[i].Plugins {
			if _, known := found[name]; !known {
				found[name] = s.plugin(in, name)
			}
		}
	}
	return found
}

// mounts are those that a process sees, but for the root of a container. One without a container sees the host's files.
func (s *Sources) mounts(process *Process) []string {
	if process == nil {
		return nil
	}
	if !process.Contained {
		return []string{""} // of which everything is below
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

func (s *Sources) plugin(in *Input, name string) PluginFile {
	schema, _ := cnichain.DefaultSchemas().Lookup(name)
	plugin := PluginFile{HostPaths: schema.HostPaths}
	for _, dir := range in.Settings.CNIDirs {
		info, err := s.stat(path.Join(dir, name))
		if err == nil && info.Mode().IsRegular() && plugin.Path == "" {
			plugin.Path, plugin.Executable = path.Join(dir, name), info.Mode().Perm()&0o111 != 0
		}
	}
	others := []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni", "/var/lib/rancher/k3s/data/cni"}
	if in.Containerd != nil {
		others = append(others, in.Containerd.CNIDirs...)
	}
	for _, dir := range others {
		if info, err := s.stat(path.Join(dir, name)); err == nil && info.Mode().IsRegular() && !contains(in.Settings.CNIDirs, dir) {
			plugin.Elsewhere = dir
		}
	}
	return plugin
}

// mostLinks is how many links to links are followed.
const mostLinks = 8

// stat follows a link to an absolute path, too, which a file system that is mounted elsewhere refuses: it is a path of the node.
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

// hardware reads what the kernel says of links and of the IOMMU.
func (s *Sources) hardware(in *Input) {
	for _, name := range s.names("/sys/class/net") {
		in.Links = append(in.Links, Link{Name: name, Manager: s.manager(s.text(path.Join("/sys/class/net", name, "ifindex")))})
	}
	in.IOMMUGroups = len(s.names("/sys/kernel/iommu_groups"))
	if in.IOMMUGroups == 0 && s.text("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode") == "Y" {
		in.IOMMUGroups = 1 // the administrator does without
	}
	_, err := fs.Stat(s.Root, "sys/bus/pci/drivers/vfio-pci")
	in.VFIO = err == nil
}

// manager says who configures the link of an index, by the state files of NetworkManager and systemd-networkd.
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
