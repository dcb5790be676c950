package doctor

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// Input is the input for all checks, which must not modify it. Paths are paths on the node. If data is missing or
// unreadable, the corresponding field is nil or empty, and the check that needs the data reports this.
type Input struct {
	Processes []Process
	// Runtime is nil if no containerd or CRI-O process is running and no containerd configuration file exists.
	Runtime *Runtime
	// Kubelet is nil if no kubelet process is running.
	Kubelet *Kubelet
	// Driver is nil if the driver does not answer. In that case, Silence is the error, and Ready is the response from
	// the readiness probe.
	Driver  *nodestate.Answers
	Silence string
	Ready   string
	// Settings are the settings reported by the driver or, if it does not answer, the defaults in the DaemonSet.
	Settings nodestate.Settings
	// Plugins contains the CNI plugins used by topologies, keyed by name.
	Plugins map[string]PluginFile
	// MissingLinkTypes are the LinkTypes of plugins that the kernel does not support. LinkTypesUnknown is the reason
	// why the kernel cannot be queried.
	MissingLinkTypes []string
	LinkTypesUnknown string
	// Mounts are the mount points in the driver's container, except the root; see [Sources]. Mounts is nil if they
	// cannot be read.
	Mounts []string
	Disks  []Disk
	// SetAside are the paths of unreadable journals that the driver has renamed.
	SetAside []string
	// CDIFiles and Pins are the paths of the driver's CDI specs and pinned network namespaces.
	CDIFiles, Pins []string
	Links          []Link
	// IOMMUGroups is the number of IOMMU groups. VFIO reports whether vfio-pci is loaded.
	IOMMUGroups int
	VFIO        bool
	RDMAParts   []RDMAPart
	// Registered are the names of the drivers that have a socket in the kubelet's plugin registry.
	Registered []string
	// Multus is the path of the CNI configuration that runs Multus; empty if there is none.
	Multus string
	// Pooled are the devices that device plugins have registered with the kubelet or that have been published for
	// Multus.
	Pooled []PooledDevice
}

// Process is a process on the node.
type Process struct {
	PID  string
	Name string // as reported by the kernel, at most 15 bytes
	Args []string
	// Contained reports whether the process has its own PID namespace, as processes in containers do.
	Contained bool
}

// Kubelet contains the relevant command-line flags of the kubelet.
type Kubelet struct {
	RootDir  string
	NodeName string // --hostname-override; may be empty
}

// PooledDevice is a device that a device plugin manages.
type PooledDevice struct {
	// ID is the device plugin's ID for the device. For SR-IOV devices, this is the PCI address.
	ID string
	// Resource is the name of the extended resource, or the path of the device information file.
	Resource string
	// Pod is the UID of the pod that the device is allocated to; empty if the device is not allocated.
	Pod string
}

// PluginFile is a CNI plugin on the node.
type PluginFile struct {
	Path       string // in one of the driver's directories; empty if not found there
	Executable bool
	Elsewhere  string // another directory that contains it
	// HostPaths are the host paths required by the plugin's schema.
	HostPaths []string
	// Absent are the HostPaths that do not exist on the node.
	Absent []string
	// LinkTypes are the types of links that the plugin creates.
	LinkTypes []string
	// PodAnnotation is the pod annotation that selects networks for the plugin; empty if there is none.
	PodAnnotation string
}

// Disk describes the file system that contains a directory.
type Disk struct {
	Path     string
	Missing  bool
	ReadOnly bool
	Free     uint64 // bytes
	Inodes   uint64 // free inodes; a large number if the file system has no limit
}

// Link is a network interface on the node.
type Link struct {
	Name string
	// Manager is the network manager that configures the link; empty if there is none.
	Manager string
}

// process finds a process by name. It prefers processes that are not containerized, because pods may also run
// containerd. The kernel truncates names to 15 bytes (TASK_COMM_LEN), so only that many bytes are compared.
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

// flag returns the value of a command-line flag in the form -name value, --name value or --name=value. If a flag is
// repeated, the first value takes precedence (in package pflag, the last one does). In practice, these flags are not
// repeated.
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

// samePath reports whether two paths are equal, treating /var/run as /run.
//
// os.Root cannot follow the symlink /var/run if its target is absolute and the file system is mounted in another
// directory. Therefore, paths under /var/run are rewritten to /run before they are compared or opened.
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

func defaultSettings() nodestate.Settings {
	return nodestate.Settings{
		PluginDir: nodeapi.DefaultPluginDir, RegistrarDir: "/var/lib/kubelet/plugins_registry",
		CNIDirs: []string{"/opt/cni/bin"}, NetNSDir: "/var/run/netns", CDIDir: "/var/run/cdi",
		LogDir: nodeapi.DefaultLogDir, NRISocket: "/var/run/nri/nri.sock",
		DeviceInfoDir: nodeapi.DefaultDeviceInfoDir,
	}
}
