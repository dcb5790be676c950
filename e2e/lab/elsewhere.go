package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/dra-networking/dra-network-driver/e2e/internal/node"
)

// Network describes how the NIC of a separate machine is connected to the cluster's network namespace. The lab command
// converts it to vm.Uplink, which has the same fields: importing package vm here would create an import cycle.
type Network struct {
	// Link is the name of the NIC on the machine.
	Link string
	// Subnet is the network that the NIC is on, in CIDR notation. Gateway is the address of the cluster's namespace on
	// this network.
	Subnet, Gateway string
	// Machine is the machine's address. Connections to each of Ports on the cluster's loopback interface are forwarded
	// to the machine.
	Machine string
	Ports   []int
}

// kubeletPort is the kubelet's port for connections from the API server. In the cluster's namespace, QEMU listens on
// this port instead of the kubelet, because the node's name resolves to 127.0.0.1 (see hostsFile).
const kubeletPort = 10250

// NetworkElsewhere returns the network for a machine that is the node in a cluster with NodeElsewhere.
func NetworkElsewhere() Network {
	return Network{Link: "uplink", Subnet: podSubnet, Gateway: gatewayAddress, Machine: nodeAddress,
		Ports: []int{kubeletPort}}
}

// FoldersElsewhere returns the directories that a separate machine must mount at the same paths: one that it writes to,
// and several that it only reads. The first directory in read contains the programs.
func (c *Cluster) FoldersElsewhere() (written string, read []string) {
	read = []string{c.state.Binaries.Dir}
	return c.state.RunDir, append(read, c.opts.ExtraCNIDirs...)
}

// JoinCommand returns the command that a separate machine runs to become the node. Once containerd and the kubelet are
// working, the command runs args and exits with the same status. Run it as root, on a machine that is not used for
// anything else: it does not undo its mounts and file changes.
func (c *Cluster) JoinCommand(args ...string) []string {
	return append([]string{filepath.Join(c.state.RunDir, helperDir, "labnode"), "join", c.state.RunDir}, args...)
}

// Pack prepares everything that another machine needs to run a whole cluster, including the control plane, without
// starting anything. The other machine mounts FoldersElsewhere at the same paths and runs JoinCommand; the cluster
// terminates when this command does. All files are in RunDir. This directory must be empty or must not exist, and the
// caller must remove it. Pack creates no process, cgroup or namespace, so there is nothing else to clean up. The
// directory is not locked, since the caller is its only user.
func Pack(ctx context.Context, o Options) (*Cluster, error) {
	o.allElsewhere = true
	o, err := o.withDefaults()
	if err == nil && (o.NodeElsewhere || o.ControlPlaneOnly) {
		err = errors.New("all of it is elsewhere: NodeElsewhere and ControlPlaneOnly say otherwise")
	}
	if err == nil && exists(o.RunDir) {
		err = checkEmpty(o.RunDir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot prepare a cluster: %w", err)
	}
	p := newProgress(o.Progress)
	if err := checkMachine(ctx, p); err != nil {
		return nil, err
	}
	binaries, err := Build(ctx, BuildOptions{CacheDir: o.CacheDir, Clone: o.Clone, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	c := newCluster(o, state{Name: o.Name, NodeName: o.NodeName, RunDir: o.RunDir, Binaries: binaries,
		Cgroup: cgroupName(o.Name, o.RunDir)})
	if err := c.write(ctx); err != nil {
		return nil, fmt.Errorf("cannot prepare a cluster: %w", err)
	}
	p.step("keys and configuration written")
	return c, nil
}

// joining returns the settings for joining as a node from another machine, or nil if the node is not elsewhere.
// containerd is started and its images are imported before the kubelet starts, because a static pod whose image is
// missing would have to wait for the kubelet's next attempt.
func (c *Cluster) joining() (*node.Joining, error) {
	if !c.opts.elsewhere() {
		return nil, nil
	}
	images, err := c.imagesElsewhere()
	if err != nil {
		return nil, err
	}
	j := &node.Joining{
		Cgroup: c.state.Cgroup, Import: []string{c.state.Binaries.Path("ctr"), "--namespace=k8s.io", "images", "import",
			"--local", "-"},
	}
	components := Components()
	if c.opts.NodeElsewhere {
		j.Uplink, j.Gateway = NetworkElsewhere().Link, gatewayAddress
		components = []Component{Containerd, Kubelet}
	}
	for _, name := range components {
		argv, err := commandLine(name, c.opts, c.state.Binaries)
		if err != nil {
			return nil, err
		}
		component := node.Component{Name: string(name), Argv: argv, Health: name.health()}
		if name == Containerd {
			// import images before the kubelet starts, since it may start pods immediately
			component.Health, component.Images = containerdSocket, images
		}
		j.Components = append(j.Components, component)
	}
	return j, nil
}

// imagesElsewhere returns the paths of all images, as seen by the separate machine. It copies the images, because that
// machine sees only FoldersElsewhere.
func (c *Cluster) imagesElsewhere() ([]string, error) {
	images, err := c.writeImages()
	if err != nil {
		return nil, err
	}
	for i, source := range c.opts.Images {
		path := filepath.Join(c.state.RunDir, imageDir, strconv.Itoa(i)+".tar")
		if err := copyFile(source, path); err != nil {
			return nil, fmt.Errorf("cannot give the node the image %s: %w", source, err)
		}
		images = append(images, path)
	}
	return images, nil
}

// copyFile copies a file for a machine that has no access to the original.
func copyFile(sourcePath, targetPath string) error {
	source, err := os.Open(sourcePath)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // used only for reading
	target, err := os.Create(targetPath)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		_ = target.Close() // the file is already incomplete
		return err
	}
	return target.Close()
}
