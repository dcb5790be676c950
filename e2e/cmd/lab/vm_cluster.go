package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
	"github.com/dra-networking/dra-network-driver/e2e/vm"
)

// vmNRITimeout is containerd's default multiplied by the slowdown of the driver if all code is emulated.
const vmNRITimeout = 20 * time.Second

// vmClusterMemory is the amount of memory, in MiB, for a machine that is a Kubernetes node, all of whose files are in
// memory. With the control plane, the machine uses half of this memory before it runs any pods.
const vmClusterMemory = 3072

// clusterPlace is a flag value: where the control plane runs if the machine is a node, and empty otherwise.
type clusterPlace string

const (
	clusterOutside clusterPlace = "outside"
	clusterInside  clusterPlace = "inside"
)

// String, Set and Type implement pflag.Value.
func (p *clusterPlace) String() string { return string(*p) }

// Type returns the name for the value that is shown in the help.
func (p *clusterPlace) Type() string { return "place" }

// Set sets the value of the flag.
func (p *clusterPlace) Set(text string) error {
	switch place := clusterPlace(text); place {
	case clusterOutside, clusterInside:
		*p = place
		return nil
	default:
		return fmt.Errorf("it is %s or %s", clusterOutside, clusterInside)
	}
}

// runAsNode runs a command on a machine that is the node in a cluster whose control plane runs outside the machine. The
// driver and the controller run as shipped. The control plane's code is not emulated, so a pod starts in seconds. QEMU
// runs in the cluster's network namespace, so that the API server is reachable through its user-mode network. The
// manifests are applied before the machine boots, so that the driver's pod is created as soon as the node has
// registered.
func (f *vmFlags) runAsNode(
	ctx context.Context, image *vm.Image, c vm.Command, tmp string, progress io.Writer,
) (result vm.Result, err error) {
	clone, err := os.Getwd()
	if err != nil {
		return result, err
	}
	options, err := f.clusterOptions(tmp, progress)
	if err != nil {
		return result, err
	}
	options.NodeElsewhere = true
	cluster, err := lab.Up(ctx, options)
	if err != nil {
		return result, err
	}
	defer func() {
		if downErr := cluster.Down(context.WithoutCancel(ctx)); err == nil {
			err = downErr
		}
	}()
	if err := stack.Apply(ctx, cluster, clone); err != nil {
		return result, err
	}
	join(&c, cluster)
	c.MemoryMB = max(c.MemoryMB, vmClusterMemory)
	network := vm.Uplink(lab.NetworkElsewhere())
	c.Uplink = &network
	err = cluster.OnNetwork(func() (err error) {
		result, err = image.Run(ctx, c)
		return err
	})
	if err != nil || result.ExitCode != 0 {
		keepLogs(cluster, progress)
	}
	return result, err
}

// runAsCluster boots a machine that is a complete cluster, and runs a command on it once the shipped driver and
// controller are ready. The run directory is in the temporary directory, so removing the temporary directory removes
// all traces of the cluster.
func (f *vmFlags) runAsCluster(
	ctx context.Context, image *vm.Image, c vm.Command, tmp string, progress io.Writer,
) (result vm.Result, err error) {
	options, err := f.clusterOptions(tmp, progress)
	if err != nil {
		return result, err
	}
	options.RunDir = filepath.Join(tmp, "cluster") // other processes do not have to find it
	cluster, err := lab.Pack(ctx, options)
	if err != nil {
		return result, err
	}
	c.Args = append([]string{"bash", "-c", installScript(), "install", cluster.Logs("install")}, c.Args...)
	join(&c, cluster)
	c.Folders["deploy"] = manifestsDir
	c.MemoryMB = max(c.MemoryMB, vmClusterMemory)
	// only informational
	_, _ = fmt.Fprintln(progress, "vm: the cluster starts inside, which takes three minutes or more where all code "+
		"is emulated")
	result, err = image.Run(ctx, c)
	if err != nil || result.ExitCode != 0 {
		keepLogs(cluster, progress)
	}
	return result, err
}

// clusterOptions returns the options shared by all clusters whose node is a virtual machine.
func (f *vmFlags) clusterOptions(tmp string, progress io.Writer) (lab.Options, error) {
	images, err := stack.Pack(f.bin, filepath.Join(tmp, "images"), stack.DefaultTag)
	return lab.Options{
		Name: f.where.name + "-vm", CacheDir: f.where.cache, NRITimeout: f.nriTimeout, Images: images,
		Progress:     progress,
		ExtraCNIDirs: lab.ExtraCNIDirs(filepath.Join(tmp, doublesFolder)),
	}, err
}

// join makes a machine the cluster's node before the machine's command runs.
func join(c *vm.Command, cluster *lab.Cluster) {
	written, read := cluster.FoldersElsewhere()
	c.Written = map[string]string{written: written}
	for _, dir := range read {
		c.Folders[dir] = dir
	}
	c.Args = cluster.JoinCommand(c.Args...)
	c.Env = append(c.Env, "KUBECONFIG="+cluster.Kubeconfig(), "PATH="+read[0]+":"+machinePath)
}

// installScript returns a script that applies the manifests inside the machine, and runs a command once the driver and
// the controller are ready. The script's arguments are a file for kubectl's output, which is printed only on failure,
// and the command. The words in the script's own commands do not contain spaces or special characters, so they do not
// have to be quoted.
func installScript() string {
	commands := stack.Commands(manifestsDir)
	for _, workload := range stack.Workloads() {
		commands = append(commands, []string{"kubectl", "-n", stack.Namespace, "rollout", "status", workload,
			"--timeout=5m"})
	}
	script := "log=$1; shift\n" + `install() { "$@" >>"$log" 2>&1 || { cat "$log"; exit 1; }; }` + "\n"
	for _, command := range commands {
		script += "install " + strings.Join(command, " ") + "\n"
	}
	return script + `exec "$@"`
}

// keepLogs copies the logs of all components, such as containerd and the kubelet, before the cluster is removed.
func keepLogs(cluster *lab.Cluster, progress io.Writer) {
	dir, err := os.MkdirTemp("", "lab-vm-logs-*")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(filepath.Dir(cluster.Logs(lab.Kubelet))))
	}
	text := "logs of the cluster are in " + dir
	if err != nil {
		text = "the logs of the cluster are lost: " + err.Error()
	}
	_, _ = fmt.Fprintln(progress, "vm:", text) // only informational
}
