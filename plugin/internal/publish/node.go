package publish

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/nodeattributes"
)

// ReadHost reads the devices of this machine, and their attributes from the files in a directory.
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

// unloadable returns the reason why a CNI plugin cannot be executed: it is dynamically linked, and the driver's
// container, in which plugins run, does not contain the program interpreter. Otherwise, it returns "".
func unloadable(dirs []string, plugin string) string {
	for _, dir := range dirs {
		file, err := elf.Open(filepath.Join(dir, plugin))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil { // for example a script
			return ""
		}
		interpreter := interpreterOf(file)
		_ = file.Close() // only read
		if _, err := os.Stat(interpreter); interpreter == "" || !errors.Is(err, os.ErrNotExist) {
			return ""
		}
		return fmt.Sprintf("%s is dynamically linked, and the driver's container does not contain %s; install a "+
			"statically linked plugin, or use the driver's image with a C library (driver-with-tools)",
			filepath.Join(dir, plugin), interpreter)
	}
	return ""
}

// interpreterOf returns the program interpreter of a dynamically linked program, and "" for other programs.
func interpreterOf(file *elf.File) string {
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			path, err := io.ReadAll(io.LimitReader(segment.Open(), unix.PathMax))
			if err != nil {
				return ""
			}
			return unix.ByteSliceToString(path)
		}
	}
	return ""
}

// NodeAddresses returns the addresses of the node in the cluster.
func NodeAddresses(node *corev1.Node) []netip.Addr {
	var found []netip.Addr
	for _, address := range node.Status.Addresses {
		if parsed, err := netip.ParseAddr(address.Address); err == nil { // otherwise it is a name
			found = append(found, parsed.Unmap())
		}
	}
	return found
}
