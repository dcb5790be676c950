package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/dra-networking/dra-network-driver/e2e/vm"
)

// rdmaMode is a flag value that determines in which network namespaces a machine's RDMA devices are visible. It is
// empty if the machine has no RDMA devices.
type rdmaMode string

const (
	rdmaShared    rdmaMode = "shared"
	rdmaExclusive rdmaMode = "exclusive"
)

// String, Set and Type implement pflag.Value.
func (m *rdmaMode) String() string { return string(*m) }

// Type returns the name for the value that is shown in the help.
func (m *rdmaMode) Type() string { return "mode" }

// Set sets the value of the flag.
func (m *rdmaMode) Set(text string) error {
	switch mode := rdmaMode(text); mode {
	case rdmaShared, rdmaExclusive:
		*m = mode
		return nil
	default:
		return fmt.Errorf("it is %s or %s", rdmaShared, rdmaExclusive)
	}
}

// addRDMA adds the settings for RDMA to a machine's command. If the lab's variant of rxe is not available, the
// distribution's module is used, and tests that need the lab's variant are skipped. netns_mode=0 selects the kernel's
// exclusive mode. It is set as a boot parameter, because at run time, the mode can be changed only while there is just
// one network namespace.
func (f *vmFlags) addRDMA(ctx context.Context, image *vm.Image, c *vm.Command, progress io.Writer) error {
	if f.rdma == "" {
		if f.stockRXE {
			return errors.New("--stock-rxe is for machines with RDMA: add --rdma")
		}
		return nil
	}
	if f.rdma == rdmaExclusive {
		c.Parameters = append(c.Parameters, "ib_core.netns_mode=0")
	}
	c.Modules = append(c.Modules, "ib_uverbs", "ib_umad", "rdma_ucm")
	if f.stockRXE {
		c.Modules = append(c.Modules, "rdma_rxe")
		return nil
	}
	module, err := image.RXE(ctx)
	if errors.Is(err, vm.ErrNoRXE) {
		// only informational
		_, _ = fmt.Fprintf(progress, "vm: Soft RoCE is as Debian has it, and tests that need the lab's are "+
			"skipped: %v\n", err)
		c.Modules = append(c.Modules, "rdma_rxe")
		return nil
	}
	c.ModuleFiles = append(c.ModuleFiles, module)
	return err
}
