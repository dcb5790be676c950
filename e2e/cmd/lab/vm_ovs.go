package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/dra-networking/dra-network-driver/e2e/vm"
)

// kind returns the kind of image that the flags require.
func (f *vmFlags) kind() (vm.Kind, error) {
	switch {
	case f.ovs && f.rdma != "":
		return 0, errors.New("a machine has RDMA or Open vSwitch: remove --rdma or --ovs")
	case f.ovs:
		return vm.OVS, nil
	case f.rdma != "":
		return vm.RDMA, nil
	}
	return vm.SRIOV, nil
}

// addOVS adds the settings for Open vSwitch to a machine's command. It builds the real ovs-cni, in the version
// specified in e2e/ovscni/go.mod, into a plugin directory.
func addOVS(ctx context.Context, c *vm.Command, plugins string) error {
	c.Modules = append(c.Modules, "openvswitch")
	target, err := filepath.Abs(filepath.Join(plugins, "ovs"))
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", target, "tool")
	build.Dir, build.Env = "e2e/ovscni", append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build ovs-cni: %w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}
