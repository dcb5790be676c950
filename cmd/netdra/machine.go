package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
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

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// plugins runs CNI plugins, and waits for those of an earlier process. [cnichain.PluginExec] is the real one.
type plugins interface {
	cnichain.Exec
	AwaitEarlier(ctx context.Context, limit time.Duration) error
}

// machine is all that the commands need of the machine that they run on.
type machine struct {
	// plugins runs CNI plugins, with a lock file that is held while any runs; empty: without.
	plugins func(lock string) plugins
	host    cnichain.Host
	clock   clock.Clock
	// facts are the network devices of the machine, which the cluster knows by addresses.
	facts func(ctx context.Context, addresses []netip.Addr) (discovery.Facts, error)
	// look shows a network namespace; the machine's own for an empty path.
	look func(netns string) (view.View, error)
	// hold keeps a namespace that others may let go of, and returns a path to it that is good until release.
	hold func(netns string) (path string, release func(), err error)
	// makeNamespace makes a network namespace, mounted at the path.
	makeNamespace func(path string) error
	// isOwn says whether a path is the machine's own network namespace.
	isOwn func(netns string) bool
	// newID makes the name of a run: unique on the machine, and a valid CNI container id and file name.
	newID func() (string, error)
	// mayChange returns an error if the process may not change the machine's network.
	mayChange func() error
	hostname  func() (string, error)
	// netnsDir is where network namespaces have names.
	netnsDir string
}

// linuxMachine is the real one.
func linuxMachine() machine {
	return machine{
		plugins:       func(lock string) plugins { return cnichain.PluginExec{Lock: lock} },
		host:          cnichain.LinuxHost{},
		clock:         clock.RealClock{},
		facts:         readFacts,
		look:          view.Read,
		hold:          holdNamespace,
		makeNamespace: makeNamespace,
		isOwn:         isOwnNamespace,
		newID:         newID,
		mayChange:     mayChange,
		hostname:      os.Hostname,
		netnsDir:      "/var/run/netns",
	}
}

func readFacts(ctx context.Context, addresses []netip.Addr) (discovery.Facts, error) {
	sources, err := discovery.Host()
	if err != nil {
		return discovery.Facts{}, err
	}
	defer sources.Close()
	sources.NodeAddresses = addresses
	return discovery.Read(ctx, sources)
}

// nodeAddresses are the addresses by which the cluster knows this node, as its driver says; none where no driver answers.
// Links that carry them are the node's own infrastructure.
func nodeAddresses(ctx context.Context) []netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, addressesLimit)
	defer cancel()
	var state nodestate.State
	if err := newDriverClient(cmp.Or(os.Getenv(socketVariable), defaultSocket)).read(ctx, "/state", &state); err != nil {
		return nil
	}
	return state.Addresses
}

// addressesLimit is how long the driver may take to say the node's addresses.
const addressesLimit = 2 * time.Second

func mayChange() error {
	if os.Geteuid() != 0 {
		return errors.New("this makes network namespaces and runs CNI plugins, which needs root: run it with sudo")
	}
	return nil
}

func newID() (string, error) {
	random := make([]byte, 4)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("cannot make a name for the run: %w", err)
	}
	return "netdra-" + hex.EncodeToString(random), nil
}

// holdNamespace opens the namespace: while it is open it lives.
func holdNamespace(path string) (string, func(), error) {
	file, err := os.Open(path)
	if err != nil {
		return "", nil, fmt.Errorf("cannot open network namespace: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", file.Fd()), func() { _ = file.Close() }, nil
}

func isOwnNamespace(path string) bool {
	given, givenErr := os.Stat(path)
	own, ownErr := os.Stat("/proc/thread-self/ns/net") // /proc/self is the main thread
	return givenErr == nil && ownErr == nil && os.SameFile(given, own)
}

// makeNamespace makes a namespace whose loopback is up, as in pods.
func makeNamespace(path string) error {
	if err := cnichain.NewNamespace(path); err != nil {
		return err
	}
	namespace, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("cannot open the network namespace that was made: %w", err)
	}
	defer func() { _ = namespace.Close() }()
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("cannot open the network namespace that was made: %w", err)
	}
	defer handle.Close()
	loopback, err := handle.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("cannot set its loopback up: %w", err)
	}
	return handle.LinkSetUp(loopback)
}

// findNamespace returns the path of a namespace that is given by path or by name.
func (m *machine) findNamespace(given string) (string, error) {
	path := given
	if !strings.Contains(given, "/") {
		path = filepath.Join(m.netnsDir, given)
	}
	if !m.host.Exists(path) {
		return "", fmt.Errorf("--netns %s: there is no network namespace at %s: give a path, or a name that \"ip netns list\" shows", given, path)
	}
	if m.isOwn(path) {
		return "", fmt.Errorf("--netns %s: that is this machine's own network namespace: give one that stands for a pod, or leave --netns out", given)
	}
	return path, nil
}
