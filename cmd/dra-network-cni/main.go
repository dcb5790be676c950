package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-cni/internal/gatehook"
	"github.com/dra-networking/dra-network-driver/cmd/internal/netdev"
	"github.com/dra-networking/dra-network-driver/cmd/internal/version"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

// programs are those that this binary is, by name.
func programs() map[string]func() {
	return map[string]func(){netdev.Name: netdev.Main, nodeapi.GateHookCommand: gatehook.Main}
}

func main() {
	// The name decides first, as in BusyBox: a runtime calls a CNI plugin by its path, and gives it no arguments. The
	// hook is called with arguments, so it may be the second case.
	all := programs()
	name := filepath.Base(os.Args[0])
	if _, known := all[name]; !known && len(os.Args) > 1 {
		name, os.Args = os.Args[1], os.Args[1:]
	}
	if name == "--version" {
		fmt.Println("dra-network-cni version", version.Get().Describe())
		return
	}
	if run, known := all[name]; known {
		run()
		return
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "dra-network-cni: no program is called %q; call it as, or with the first argument, one "+
		"of: %s\n",
		name, strings.Join(names, ", "))
	os.Exit(2)
}
