package osdeps

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
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

// PluginRunner runs CNI plugins, and waits for those of an earlier process. [executor.PluginExec] is the real one.
type PluginRunner interface {
	executor.Exec
	AwaitEarlier(ctx context.Context, limit time.Duration) error
}

// Deps is all that the commands need of the machine that they run on.
type Deps struct {
	// Plugins runs CNI plugins, with a lock file that is held while any runs; empty: without.
	Plugins func(lock string) PluginRunner
	// PluginDirs are where the driver's own CNI plugins may be, besides the directories that users name.
	PluginDirs []string
	Host       host.Host
	Clock      clock.WithDelayedExecution
	// Facts are the network devices of the machine, which the cluster knows by addresses.
	Facts func(ctx context.Context, addresses []netip.Addr) (discovery.Facts, error)
	// Inspect shows a network namespace; the machine's own for an empty path.
	Inspect func(netns string) (view.View, error)
	// Hold keeps a namespace that others may let go of, and returns a path to it that is good until release.
	Hold func(netns string) (path string, release func(), err error)
	// MakeNamespace makes a network namespace, mounted at the path.
	MakeNamespace func(path string) error
	// MissingLinkTypes returns those of some types of links that the kernel does not make; nil: all are made.
	MissingLinkTypes func(linkTypes []string) ([]string, error)
	// UnavailableLinkTypes is MissingLinkTypes without loading modules that can be seen: a type counts as made if its
	// module is there.
	UnavailableLinkTypes func(linkTypes []string) ([]string, error)
	// IsHostNamespace reports whether a path is the machine's own network namespace.
	IsHostNamespace func(netns string) bool
	// NewRunID makes the name of a run: unique on the machine, and a valid CNI container id and file name.
	NewRunID func() (string, error)
	// CheckPrivilege returns an error if the process may not change the machine's network.
	CheckPrivilege func() error
	Hostname       func() (string, error)
	// NetnsDir is where network namespaces have names.
	NetnsDir string
	// Cluster is one with other nodes.
	Cluster func(remote.Access) (*remote.Cluster, error)
}

// Linux is the real one.
func Linux() Deps {
	return Deps{
		Plugins:              func(lock string) PluginRunner { return executor.PluginExec{Lock: lock} },
		PluginDirs:           pluginDirs(),
		Host:                 host.Linux{},
		Clock:                clock.RealClock{},
		Facts:                ReadFacts,
		Inspect:              view.Read,
		Hold:                 holdNamespace,
		MakeNamespace:        makeNamespace,
		MissingLinkTypes:     host.MissingLinkTypes,
		UnavailableLinkTypes: host.UnavailableLinkTypes,
		IsHostNamespace:      isHostNamespace,
		NewRunID:             newRunID,
		CheckPrivilege:       checkPrivilege,
		Hostname:             os.Hostname,
		NetnsDir:             "/var/run/netns",
		Cluster:              remote.Connect,
	}
}

// pluginDirs are where "make build" puts the driver's own CNI plugins, and where the driver does on a node. The first
// is the folder cni beside this program, since other programs in a folder of programs have names of plugins, such as
// bridge; what was built with this program goes before what a driver has installed.
func pluginDirs() []string {
	var dirs []string
	if program, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Join(filepath.Dir(program), "cni"))
	}
	return append(dirs, nodeapi.HelperDir(nodeapi.DefaultPluginDir))
}

// ReadFacts discovers the machine's devices. Links that carry one of the addresses are the node's infrastructure.
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
		return errors.New("this makes network namespaces and runs CNI plugins, which needs root; run it with sudo")
	}
	return nil
}

func newRunID() (string, error) {
	random := make([]byte, 4)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("cannot make a name for the run: %w", err)
	}
	return "netdra-" + hex.EncodeToString(random), nil
}

// holdNamespace opens the namespace: while it is open it lives. The path is one of this process only: a CNI plugin
// cannot use it.
func holdNamespace(path string) (string, func(), error) {
	file, err := os.Open(path)
	if err != nil {
		return "", nil, fmt.Errorf("cannot open network namespace: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", file.Fd()), func() { _ = file.Close() }, nil
}

// isHostNamespace compares files: those in nsfs are the same if and only if the namespaces are.
func isHostNamespace(path string) bool {
	given, givenErr := os.Stat(path)
	current, ownErr := os.Stat("/proc/thread-self/ns/net") // /proc/self is the main thread
	return givenErr == nil && ownErr == nil && os.SameFile(given, current)
}

// makeNamespace makes a namespace whose loopback is up, as in pods.
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
			"since the kernel makes it with the namespace", path, err)
	}
	if err := handle.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("cannot set loopback link \"lo\" up in network namespace %q: %w; run netdra as root", path,
			err)
	}
	return nil
}
