package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/dra-networking/dra-network-driver/e2e/internal/node"
)

// bootTimeout is the time limit for starting a node, which normally takes two seconds.
const bootTimeout = 2 * time.Minute

// nodesDir contains a run directory for each node in a multi-node cluster. baseSpecFile is the base specification for
// containers on the nodes.
const (
	nodesDir     = "nodes"
	baseSpecFile = "oci.json"
)

// Node is a node in a multi-node cluster: a machine with its own mounts, processes, network and cgroups, which can be
// switched off. Its files in /etc, /opt and /var survive a power-off, whereas /run, processes, mounts, namespaces and
// links are lost. Each boot has a new boot ID, in the node's /proc and in its containers' /proc. Links keep their names
// and hardware addresses, but get new indexes in a different order. The state in the handle is a snapshot, except for
// Init, which process reads each time. Several processes may use handles to the same node concurrently, because
// operations that switch the node on or off lock its run directory.
type Node struct {
	Machine
	cluster *Cluster
}

// Nodes returns the nodes in a multi-node cluster, and nothing for other clusters. Each call returns new handles. The
// nodes may be off.
func (c *Cluster) Nodes() []*Node {
	var all []*Node
	for i, name := range c.state.Nodes {
		o, s := c.opts, c.state
		o.NodeName, o.RunDir, o.Nodes, o.number = name, filepath.Join(s.RunDir, nodesDir, name), 0, i+1
		s.NodeName, s.RunDir, s.Nodes, s.Number = name, o.RunDir, nil, i+1
		s.Cgroup, s.Init = filepath.Join(s.Cgroup, name), processID{}
		all = append(all, &Node{Machine: Machine{opts: o, state: s}, cluster: c})
	}
	return all
}

// Node returns the node with the given name or number. Numbers start at 1.
func (c *Cluster) Node(name string) (*Node, error) {
	all := c.Nodes()
	i := slices.IndexFunc(all, func(n *Node) bool {
		return n.NodeName() == name || strconv.Itoa(n.state.Number) == name
	})
	if i < 0 {
		return nil, fmt.Errorf("cluster %q has no node %q that can be switched off: it has %q; start one with "+
			"several nodes", c.state.Name, name, c.state.Nodes)
	}
	return all[i], nil
}

// Address returns the node's address, at which its kubelet and its pods with host networking are reachable.
func (n *Node) Address() string { return n.opts.address() }

// On reports whether the node is switched on. This includes a node whose boot was interrupted, even though it might not
// work.
func (n *Node) On() bool { return n.process().alive() }

// PowerOff terminates all of the node's processes immediately, as in a power failure, and removes its links. It does
// nothing if the node is off. The control plane notices the power-off in the same way as for any lost node: the kubelet
// stops renewing its lease. By the time PowerOff returns, the node's cgroups and links no longer exist.
func (n *Node) PowerOff(ctx context.Context) error {
	unlock, err := lockRun(ctx, n.state.RunDir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := n.off(ctx); err != nil {
		return fmt.Errorf("cannot switch %s off: %w", n, err)
	}
	return nil
}

// PowerOn starts a node that is off, with all its cables connected, and returns when the node is Ready in the new boot.
// If the node is on, PowerOn does nothing unless the last boot was interrupted, in which case it boots the node again.
// If PowerOn fails, the node may be on or off, and its logs are kept; the next PowerOn boots the node again.
func (n *Node) PowerOn(ctx context.Context) error {
	unlock, err := lockRun(ctx, n.state.RunDir)
	if err != nil {
		return err
	}
	defer unlock()
	saved, err := loadState(n.state.RunDir)
	if err != nil {
		return err
	}
	if n.On() && saved.Ready {
		return nil
	}
	return n.boot(ctx, nil)
}

// Reboot calls PowerOff and PowerOn. Processes on the node are killed without warning.
func (n *Node) Reboot(ctx context.Context) error {
	unlock, err := lockRun(ctx, n.state.RunDir)
	if err != nil {
		return err
	}
	defer unlock()
	return n.boot(ctx, nil)
}

// off kills the node's process 1, which exits only after all other processes on the node. off gets the process ID from
// the cluster's process 1 instead of the node's file: if a boot was interrupted after the process was started but
// before the file was written, only the parent process has the ID.
func (n *Node) off(ctx context.Context) error {
	all, err := n.cluster.Status(ctx)
	if err != nil {
		return err
	}
	if all[Component(n.state.NodeName)].Running {
		if err := n.cluster.Stop(ctx, Component(n.state.NodeName), syscall.SIGKILL); err != nil {
			return err
		}
	}
	return n.clear(ctx)
}

// clear removes the links and cgroups, which outlive the node's processes.
func (n *Node) clear(ctx context.Context) error {
	if err := n.unplug(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return removeCgroups(ctx, n.state.Cgroup)
}

// boot switches the node off, starts it, imports the given images, and waits until the node is Ready. The caller must
// hold the node's lock. The state in the node's file is Ready only from the last step until the next boot, so if a node
// is on but not Ready, its boot was interrupted.
func (n *Node) boot(ctx context.Context, images []string) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	bootID := string(uuid.NewUUID())
	for _, step := range []func() error{
		func() error { return n.off(ctx) }, // remains of an interrupted boot
		func() error { return makeCgroups(n.state.Cgroup) },
		func() error { return n.startInit(ctx, bootID) },
		func() error { return n.launchSaved(ctx, Containerd) },
		func() error { return n.ImportImages(ctx, images...) },
		func() error { return n.launchSaved(ctx, Kubelet) },
		func() error { return n.waitReady(ctx, bootID) },
		n.saveReady,
	} {
		if err := step(); err != nil {
			return fmt.Errorf("cannot start %s: %w; its logs are in %s", n, err,
				filepath.Join(n.state.RunDir, node.LogDir))
		}
	}
	return nil
}

// startInit asks the cluster's process 1 to start the node's process 1, and connects the node's cables. It writes the
// state file twice. The first write, before the start, clears Init: the process ID from the previous boot may be reused
// by another process, which must not be mistaken for the node's. The second write, after the start, records the process
// that listens on the control socket. The kernel reports that process's ID as seen from the caller's PID namespace.
func (n *Node) startInit(ctx context.Context, bootID string) error {
	dir := n.state.RunDir
	saved, err := loadState(dir)
	if err != nil {
		return err
	}
	spec, err := node.Load(dir)
	if err != nil {
		return err
	}
	saved.Boots, saved.Init, saved.Ready, spec.Member.BootID = saved.Boots+1, processID{}, false, bootID
	if err := saved.save(); err != nil {
		return err
	}
	if err := spec.Save(); err != nil {
		return err
	}
	// The socket file outlives the process that created it, and would prevent the new process from binding to the same
	// name.
	if err := os.RemoveAll(filepath.Join(dir, node.ControlSocket)); err != nil { // the socket from the previous boot
		return err
	}
	name := Component(n.state.NodeName)
	_, err = node.Call(ctx, n.cluster.state.RunDir, node.Request{Op: node.OpStart, Name: string(name), Machine: true,
		Argv: []string{n.cluster.helper("labnode"), dir}})
	if err != nil {
		return err
	}
	var answer node.Response
	err = n.cluster.waitFor(ctx, "process 1 of "+n.state.NodeName, name, func(ctx context.Context) error {
		answer, err = node.Call(ctx, dir, node.Request{Op: node.OpStatus})
		return err
	})
	if err != nil {
		return err
	}
	if saved.Init, err = identify(answer.Init); err != nil {
		return err
	}
	if err := saved.save(); err != nil {
		return err
	}
	return n.plug(saved.Boots)
}

// saveReady records that the boot is complete.
func (n *Node) saveReady() error {
	saved, err := loadState(n.state.RunDir)
	if err != nil {
		return err
	}
	saved.Ready = true
	return saved.save()
}

// launchSaved starts a component with the command line that was saved when the cluster was created. Process 1 does not
// have the command line, because it has not started the component since the node was booted.
func (n *Node) launchSaved(ctx context.Context, component Component) error {
	saved, err := loadState(n.state.RunDir)
	if err != nil {
		return err
	}
	_, err = node.Call(ctx, n.state.RunDir,
		node.Request{Op: node.OpStart, Name: string(component), Argv: saved.Commands[component]})
	if err != nil {
		return n.explain("start", component, err)
	}
	return n.WaitHealthy(ctx, component)
}

// waitReady waits until the API server reports that the node is ready in this boot. The Ready condition alone is not
// enough: if the node was off for only a few seconds, the control plane has not noticed that yet. However, together
// with the conditions, the kubelet reports the boot ID from /proc, which is different in each boot.
func (n *Node) waitReady(ctx context.Context, bootID string) error {
	return n.waitFor(ctx, "node "+n.state.NodeName, Kubelet, func(ctx context.Context) error {
		var object corev1.Node
		if err := n.cluster.getObject(ctx, "/api/v1/nodes/"+n.state.NodeName, &object); err != nil {
			return err
		}
		if known := object.Status.NodeInfo.BootID; known != bootID {
			return fmt.Errorf("it has not reported yet that it booted: the API server knows boot %q", known)
		}
		return isReady(object)
	})
}

// prepare writes all files that the node's run directory must contain before its first boot. Up calls it once, because
// later boots use the same keys, configuration and command lines, as if they were on the machine's disk.
func (n *Node) prepare(keys *authority) error {
	for _, d := range []string{node.LogDir, node.KubeletDir, node.ContainerdDir, node.ContainersDir, node.PrivateDir,
		node.DiskDir, pkiDir, manifestDir} {
		if err := os.MkdirAll(filepath.Join(n.state.RunDir, d), 0o700); err != nil {
			return err
		}
	}
	saved := n.state
	saved.Commands = map[Component][]string{}
	for _, component := range []Component{Containerd, Kubelet} {
		argv, err := commandLine(component, n.opts, n.state.Binaries)
		if err != nil {
			return err
		}
		saved.Commands[component] = argv
	}
	if err := saved.save(); err != nil {
		return err
	}
	if err := keys.writeMember(filepath.Join(n.state.RunDir, pkiDir), n.state.NodeName, apiURL,
		n.opts.addresses()); err != nil {
		return err
	}
	if err := n.configure(filepath.Join(n.cluster.state.RunDir, baseSpecFile)); err != nil {
		return err
	}
	return n.saveSpec()
}

// saveSpec writes the Spec for the node's process 1. The cluster's run directory, with the helper programs and the
// control plane's certificates, is also visible on the node.
func (n *Node) saveSpec() error {
	network, err := n.opts.clusterNetwork()
	if err != nil {
		return err
	}
	around := n.cluster.state.RunDir
	cni := append(slices.Clone(n.opts.ExtraCNIDirs), n.state.Binaries.CNIDir)
	return node.Spec{
		RunDir: n.state.RunDir, Keep: append([]string{around, n.state.Binaries.Dir}, cni...), CNIDirs: cni,
		Hostname: n.state.NodeName, APIAddress: apiAddress, Bridge: bridgeName,
		NodeAddress: n.opts.address() + subnetBits,
		Files: map[string]string{
			"/etc/hosts":                     n.opts.hostsFile(n.cluster.state.Nodes),
			"/etc/resolv.conf":               "",
			"/etc/cni/net.d/10-lab.conflist": network,
		},
		Member: &node.Member{Number: byte(n.state.Number), Gateway: nodeAddress,
			Host: filepath.Join(around, node.PrivateDir, node.HostDir)},
	}.Save()
}

// writeBaseSpec writes the base specification from which containerd derives each container: containerd's default plus a
// hook that makes the node's boot ID visible. A hook in the base specification applies to every container, including
// sandboxes, without any changes to the manifests in tests. The createContainer hook runs in the container's mount
// namespace before its root is changed (OCI runtime specification, "Lifecycle"): at this point, the container's /proc
// is mounted, and the node's files can still be bind-mounted over it.
func (c *Cluster) writeBaseSpec(ctx context.Context) error {
	data, err := exec.CommandContext(ctx, c.state.Binaries.Path("ctr"), "oci", "spec").Output()
	if err != nil {
		return fmt.Errorf("cannot read containerd's specification of containers: %w", err)
	}
	var spec map[string]any
	if err := json.Unmarshal(data, &spec); err != nil {
		return fmt.Errorf("cannot decode containerd's specification of containers: %w", err)
	}
	hook := map[string]any{"path": c.helper("labnode"), "args": []string{"labnode", "boot-id"}}
	spec["hooks"] = map[string]any{"createContainer": []any{hook}}
	if data, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.state.RunDir, baseSpecFile), data, 0o600)
}

// helper returns the path of one of the helper programs built from this project.
func (c *Cluster) helper(name string) string { return filepath.Join(c.state.RunDir, helperDir, name) }

// bootAll boots all nodes in a multi-node cluster concurrently for the first time. If one boot fails, the others are
// canceled, and Up terminates the cluster.
func (c *Cluster) bootAll(ctx context.Context, p *progress) error {
	nodes := c.Nodes()
	if len(nodes) == 0 {
		return nil
	}
	if err := c.writeBaseSpec(ctx); err != nil {
		return err
	}
	images, err := c.writeImages()
	if err != nil {
		return err
	}
	images = append(images, c.opts.Images...)
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		group.Go(func() error {
			err := n.boot(ctx, images)
			if err == nil {
				p.step("%s is ready", n.state.NodeName)
			}
			return err
		})
	}
	return group.Wait()
}

// ImportImages imports image archives, for example from image.Write, into all nodes, which must be on.
func (c *Cluster) ImportImages(ctx context.Context, tars ...string) error {
	nodes := c.Nodes()
	if len(nodes) == 0 {
		return c.Machine.ImportImages(ctx, tars...)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		group.Go(func() error { return n.ImportImages(ctx, tars...) })
	}
	return group.Wait()
}
