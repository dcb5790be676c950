package osdeps

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/cnichain/host"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// PluginRunner runs CNI plugins, and waits for plugins started by an earlier process. [executor.PluginExec] implements
// it.
type PluginRunner interface {
	executor.Exec
	AwaitEarlier(ctx context.Context, limit time.Duration) error
}

// Deps contains everything on the machine that the commands depend on.
type Deps struct {
	// Plugins returns a runner that holds a lock on the file while a plugin is running. If lock is empty, no lock is
	// used.
	Plugins func(lock string) PluginRunner
	// PluginDirs are the directories that contain the driver's own CNI plugins. They are searched after the directories
	// given by the user.
	PluginDirs []string
	Host       host.Host
	Clock      clock.WithDelayedExecution
	// Facts discovers the machine's network devices. addresses are the addresses with which the node is known in the
	// cluster.
	Facts func(ctx context.Context, addresses []netip.Addr) (discovery.Facts, error)
	// Inspect reads the state of a network namespace. If netns is empty, it reads the machine's own namespace.
	Inspect func(netns string) (view.View, error)
	// Hold keeps a namespace alive, and returns a path to it that is valid until release is called.
	Hold func(netns string) (path string, release func(), err error)
	// MakeNamespace creates a network namespace and mounts it at path.
	MakeNamespace func(path string) error
	// MissingLinkTypes returns those link types that the kernel does not support. It may load kernel modules. If the
	// function is nil, all link types are considered supported.
	MissingLinkTypes func(linkTypes []string) ([]string, error)
	// UnavailableLinkTypes is like MissingLinkTypes, but does not load modules that exist on disk; a type with such a
	// module is considered available.
	UnavailableLinkTypes func(linkTypes []string) ([]string, error)
	// IsHostNamespace reports whether a path refers to the machine's own network namespace.
	IsHostNamespace func(netns string) bool
	// NewRunID returns a name for a run that is unique on the machine and valid both as a CNI container ID and as a
	// file name.
	NewRunID func() string
	// CheckPrivilege returns an error if the process does not have the privileges to change the machine's network.
	CheckPrivilege func() error
	Hostname       func() (string, error)
	// NetnsDir is the directory that contains named network namespaces.
	NetnsDir string
	// Cluster connects to a Kubernetes cluster.
	Cluster func(remote.Access) (*remote.Cluster, error)
}

// Linux returns the dependencies for the machine on which netdra runs.
func Linux() Deps {
	return Deps{
		Plugins:              func(lock string) PluginRunner { return executor.PluginExec{Lock: lock} },
		PluginDirs:           pluginDirs(),
		Host:                 host.Linux{},
		Clock:                clock.RealClock{},
		Facts:                ReadFacts,
		Inspect:              view.Read,
		Hold:                 host.Linux{}.HoldNamespace,
		MakeNamespace:        makeNamespace,
		MissingLinkTypes:     host.MissingLinkTypes,
		UnavailableLinkTypes: host.UnavailableLinkTypes,
		IsHostNamespace:      isHostNamespace,
		NewRunID:             func() string { return "netdra-" + strings.ToLower(rand.Text()[:8]) },
		CheckPrivilege:       checkPrivilege,
		Hostname:             os.Hostname,
		NetnsDir:             "/var/run/netns",
		Cluster:              remote.Connect,
	}
}

// pluginDirs returns the directories that contain the driver's own CNI plugins: first the directory cni next to this
// program, which "make build" creates, then the directory where the driver installs the plugins on a node. Plugins
// built together with this program take precedence. They are in a subdirectory because a bin directory may contain
// unrelated programs with the same name as a plugin, such as bridge.
func pluginDirs() []string {
	var dirs []string
	if program, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Join(filepath.Dir(program), "cni"))
	}
	return append(dirs, nodeapi.HelperDir(nodeapi.DefaultPluginDir))
}

// ReadFacts discovers the machine's devices. Links with any of the given addresses are considered infrastructure of the
// node.
func ReadFacts(ctx context.Context, addresses []netip.Addr) (discovery.Facts, error) {
	sources, err := discovery.Host()
	if err != nil {
		return discovery.Facts{}, err
	}
	defer sources.Close()
	sources.NodeAddresses = addresses
	return discovery.Read(ctx, sources)
}

func checkPrivilege() error {
	if os.Geteuid() != 0 {
		return errors.New("creating network namespaces and running CNI plugins requires root; run netdra with sudo")
	}
	return nil
}

// isHostNamespace compares nsfs files, which are the same file if and only if the namespaces are the same.
func isHostNamespace(path string) bool {
	given, givenErr := os.Stat(path)
	current, ownErr := os.Stat("/proc/thread-self/ns/net") // /proc/self refers to the main thread
	return givenErr == nil && ownErr == nil && os.SameFile(given, current)
}

// makeNamespace creates a namespace and brings up its loopback interface, as in a pod's namespace.
func makeNamespace(path string) error {
	if err := host.NewNamespace(path); err != nil {
		return err
	}
	namespace, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("cannot open the new network namespace %q: %w", path, err)
	}
	defer func() { _ = namespace.Close() }()
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("cannot open the new network namespace %q: %w", path, err)
	}
	defer handle.Close()
	loopback, err := handle.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("cannot find loopback link \"lo\" in network namespace %q: %w; report this as a bug, "+
			"since the kernel creates it with the namespace", path, err)
	}
	if err := handle.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("cannot set loopback link \"lo\" up in network namespace %q: %w; run netdra as root", path,
			err)
	}
	return nil
}
