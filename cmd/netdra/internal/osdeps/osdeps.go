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

// PluginRunner runs CNI plugins, and waits for plugins that an earlier process started. [executor.PluginExec]
// implements it.
type PluginRunner interface {
	executor.Exec
	AwaitEarlier(ctx context.Context, limit time.Duration) error
}

// Deps contains everything on the machine that the commands depend on.
type Deps struct {
	// Plugins returns a runner that holds the lock file while a plugin runs. If lock is empty, there is no lock.
	Plugins func(lock string) PluginRunner
	// PluginDirs are the directories with the driver's own CNI plugins. They are searched after the user's directories.
	PluginDirs []string
	Host       host.Host
	Clock      clock.WithDelayedExecution
	// Facts discovers the machine's network devices. addresses are the node's addresses in the cluster.
	Facts func(ctx context.Context, addresses []netip.Addr) (discovery.Facts, error)
	// Inspect reads a network namespace; an empty path means the machine's own namespace.
	Inspect func(netns string) (view.View, error)
	// Hold keeps a namespace alive, and returns a path to it that is valid until release.
	Hold func(netns string) (path string, release func(), err error)
	// MakeNamespace creates a network namespace and mounts it at the path.
	MakeNamespace func(path string) error
	// MissingLinkTypes returns the link types that the kernel does not support. It may load modules. If
	// MissingLinkTypes is nil, the kernel supports all link types.
	MissingLinkTypes func(linkTypes []string) ([]string, error)
	// UnavailableLinkTypes is like MissingLinkTypes, but it does not load modules that it finds on disk: a type with
	// such a module is available.
	UnavailableLinkTypes func(linkTypes []string) ([]string, error)
	// IsHostNamespace reports whether a path refers to the machine's own network namespace.
	IsHostNamespace func(netns string) bool
	// NewRunID returns a name for a run. The name is unique on the machine, and is valid as a CNI container ID and file
	// name.
	NewRunID func() string
	// CheckPrivilege returns an error if the process is not permitted to change the machine's network.
	CheckPrivilege func() error
	Hostname       func() (string, error)
	// NetnsDir is the directory that contains named network namespaces.
	NetnsDir string
	// Cluster connects to a cluster.
	Cluster func(remote.Access) (*remote.Cluster, error)
}

// Linux returns the dependencies for the machine that netdra runs on.
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

// pluginDirs returns the directories with the driver's own CNI plugins: first the directory cni next to this program,
// which "make build" creates, then the directory where the driver installs them on a node. Plugins that were built with
// this program take precedence. The subdirectory is necessary because a bin directory may contain other programs with
// the same name as a plugin, such as bridge.
func pluginDirs() []string {
	var dirs []string
	if program, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Join(filepath.Dir(program), "cni"))
	}
	return append(dirs, nodeapi.HelperDir(nodeapi.DefaultPluginDir))
}

// ReadFacts discovers the machine's devices. Links with one of the addresses belong to the node's infrastructure.
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

// isHostNamespace compares nsfs files, which are identical if and only if the namespaces are.
func isHostNamespace(path string) bool {
	given, givenErr := os.Stat(path)
	current, ownErr := os.Stat("/proc/thread-self/ns/net") // /proc/self refers to the main thread
	return givenErr == nil && ownErr == nil && os.SameFile(given, current)
}

// makeNamespace creates a namespace and sets its loopback interface up, as in a pod's namespace.
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
