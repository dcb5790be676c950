package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/dra-network-cni/internal/gatehook"
	"github.com/dra-networking/dra-network-driver/cmd/internal/deviceonly"
	"github.com/dra-networking/dra-network-driver/cmd/internal/netdev"
	"github.com/dra-networking/dra-network-driver/cmd/internal/version"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi"
)

func programs() map[string]func() {
	return map[string]func(){deviceonly.Name: deviceonly.Main, netdev.Name: netdev.Main,
		nodeapi.GateHookCommand: gatehook.Main}
}

func main() {
	// The binary's name takes precedence, as in BusyBox: a runtime calls a CNI plugin by its path, without arguments,
	// whereas the hook is called with arguments.
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
	fmt.Fprintf(os.Stderr, "dra-network-cni: cannot run %q: unknown program; use one of these names as the name of "+
		"the binary or as the first argument: %s\n", name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	os.Exit(2)
}
