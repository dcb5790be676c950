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

// Name is the type of the plugin in a CNI configuration.
const Name = "netdev"

// Main is the plugin as a process: it reads its order from the environment and its configuration from standard input.
func Main() {
	skel.PluginMainFuncs(functions(), versions(), "CNI plugin "+Name+": moves a network device of the host into a pod")
}

// versions begins after 0.2.0, whose results name no interfaces: DEL without a record could not know the link by
// prevResult.
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

// InProcess is the plugin as a part of another process, without the time that a process of its own takes to start. It
// does what [Main] does, in the same order and with the same files, so whatever kills it leaves what DEL undoes. It is
// safe for concurrent use. The reasons, and what was measured, are in docs/adr/0030-netdev-in-process.md.
type InProcess struct {
	// slot has room for whoever moves a link: others wait here no longer than they want to. The file lock excludes
	// them, too, but whoever waits for that polls it: a move takes 15 ms, and the turn passes at once.
	slot chan struct{}
}

// NewInProcess does no I/O.
func NewInProcess() *InProcess { return &InProcess{slot: make(chan struct{}, 1)} }

// Accepts reports whether Call can do what a process would. Processes are what asks others for addresses: an IPAM
// plugin has the environment of its caller, and a context must be able to end it. CHECK, STATUS and GC are rare, so
// their few milliseconds are not worth a second way to run them.
func (*InProcess) Accepts(command string, stdin []byte) bool {
	conf, err := readConfig(stdin)
	return err == nil && conf.IPAM.Type == "" && (command == "ADD" || command == "DEL")
}

// Call is ADD or DEL. It returns what the process would print; its errors are of type *types.Error. When ctx ends
// before it has begun to move the link, it stops; a move that has begun is carried out, as it is in the kernel. The
// version is checked as package skel does it for a process, so that the same configuration is refused with the same
// error.
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
		return nil, fmt.Errorf("other links are being moved: %w", context.Cause(ctx))
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
