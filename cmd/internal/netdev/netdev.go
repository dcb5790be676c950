package netdev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// Name is the plugin type in CNI configurations.
const Name = "netdev"

// Main runs the plugin as a process: it reads the command from the environment and the configuration from standard
// input.
func Main() {
	skel.PluginMainFuncs(functions(), versions(), "CNI plugin "+Name+": moves a network device of the host into a pod")
}

// versions returns the supported CNI versions. Version 0.2.0 is not supported because results in that version contain
// no interfaces, so without a record, DEL could not identify the link from prevResult.
func versions() version.PluginInfo { return version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0") }

func functions() skel.CNIFuncs {
	return skel.CNIFuncs{
		Add: func(args *skel.CmdArgs) error {
			result, err := add(context.Background(), args)
			if err != nil {
				return err
			}
			return result.Print()
		},
		Del:   func(args *skel.CmdArgs) error { return del(context.Background(), args) },
		Check: check, Status: status, GC: collect,
	}
}

// InProcess runs the plugin in the current process, which saves the time needed to start a separate one. It performs
// the same steps as [Main], in the same order and with the same files, so DEL can undo a call after a crash at any
// point. It is safe for concurrent use. See docs/adr/0030-netdev-in-process.md for the rationale and measurements.
type InProcess struct {
	// slot serializes moves; callers that wait for it can time out. The file lock also serializes moves, but waiting
	// for that lock requires polling, whereas slot is handed over immediately; a move takes 15 ms.
	slot chan struct{}
}

// NewInProcess returns an InProcess. It does no I/O.
func NewInProcess() *InProcess { return &InProcess{slot: make(chan struct{}, 1)} }

// Accepts reports whether Call supports a command for a given configuration. Configurations with an IPAM plugin require
// a separate process: an IPAM plugin inherits its caller's environment, and it must be possible to kill it through a
// context. CHECK, STATUS and GC are rare, so saving a few milliseconds would not justify a second implementation.
func (*InProcess) Accepts(command string, stdin []byte) bool {
	conf, err := readConfig(stdin)
	return err == nil && conf.IPAM.Type == "" && (command == "ADD" || command == "DEL")
}

// Call executes ADD or DEL. It returns the output that the plugin would print as a process; its errors are of type
// *types.Error. If ctx is done before the move of the link has started, Call stops; a move that has started is
// completed, since the kernel does not interrupt it. Call checks the version in the same way as package skel, so that
// an invalid configuration results in the same error either way.
func (p *InProcess) Call(ctx context.Context, command string, args *skel.CmdArgs) ([]byte, error) {
	stdout, err := p.call(ctx, command, args)
	if err == nil {
		return stdout, nil
	}
	if printed := (*types.Error)(nil); errors.As(err, &printed) {
		return nil, printed
	}
	return nil, types.NewError(types.ErrInternal, err.Error(), "")
}

func (p *InProcess) call(ctx context.Context, command string, args *skel.CmdArgs) ([]byte, error) {
	configured, err := (&version.ConfigDecoder{}).Decode(args.StdinData)
	if err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	if err := (&version.Reconciler{}).Check(configured, versions()); err != nil {
		return nil, types.NewError(types.ErrIncompatibleCNIVersion, "incompatible CNI versions", err.Details())
	}
	select {
	case p.slot <- struct{}{}:
		defer func() { <-p.slot }()
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot start: other links are being moved: %w", context.Cause(ctx))
	}
	if command == "DEL" {
		return nil, del(ctx, args)
	}
	result, err := add(ctx, args)
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}
