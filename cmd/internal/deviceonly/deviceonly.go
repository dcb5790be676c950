// Package deviceonly is a CNI plugin that does not attach anything. A step that uses it gives containers access to a
// device's files, such as its RDMA device files, but leaves the device's interface, if any, on the host.
//
// Invariant: a call does not change anything, so any call can be repeated or skipped.
package deviceonly

import (
	"context"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// Name is the plugin type in CNI configurations.
const Name = "device-only"

// Main runs the plugin as a process: it reads the command from the environment and the configuration from standard
// input.
func Main() {
	nothing := func(*skel.CmdArgs) error { return nil }
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: nothing, Check: nothing, GC: nothing, Status: nothing},
		version.All, "CNI plugin "+Name+": attaches no interface")
}

// add prints a result that contains no interfaces.
func add(args *skel.CmdArgs) error {
	configured, err := (&version.ConfigDecoder{}).Decode(args.StdinData)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	return types.PrintResult(&types100.Result{}, configured)
}

// InProcess runs the plugin in the current process. See package netdev for the rationale.
type InProcess struct{}

// Accepts reports whether Call supports a command.
func (InProcess) Accepts(command string, _ []byte) bool { return command == "ADD" || command == "DEL" }

// Call returns what the plugin would print if it ran as a process.
func (InProcess) Call(_ context.Context, command string, args *skel.CmdArgs) ([]byte, error) {
	configured, err := (&version.ConfigDecoder{}).Decode(args.StdinData)
	if err != nil || command == "DEL" {
		return nil, err
	}
	return []byte(`{"cniVersion":"` + configured + `"}`), nil
}
