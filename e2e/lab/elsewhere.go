package lab

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/dra-networking/dra-network-driver/e2e/internal/node"
)

// Network says how the card of a machine elsewhere leads into the cluster's network namespace.
type Network struct {
	// Link is how the card is called on the machine.
	Link string
	// Subnet is the network behind the card, a CIDR, and Gateway the address in it that stands for the cluster's namespace.
	Subnet, Gateway string
	// Machine is the address of the machine. What comes to each of Ports on the cluster's loopback interface goes there.
	Machine string
	Ports   []int
}

// kubeletPort is where the API server finds kubelet.
const kubeletPort = 10250

// NetworkElsewhere is what a machine needs to be the node of a cluster that has it elsewhere.
func NetworkElsewhere() Network {
	return Network{Link: "uplink", Subnet: podSubnet, Gateway: gatewayAddress, Machine: nodeAddress, Ports: []int{kubeletPort}}
}

// FoldersElsewhere are those that a machine elsewhere must see under their own paths: one that it writes to, and those that
// it reads, that of the programs first.
func (c *Cluster) FoldersElsewhere() (written string, read []string) {
	read = []string{c.state.Binaries.Dir}
	if c.opts.ExtraCNIDir != "" {
		read = append(read, c.opts.ExtraCNIDir)
	}
	return c.state.RunDir, read
}

// JoinCommand is what a machine elsewhere runs to become the node. It runs the given command when containerd and kubelet work,
// and ends with it.
func (c *Cluster) JoinCommand(args ...string) []string {
	return append([]string{filepath.Join(c.state.RunDir, helperDir, "labnode"), "join", c.state.RunDir}, args...)
}

// joining is nil unless the node is elsewhere.
func (c *Cluster) joining() (*node.Joining, error) {
	if !c.opts.NodeElsewhere {
		return nil, nil
	}
	images, err := c.writeImages()
	if err != nil {
		return nil, err
	}
	for i, source := range c.opts.Images { // the machine sees only copies of them
		path := filepath.Join(c.state.RunDir, imageDir, strconv.Itoa(i)+".tar")
		if err := copyFile(source, path); err != nil {
			return nil, fmt.Errorf("cannot give the node the image %s: %w", source, err)
		}
		images = append(images, path)
	}
	j := &node.Joining{
		Uplink: NetworkElsewhere().Link, Gateway: gatewayAddress, Cgroup: c.state.Cgroup, Images: images,
		Import: []string{c.state.Binaries.Path("ctr"), "--namespace=k8s.io", "images", "import", "--local", "-"},
	}
	if j.Containerd, err = commandLine(Containerd, c.opts, c.state.Binaries); err != nil {
		return nil, err
	}
	j.Kubelet, err = commandLine(Kubelet, c.opts, c.state.Binaries)
	return j, err
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // only read
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		_ = target.Close() // is of no use
		return err
	}
	return target.Close()
}
