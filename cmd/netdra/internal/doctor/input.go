package doctor

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// Input is the input of all checks. Paths are those of the node. It is a value that checks must not change. Nil and
// empty fields mean that data is missing or unreadable, which the check that needs it reports.
type Input struct {
	Hostname  string
	Processes []Process
	// Containerd is nil if none runs and no configuration of it exists.
	Containerd *Containerd
	// Kubelet is nil if none runs under that name.
	Kubelet *Kubelet
	// Driver is nil if it does not answer; then Silence is why, and Ready what its probe says, if that answers.
	Driver  *nodestate.Answers
	Silence string
	Ready   string
	// Settings are the settings of the driver, or the defaults of the DaemonSet.
	Settings nodestate.Settings
	// Plugins are where the CNI plugins of topologies are, by name.
	Plugins map[string]PluginFile
	// MissingLinkTypes are the plugins' LinkTypes that the kernel does not support; LinkTypesUnknown is the reason why
	// the kernel cannot be queried.
	MissingLinkTypes []string
	LinkTypesUnknown string
	// Mounts are the mount points in the driver's container, except its root; those of the host if it has no container.
	// Nil: they are unreadable.
	Mounts []string
	Disks  []Disk
	// SetAside are journals that could not be read, by path.
	SetAside []string
	// CDIFiles and Pins are files in the driver's directories of CDI specs and network namespaces, by path.
	CDIFiles, Pins []string
	Links          []Link
	// IOMMUGroups is how many there are; VFIO reports whether the kernel's driver is loaded.
	IOMMUGroups int
	VFIO        bool
	RDMAParts   []RDMAPart
	// Registered are the names of the drivers that have a socket in kubelet's plugin registry.
	Registered []string
	// Multus is the CNI configuration that calls it.
	Multus string
	// Pooled are the devices that device plugins have offered to kubelet, or have told Multus of.
	Pooled []PooledDevice
	// Cluster is nil if none was given.
	Cluster *Cluster
}

// Process is one that runs on the node.
type Process struct {
	PID  string
	Name string // as the kernel has it: 15 bytes at most
	Args []string
	// Contained means that it has a PID namespace of its own, as in a container.
	Contained bool
}

// Kubelet is what matters of its command line.
type Kubelet struct {
	RootDir  string
	NodeName string // that it was told; empty: the host's name
}

// PooledDevice is a device of a device plugin.
type PooledDevice struct {
	// ID is the plugin's ID of the device: for SR-IOV the PCI address.
	ID string
	// Resource is the name of the extended resource, or the file with the information about the device.
	Resource string
	// Pod is the UID of a pod that was given the device; empty for none.
	Pod string
}

// PluginFile is a CNI plugin on the node.
type PluginFile struct {
	Path       string // in the driver's directories; empty if it is in none of them
	Executable bool
	Elsewhere  string // where it is, too
	// HostPaths are the paths of the host that its schema requires.
	HostPaths []string
	// Absent are the HostPaths that the node does not have.
	Absent []string
	// LinkTypes are the types of links that the plugin creates.
	LinkTypes []string
	// PodAnnotation is the annotation by which pods select what the plugin attaches; empty for one that attaches all.
	PodAnnotation string
}

// Disk is the file system of a directory.
type Disk struct {
	Path     string
	Missing  bool
	ReadOnly bool
	Free     uint64 // bytes
	Inodes   uint64 // that are free; also those of file systems without a limit, as a large number
}

// Link is a network interface of the node.
type Link struct {
	Name string
	// Manager is the network manager that configures it, if one does.
	Manager string
}

// Cluster is the data from the API server.
type Cluster struct {
	// Problem is why it cannot be asked.
	Problem string
	Version string
	// Serves are group/version.
	Serves []string
	// Off are the features that are switched off, if KnowsFeatures.
	Off           []string
	KnowsFeatures bool
	// Ahead is by how much the API server's clock is ahead of the node's.
	Ahead time.Duration
}

// process finds a process by its name. It only returns one in a container if there is no other: pods, too, may run
// containerd. The kernel keeps the first 15 bytes of a name (TASK_COMM_LEN), so names are compared at that length.
func (input *Input) process(name string) *Process {
	name = name[:min(len(name), 15)]
	var contained *Process
	for i := range input.Processes {
		switch process := &input.Processes[i]; {
		case process.Name != name:
		case !process.Contained:
			return process
		case contained == nil:
			contained = process
		}
	}
	return contained
}

// flag returns the value of a flag on a command line, in the forms -name value, --name value and --name=value. The
// first of several counts, unlike in package pflag; these flags are not repeated in practice.
func (p *Process) flag(name string) string {
	for i, arg := range p.Args {
		key, value, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case key != name || !strings.HasPrefix(arg, "-"):
		case joined:
			return value
		case i+1 < len(p.Args):
			return p.Args[i+1]
		}
	}
	return ""
}

// samePath reports whether two paths are one: /var/run is /run everywhere.
//
// A link /var/run with an absolute target cannot be followed in a file system that is mounted elsewhere, so paths are
// compared and opened in the form without it.
func samePath(path, other string) bool { return plainPath(path) == plainPath(other) }

func plainPath(path string) string {
	path = filepath.Clean(path)
	if rest, found := strings.CutPrefix(path, "/var/run/"); found {
		return "/run/" + rest
	}
	return path
}

func containsPath(paths []string, path string) bool {
	return slices.ContainsFunc(paths, func(other string) bool { return samePath(other, path) })
}

// defaultSettings returns the settings of the DaemonSet's defaults.
func defaultSettings() nodestate.Settings {
	return nodestate.Settings{
		PluginDir: nodeapi.DefaultPluginDir, RegistrarDir: "/var/lib/kubelet/plugins_registry",
		CNIDirs: []string{"/opt/cni/bin"}, NetNSDir: "/var/run/netns", CDIDir: "/var/run/cdi",
		LogDir: nodeapi.DefaultLogDir, NRISocket: "/var/run/nri/nri.sock",
		DeviceInfoDir: nodeapi.DefaultDeviceInfoDir,
	}
}
