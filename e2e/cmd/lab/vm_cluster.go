package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
	"github.com/dra-networking/dra-network-driver/e2e/stack"
	"github.com/dra-networking/dra-network-driver/e2e/vm"
)

// vmNRITimeout is as much longer than containerd's own limit as the driver is slower where all code is emulated.
const vmNRITimeout = 20 * time.Second

// vmClusterMemory is what a machine needs, in MiB, that is a node of Kubernetes: all its files are in memory.
const vmClusterMemory = 3072

// runAsNode runs a command on a machine that is the node of a cluster whose control plane is outside, with driver and
// controller as they are shipped. The control plane's code is not emulated: a pod starts in seconds.
func (f *vmFlags) runAsNode(ctx context.Context, image *vm.Image, c vm.Command, doubles, tmp string, progress io.Writer) (result vm.Result, err error) {
	clone, err := os.Getwd()
	if err != nil {
		return result, err
	}
	images, err := stack.Pack(f.bin, filepath.Join(tmp, "images"))
	if err != nil {
		return result, err
	}
	cluster, err := lab.Up(ctx, lab.Options{
		Name: f.where.name + "-vm", CacheDir: f.where.cache, NodeElsewhere: true, NRITimeout: f.nriTimeout, ExtraCNIDir: doubles, Images: images, Progress: progress,
	})
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
	written, read := cluster.FoldersElsewhere()
	c.Written = map[string]string{written: written}
	for _, dir := range read {
		c.Folders[dir] = dir
	}
	c.Args = cluster.JoinCommand(c.Args...)
	c.Env = append(c.Env, "KUBECONFIG="+cluster.Kubeconfig(), "PATH="+read[0]+":"+machinePath)
	c.MemoryMB = max(c.MemoryMB, vmClusterMemory)
	network := vm.Uplink(lab.NetworkElsewhere())
	c.Uplink = &network
	err = cluster.OnNetwork(func() (err error) {
		result, err = image.Run(ctx, c)
		return err
	})
	if err != nil || result.ExitCode != 0 {
		f.keepLogs(cluster, progress)
	}
	return result, err
}

// keepLogs saves what containerd, kubelet and the others printed from the end of the cluster.
func (f *vmFlags) keepLogs(cluster *lab.Cluster, progress io.Writer) {
	dir, err := os.MkdirTemp("", "lab-vm-logs-*")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(filepath.Dir(cluster.Logs(lab.Kubelet))))
	}
	text := "logs of the cluster are in " + dir
	if err != nil {
		text = "the logs of the cluster are lost: " + err.Error()
	}
	_, _ = fmt.Fprintln(progress, "vm:", text) // for people only
}
