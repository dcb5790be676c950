package publish

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/nodeattributes"
)

// ReadHost reads the devices of this machine from the kernel and their attributes from the files in a directory.
func ReadHost(
	sources discovery.Sources, directory *nodeattributes.Directory,
) func(context.Context, []netip.Addr) (discovery.Facts, error) {
	return func(ctx context.Context, addresses []netip.Addr) (discovery.Facts, error) {
		withNode := sources
		withNode.NodeAddresses = addresses
		facts, err := discovery.Read(ctx, withNode)
		if err != nil {
			return discovery.Facts{}, err
		}
		files, problems := directory.Read()
		facts.Problems = append(facts.Problems, problems...)
		return nodeattributes.Apply(facts, files), nil
	}
}

// Binaries returns the names of the executable files in the CNI directories. It is not an error if a directory is
// missing.
func Binaries(dirs []string) (sets.Set[string], error) {
	found := sets.New[string]()
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("cannot list the CNI plugins of the node: %w", err)
		}
		for _, entry := range entries {
			if info, err := os.Stat(filepath.Join(dir, entry.Name())); err == nil && info.Mode().IsRegular() &&
				info.Mode().Perm()&0o111 != 0 {
				found.Insert(entry.Name())
			}
		}
	}
	return found, nil
}

// NodeAddresses returns the IP addresses listed in the Node object.
func NodeAddresses(node *corev1.Node) []netip.Addr {
	var found []netip.Addr
	for _, address := range node.Status.Addresses {
		if parsed, err := netip.ParseAddr(address.Address); err == nil { // otherwise it is a host name
			found = append(found, parsed.Unmap())
		}
	}
	return found
}
