package main

import (
	"io"
	"slices"
	"testing"

	"github.com/dra-networking/dra-network-driver/e2e/vm"
)

func TestRDMAMode(t *testing.T) {
	var mode rdmaMode
	if err := mode.Set("other"); err == nil || mode != "" {
		t.Errorf("an unknown mode was accepted: %q, %v", mode, err)
	}
	for _, text := range []string{"shared", "exclusive"} {
		if err := mode.Set(text); err != nil || mode.String() != text {
			t.Errorf("mode %s was parsed as %q: %v", text, mode, err)
		}
	}
}

// The mode must be set on the kernel's command line, so that it takes effect before any device exists.
func TestModeIsAParameter(t *testing.T) {
	for mode, want := range map[rdmaMode][]string{rdmaShared: nil, rdmaExclusive: {"ib_core.netns_mode=0"}} {
		f := &vmFlags{rdma: mode, stockRXE: true}
		var c vm.Command
		if err := f.addRDMA(t.Context(), &vm.Image{}, &c, io.Discard); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.Parameters, want) || !slices.Contains(c.Modules, "rdma_rxe") || c.ModuleFiles != nil {
			t.Errorf("mode %s resulted in an unexpected command: %+v", mode, c)
		}
	}
}

func TestStockRXEWithoutRDMA(t *testing.T) {
	f := &vmFlags{stockRXE: true}
	if err := f.addRDMA(t.Context(), &vm.Image{}, &vm.Command{}, io.Discard); err == nil {
		t.Error("--stock-rxe was accepted without --rdma")
	}
}
